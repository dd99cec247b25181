"""Options that every kind of source has, and validation of specs."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.section import Section
from kosmos_rag.core.types import EVERYONE, PERMISSION_FEED, SourceDocument
from kosmos_rag.ingestion.sources.fetching import check_url

NotBlank = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
"""Text that says something, and that PostgreSQL can hold."""


def _refuse_blank(path: Any) -> Any:
    # Path("") is the working folder, which nobody means by leaving a value empty.
    if isinstance(path, str) and not path.strip():
        raise ValueError("it must name a file or a folder")
    return path


SourcePath = Annotated[Path, BeforeValidator(_refuse_blank)]
"""A path; a relative one counts from the working folder of the process that opens the source."""


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""A variable of the environment."""
Remote = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+@ -]*:[^\x00]*$")]
"""A remote of rclone's configuration and a path in it.

A remote that is described in place is refused: it would contain credentials, which are stored.
"""


SpaceKey = Annotated[str, Field(pattern=r"^~?[A-Za-z0-9_.:@-]+$")]
ProjectKey = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
_CLOUD = (".atlassian.net", ".atlassian.com")
_LOCAL = ("localhost", "127.0.0.1", "::1")


def check_encrypted(url: str) -> str:
    """Return an address without a slash at its end.

    Raises ValueError where a token would be sent without encryption.
    """
    parts = urlsplit(check_url(url))
    if parts.query or parts.fragment:
        raise ValueError("it must not have a query or a fragment")
    if parts.scheme != "https" and parts.hostname not in _LOCAL:
        raise ValueError("it must begin with https://, because a token is sent to it")
    return url.rstrip("/")


class JsonLinesPermissions(Section):
    """A permission feed in a file of JSON Lines."""

    kind: Literal["json_lines"] = "json_lines"
    name: Name
    """Of two feeds of one collection each needs its own."""
    path: SourcePath
    document_prefix: str = ""
    """Put before the names of the documents, where the feed has only their ids."""


class SqlPermissions(Section):
    """A permission feed in two queries of one database."""

    kind: Literal["sql"] = "sql"
    name: Name
    url_env: Variable
    """The variable of the environment that holds the URL."""
    containers_query: NotBlank
    """Columns: container, principal."""
    documents_query: NotBlank
    """Columns: document, container or principal, or both."""
    document_prefix: str = ""


class RclonePermissions(Section):
    """A permission feed from the metadata of a remote of rclone: Google Drive, OneDrive, SharePoint."""

    kind: Literal["rclone"] = "rclone"
    name: Name
    """Of the source of kind rclone whose documents it names, and of the feed."""
    remote: Remote


class AtlassianAccess(Section):
    """Where a Confluence or Jira is, and who reads it."""

    name: Name
    """Begins the names of the documents; of the source and of its feed it is the same."""
    url: Annotated[str, AfterValidator(check_encrypted)]
    """The address of the web interface: `https://acme.atlassian.net/wiki`."""
    deployment: Literal["cloud", "data_center"] | None = None
    """None: cloud if the host is one of Atlassian's."""
    user: NotBlank | None = None
    """With it the token is sent as its password, without it as a bearer token."""
    token_env: Variable
    """The variable of the environment that holds the token."""

    @property
    def is_cloud(self) -> bool:
        """Whether it is Atlassian's cloud."""
        host = urlsplit(self.url).hostname or ""
        return self.deployment == "cloud" or (self.deployment is None and f".{host}".endswith(_CLOUD))


class ConfluenceAccess(AtlassianAccess):
    """A Confluence, and which spaces of it."""

    spaces: tuple[SpaceKey, ...] = ()
    """Keys; empty: all spaces that the account sees, except personal ones."""


class JiraAccess(AtlassianAccess):
    """A Jira, and which projects of it."""

    projects: Annotated[tuple[ProjectKey, ...], Field(min_length=1)]


class SignedInReaders(Section):
    """Readers that a feed of Confluence or Jira takes from the spec."""

    signed_in: tuple[NotBlank, ...] = ()
    """Principals of all users who can sign in there; empty: nobody."""


class ConfluencePermissions(ConfluenceAccess, SignedInReaders):
    """A permission feed from the permissions of spaces and the restrictions of pages."""

    kind: Literal["confluence"] = "confluence"


class JiraPermissions(JiraAccess, SignedInReaders):
    """A permission feed from permission schemes and issue security levels."""

    kind: Literal["jira"] = "jira"


AtlassianPermissions = ConfluencePermissions | JiraPermissions
PermissionFeedSpec = JsonLinesPermissions | SqlPermissions | RclonePermissions | AtlassianPermissions
_FEEDS: Mapping[str, type[PermissionFeedSpec]] = {
    "confluence": ConfluencePermissions,
    "jira": JiraPermissions,
    "json_lines": JsonLinesPermissions,
    "rclone": RclonePermissions,
    "sql": SqlPermissions,
}


def validate_feed(values: Any) -> PermissionFeedSpec:
    """Return the spec of a permission feed as its model.

    Raises RequestError, one line for all faults.
    """
    if isinstance(values, JsonLinesPermissions | SqlPermissions | RclonePermissions | AtlassianPermissions):
        return values
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in _FEEDS:
        raise RequestError(one_line(f"permission feed of kind {show(kind)}: kind must be one of {', '.join(_FEEDS)}"))
    return validate_spec(_FEEDS[kind], kind, values, subject="permission feed")


class DocumentOptions(Section):
    """Options for all documents of a source."""

    acl: tuple[NotBlank, ...] = Field(default=(EVERYONE,), min_length=1)
    permissions: Annotated[PermissionFeedSpec, BeforeValidator(validate_feed)] | None = None
    """The feed that names the readers of each document, instead of `acl`."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    language: str | None = None

    @field_validator("permissions")
    @classmethod
    def _refuse_acl(cls, feed: PermissionFeedSpec | None, info: ValidationInfo) -> PermissionFeedSpec | None:
        if feed is not None and info.data.get("acl", (EVERYONE,)) != (EVERYONE,):
            raise ValueError("leave out acl: the feed names the readers of each document")
        return feed

    @property
    def document_acl(self) -> tuple[str, ...]:
        """The acl of the documents.

        With a permission feed it is a placeholder.
        """
        return self.acl if self.permissions is None else (PERMISSION_FEED,)

    def document(
        self, source: str, data: bytes, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> SourceDocument:
        """Create a document with these options.

        Its own metadata take precedence over those of the source.

        Args:
            metadata: Its own metadata.
        """
        return SourceDocument(
            source=source,
            data=data,
            title=title,
            metadata={**self.metadata, **(metadata or {})},
            acl=self.document_acl,
            language=self.language,
        )

    def compute_etag(self, *state: object) -> str:
        """Return an etag of a document's state and of these options.

        With the options, because readers that are removed from a spec would otherwise keep access.
        """
        options = [sorted(self.document_acl), self.metadata, self.language]
        text = json.dumps([options, state], sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=16).hexdigest()


class NamedReaders(DocumentOptions):
    """Options of a place that has permissions of its own.

    Nobody becomes a reader of it because a key was forgotten.
    """

    @model_validator(mode="after")
    def _require_readers(self) -> Self:
        if self.permissions is None and "acl" not in self.model_fields_set:
            raise ValueError("name the readers: acl, or permissions with a feed")
        return self


Spec = TypeVar("Spec", bound=Section)


def validate_spec(model: type[Spec], kind: str, values: Mapping[str, Any], *, subject: str = "source") -> Spec:
    """Validate the values of a spec.

    Args:
        model: The class of the spec.
        kind: Its kind, for messages.
        subject: What the spec describes, for messages.

    Raises:
        RequestError: Any value is invalid; one line lists all faults.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        faults = "; ".join(dict.fromkeys(_fault(model, detail) for detail in error.errors()))
    raise RequestError(one_line(f"{subject} of kind {kind}: {faults}"))


def _fault(model: type[Section], detail: ErrorDetails) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(key, model.model_fields, n=1)
        return f"{key} is not a key of it: " + (f"did you mean {near[0]}?" if near else f"known are {_keys(model)}")
    if detail["type"] == "missing":
        return f"{key} is missing: give it"
    if detail["type"] == "value_error":
        return f"{key} is {show(detail['input'])}: {detail['ctx']['error']}"
    return f"{key} is {show(detail['input'])}: it must {detail['msg'].partition(' should ')[2] or detail['msg']}"


def _keys(model: type[Section]) -> str:
    return ", ".join(["kind", *model.model_fields])
