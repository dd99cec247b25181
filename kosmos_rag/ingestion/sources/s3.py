"""Objects under a prefix of an S3-compatible bucket, as a source."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Literal

from pydantic import Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, ConfigError, SourceError, first_line
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.files import attach_content, read_content
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.spec import DocumentOptions, NotBlank

_BLOCK_BYTES = 1024 * 1024
_NOT_FOUND = ("NoSuchBucket", "404")
_FORBIDDEN = (
    "AccessDenied", "401", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
    "TokenRefreshRequired", "AllAccessDisabled",
)  # fmt: skip
_BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "500", "503")


class S3Spec(DocumentOptions):
    """A bucket and a prefix.

    Credentials come from boto3's own chain, and are never part of a spec.
    """

    kind: Literal["s3"] = "s3"
    bucket: NotBlank
    prefix: str = ""
    endpoint_url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")


class S3Source:
    """The objects of a bucket under a prefix.

    Folder markers are skipped.
    """

    def __init__(self, spec: S3Spec, settings: IngestionSettings) -> None:
        """Create the client; raises ConfigError without a configured boto3."""
        self._spec = spec
        self._root = f"s3://{spec.bucket}/"
        self._settings = settings
        self._client = _client(spec)

    def listing(self) -> Listing:
        """Start a listing, in the order of the keys.

        The store sends a thousand at a time.
        """
        prefix = self._root + self._spec.prefix
        return Listing(prefix, self._entries(), lambda source: source.startswith(prefix))

    def load(self, entry: Entry) -> SourceDocument:
        """Read the object of an entry. Raises SourceError."""
        with _translate_errors(entry.source):
            answer = self._client.get_object(Bucket=self._spec.bucket, Key=entry.locator["key"])
            with closing(answer["Body"]) as body:
                content = read_content(body.iter_chunks(_BLOCK_BYTES), entry.source, self._settings)
        return attach_content(self._spec.document(entry.source, b""), content)

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._spec.bucket, Prefix=self._spec.prefix
        )
        with _translate_errors(self._root + self._spec.prefix):
            for page in pages:
                for listed_object in page.get("Contents", ()):
                    if not (listed_object["Key"].endswith("/") and listed_object["Size"] == 0):
                        yield self._entry(listed_object["Key"], listed_object["ETag"])

    def _entry(self, key: str, etag: str) -> Entry:
        return Entry(source=self._root + key, etag=self._spec.compute_etag(etag), locator={"key": key})


def _client(spec: S3Spec) -> Any:
    require_extra("s3", "a source of kind s3", "boto3")
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.client("s3", endpoint_url=spec.endpoint_url)
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(
            f"boto3 cannot ask s3://{one_line(spec.bucket)}: {one_line(first_line(error))}; correct its configuration"
        ) from error


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Raise errors of boto3 as SourceError."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        CredentialRetrievalError,
        NoCredentialsError,
        ParamValidationError,
        SSOError,
        TokenRetrievalError,
    )

    printable = one_line(name)
    try:
        yield
    except ClientError as error:
        raise _refusal(printable, str(error.response["Error"]["Code"]), first_line(error)) from error
    except NoCredentialsError as error:
        raise SourceError(
            "no_permission", f"{printable} cannot be read: no credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        ) from error
    except (CredentialRetrievalError, TokenRetrievalError, SSOError) as error:  # of a session that has ended
        reason = one_line(first_line(error))
        raise SourceError("no_permission", f"{printable} cannot be read: {reason}; renew the credentials") from error
    except ParamValidationError as error:
        raise SourceError(
            "unreadable", f"{printable} is not a valid name: {one_line(str(error))}; correct it"
        ) from error
    except BotoCoreError as error:
        raise SourceError(
            "unavailable", f"{printable} cannot be reached: {one_line(first_line(error))}; try again later"
        ) from error


def _refusal(name: str, code: str, message: str) -> SourceError:
    message = one_line(message)
    if code == "NoSuchKey":
        return SourceError(GONE, f"{name} was removed after it was listed")
    if code in _NOT_FOUND:
        return SourceError("not_found", f"{name} does not exist ({message}); check bucket and key")
    if code in _FORBIDDEN:
        return SourceError("no_permission", f"{name} may not be read ({message}); check the credentials and the policy")
    if code in _BUSY:
        return SourceError("unavailable", f"{name} cannot be read now ({message}); try again later")
    if code == "InvalidObjectState":  # of an archive; it has the same mark once it was restored
        return SourceError("refused", f"{name} is in an archive ({message}); restore it, or leave it out")
    # An object that the store cannot give now has the same mark once it can.
    return SourceError("unavailable", f"{name} cannot be read: {message}; look into the store")
