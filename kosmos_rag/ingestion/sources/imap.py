"""The mails of a mailbox as a source."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parseaddr
from typing import Annotated, Any, Literal

from pydantic import Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.files import PassCache, too_large_error
from kosmos_rag.ingestion.sources.gitignore import Patterns
from kosmos_rag.ingestion.sources.imap_login import ImapCredentials, create_login
from kosmos_rag.ingestion.sources.imap_mailbox import FolderError, FolderUids, Mailbox, MailFolder
from kosmos_rag.ingestion.sources.listing import Entry, Listing, build_failure
from kosmos_rag.ingestion.sources.spec import Name, NamedReaders
from kosmos_rag.parsing.mail import mime

_PORTS = {"tls": 993, "starttls": 143}
_LEFT_OUT = frozenset({b"\\all", b"\\drafts", b"\\junk", b"\\trash"})
"""Folders with these attributes (RFC 6154) are read only if the spec includes them."""
_HEAD_BYTES = 256 * 1024
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_MESSAGE_ID = re.compile(r"<[^<>\s]+>")


class ImapSpec(NamedReaders, ImapCredentials):
    """A mailbox, and which folders of it."""

    kind: Literal["imap"] = "imap"
    name: Name
    """Begins the names of the documents: `imap://name/INBOX/17.eml`."""
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$")]
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] | None = None
    """None: 993, with STARTTLS 143."""
    security: Literal["tls", "starttls"] = "tls"
    include: tuple[str, ...] = ()
    """Patterns of folders as in a .gitignore; empty: all but drafts, junk, trash and copies of all mails."""
    exclude: tuple[str, ...] = ()


class ImapSource:
    """The mails of a mailbox.

    A pass asks for UIDs, and where the server has CONDSTORE only for those of changed folders.
    """

    def __init__(self, spec: ImapSpec, settings: IngestionSettings) -> None:
        """Compile the patterns; nothing is sent yet.

        Raises RequestError if a pattern is malformed, ConfigError if the variable is not set.
        """
        require_extra("imap", "a source of kind imap", "imapclient")
        self._spec = spec
        self._patterns = Patterns(spec.include, spec.exclude)
        self._max_bytes = settings.max_file_bytes
        self._prefix = f"imap://{spec.name}/"
        self._mailbox = Mailbox(
            spec.host, spec.port or _PORTS[spec.security], starttls=spec.security == "starttls",
            user=spec.user,
            login=create_login(spec, settings),
        )  # fmt: skip
        self._cache = PassCache("imap", spec.name, spec.host, spec.port, spec.user)

    def listing(self) -> Listing:
        """Start a pass, folder by folder and in the order of UIDs."""
        return Listing(self._prefix, self._entries(), self._covers, prefix=self._prefix)

    def load(self, entry: Entry) -> SourceDocument:
        """Read the mail of an entry. Raises SourceError."""
        folder, uid_validity, uid = (entry.locator[key] for key in ("folder", "uid_validity", "uid"))
        mail = self._mailbox.fetch(folder, uid_validity, uid, max_bytes=self._max_bytes + 1)
        if mail is None:
            raise SourceError(GONE, f"{entry.source} was removed after it was listed")
        data, received = mail
        if len(data) > self._max_bytes:
            raise too_large_error(one_line(entry.source), self._max_bytes)
        return self._spec.document(entry.source, data, metadata=_describe(data, received))

    def _covers(self, source: str) -> bool:
        path = source.removeprefix(self._prefix)
        return path != source and self._admits(path.rpartition("/")[0])

    def _admits(self, folder: str) -> bool:
        return self._patterns.admit(f"{folder}/mail", folder=False)

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        previous = _read_uids(self._cache.read())
        uids: dict[str, FolderUids] = {}
        for folder in self._mailbox.list_folders():
            if self._admits(folder.path) and (self._spec.include or not folder.attributes & _LEFT_OUT):
                try:
                    uids[folder.name] = self._mailbox.list_uids(folder.name, previous.get(folder.name))
                except FolderError as error:
                    yield build_failure(self._prefix + folder.path, error)
                    continue
                yield from self._mails(folder, uids[folder.name])
        self._cache.write(uids)

    def _mails(self, folder: MailFolder, uids: FolderUids) -> Iterator[Entry]:
        uid_validity = uids.state[0]
        for first, last in uids.ranges:
            for uid in range(first, last + 1):
                yield Entry(
                    source=f"{self._prefix}{folder.path}/{uid}.eml",
                    etag=self._spec.compute_etag(uid_validity, uid),
                    locator={"folder": folder.name, "uid_validity": uid_validity, "uid": uid},
                )


def _read_uids(stored: Mapping[str, Any]) -> dict[str, FolderUids]:
    """Return what the last pass found; empty if it is malformed."""
    try:
        return {
            folder: FolderUids(tuple(state), tuple((first, last) for first, last in ranges))
            for folder, (state, ranges) in stored.items()
        }
    except (ValueError, TypeError):
        return {}


def _describe(data: bytes, received: datetime | None) -> dict[str, str]:
    """Return the metadata of a mail.

    Its thread is the first mail that it refers to, else itself.
    """
    message = mime.read_message(_HEAD_END.split(data[:_HEAD_BYTES], maxsplit=1)[0] + b"\r\n\r\n")
    ids = {
        name: _MESSAGE_ID.findall(mime.header(message, name)) for name in ("References", "In-Reply-To", "Message-ID")
    }
    thread = next((values[0] for values in ids.values() if values), "")
    fields = {
        "thread": thread,
        "message_id": next(iter(ids["Message-ID"]), ""),
        "from": parseaddr(mime.header(message, "From"))[1].lower(),
        "updated": "" if received is None else received.isoformat(),
    }
    return {name: value for name, value in fields.items() if value}
