"""What every kind of source is told about its documents, and how a spec that cannot be used is named."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.config.values import Section
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, SourceDocument

NotBlank = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
"""Text that says something, and that PostgreSQL can hold."""


def _refuse_blank(path: Any) -> Any:
    # Path("") is the working folder, which nobody means by leaving a value empty.
    if isinstance(path, str) and not path.strip():
        raise ValueError("it must name a file or a folder")
    return path


SourcePath = Annotated[Path, BeforeValidator(_refuse_blank)]
"""A path; a relative one counts from the working folder of the process that opens the source."""


class DocumentOptions(Section):
    """What is given to every document of a source."""

    acl: tuple[NotBlank, ...] = Field(default=(EVERYONE,), min_length=1)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    language: str | None = None

    def document(
        self, source: str, data: bytes, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> SourceDocument:
        """Return a document with these options.

        Its own metadata wins over that of the source.
        """
        return SourceDocument(
            source=source,
            data=data,
            title=title,
            metadata={**self.metadata, **(metadata or {})},
            acl=self.acl,
            language=self.language,
        )

    def compute_etag(self, *state: object) -> str:
        """Return an etag that changes with the state of a document, and with what is given to all of them.

        Without the latter, readers that were taken out of a spec would keep what they could read.
        """
        given = [sorted(self.acl), self.metadata, self.language]
        text = json.dumps([given, state], sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=16).hexdigest()


Spec = TypeVar("Spec", bound=Section)


def validated(model: type[Spec], kind: str, values: Mapping[str, Any]) -> Spec:
    """Return the spec as its model.

    Raises RequestError, one line for all faults.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        faults = "; ".join(dict.fromkeys(_fault(model, detail) for detail in error.errors()))
    raise RequestError(one_line(f"source of kind {kind}: {faults}"))


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
