"""A mailbox of an IMAP server (RFC 9051, RFC 3501): folders, UIDs and mails."""

import re
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from imaplib import IMAP4
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.imap_login import Login

if TYPE_CHECKING:
    from imapclient import IMAPClient

TIMEOUT_S = 60.0
"""Seconds for a response of the server."""

_WINDOW = 50_000
"""Mails of one search: the library refuses a line of more than a megabyte."""

_NOT_SELECTABLE = frozenset({b"\\noselect", b"\\nonexistent"})
_RESPONSE_CODE = re.compile(r"(?:\w+ failed: )?\[([A-Z-]+)[\] ]", re.IGNORECASE)
_REFUSED_LOGIN = frozenset({"", "AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED", "EXPIRED"})
"""Response codes (RFC 9051, section 7.1) of a password that the server does not accept; empty: none."""
_FOLDER_CODES = {"": "not_found", "NONEXISTENT": "not_found", "NOPERM": "no_permission"}
"""Codes of a folder that the server does not open, by its response code; others may pass."""
_T = TypeVar("_T")


class FolderError(SourceError):
    """The server does not open a folder; others can still be read."""


class MailFolder(NamedTuple):
    """A folder of a mailbox."""

    name: str
    path: str
    """Its name with a slash between folders."""
    attributes: frozenset[bytes]
    """In lower case, such as `\\trash`."""


class FolderUids(NamedTuple):
    """The UIDs of a folder.

    A mail never changes, so UIDVALIDITY and UID identify its content.
    """

    state: tuple[int, int, int, int]
    """UIDVALIDITY, UIDNEXT, number of mails, HIGHESTMODSEQ (RFC 7162; 0 for none): a change changes one of them."""
    ranges: tuple[tuple[int, int], ...]
    """First and last UID of each range, without mails that are marked as deleted."""


class Mailbox:
    """A connection to a mailbox, which reads only. Thread-safe."""

    def __init__(self, host: str, port: int, *, starttls: bool, user: str, login: Login) -> None:
        """Prepare a connection; the first call opens it.

        Args:
            starttls: encryption starts by a command; without it no password is sent.
            login: the credentials of the user.
        """
        self._client: IMAPClient | None = None
        self._server, self._starttls = (host, port), starttls
        self._user, self._login = user, login
        self._title = one_line(f"{host}:{port}")
        self._context = ssl.create_default_context()
        self._lock = threading.Lock()
        self._selected: tuple[str, int] | None = None

    def __del__(self) -> None:
        self._disconnect()

    def list_folders(self) -> list[MailFolder]:
        """Return the folders that can hold mails. Raises SourceError."""

        def list_all(client: "IMAPClient") -> Iterator[MailFolder]:
            for flags, delimiter, name in client.list_folders():
                path = name.replace(delimiter.decode(), "/") if delimiter else name
                yield MailFolder(name, path, frozenset(flag.lower() for flag in flags))

        folders = self._run(lambda client: list(list_all(client)))
        return [folder for folder in folders if not folder.attributes & _NOT_SELECTABLE]

    def list_uids(self, folder: str, previous: FolderUids | None) -> FolderUids:
        """Return the UIDs of a folder.

        Args:
            previous: the result of the last pass; it is returned if nothing has changed since.

        Raises:
            FolderError: the server does not open or search the folder.
            SourceError: it cannot be reached.
        """

        def search(client: "IMAPClient") -> FolderUids:
            state = self._select(client, folder)
            if previous is not None and state == previous.state and state[-1]:
                return previous
            mails, ranges = state[2], list[tuple[int, int]]()
            # From the last: if a mail is removed meanwhile, those after it move down, and none is missed.
            for first in reversed(range(1, mails + 1, _WINDOW)):
                last = str(first + _WINDOW - 1) if first + _WINDOW <= mails else "*"
                with self._translate_refusal(folder):
                    uids = client.search([f"{first}:{last}", "UNDELETED"])
                ranges = _merge([*((uid, uid) for uid in uids), *ranges])
            return FolderUids(state, tuple(ranges))

        return self._run(search)

    def fetch(
        self, folder: str, uid_validity: int, uid: int, *, max_bytes: int
    ) -> tuple[bytes, datetime | None] | None:
        """Return the first bytes of a mail, and when it arrived.

        The result is None if the mail does not exist.

        Args:
            folder: as the server names it.
            uid_validity: the UIDVALIDITY of the folder when the mail was listed.
            max_bytes: the rest of a larger mail is not read.

        Raises:
            SourceError: the server refuses the folder, or cannot be reached.
        """
        # PEEK: it is not marked as read.
        items = ["INTERNALDATE", f"BODY.PEEK[]<0.{max_bytes}>"]

        def fetch_mail(client: "IMAPClient") -> Mapping[bytes, Any] | None:
            # A folder that is open already may not show a mail that has just arrived.
            mail = client.fetch([uid], items).get(uid) if self._selected == (folder, uid_validity) else None
            if mail is None and self._select(client, folder)[0] == uid_validity:
                mail = client.fetch([uid], items).get(uid)
            return mail

        mail = self._run(fetch_mail)
        return None if mail is None else (mail.get(b"BODY[]<0>") or b"", mail.get(b"INTERNALDATE"))

    def _run(self, action: "Callable[[IMAPClient], _T]") -> _T:
        """Run an action, and repeat it on a new connection if the old one is closed."""
        with self._lock, self._translate_errors():
            if self._client is not None:
                with suppress(IMAP4.abort, OSError):
                    return action(self._client)
                self._disconnect()
            self._client = self._connect()
            return action(self._client)

    def _connect(self) -> "IMAPClient":
        from imapclient import IMAPClient

        host, port = self._server
        client = IMAPClient(host, port, ssl=not self._starttls, ssl_context=self._context, timeout=TIMEOUT_S)
        try:
            self._log_in(client)
        except BaseException:
            with suppress(OSError):
                client.shutdown()
            raise
        return client

    def _log_in(self, client: "IMAPClient") -> None:
        from imapclient.exceptions import LoginError

        client.normalise_times = False
        if self._starttls:
            client.starttls(self._context)
        try:
            self._login.log_in(client, self._user)
        except LoginError as error:
            # The library raises it for a lost connection too.
            if isinstance(error.__context__, IMAP4.abort):
                raise
            if not any(client.has_capability(f"AUTH={name}") for name in self._login.mechanisms):
                names = " or ".join(self._login.mechanisms)
                reason = f"{self._title} does not offer SASL {names} ({one_line(str(error))})"
                raise SourceError("refused", f"{reason}; turn it on there, or use a server that offers it") from error
            if _read_code(error) not in _REFUSED_LOGIN:
                raise
            reason = f"{self._title} refuses {self._login.title} ({one_line(str(error))})"
            raise SourceError("no_permission", f"{reason}; renew it") from error
        if client.has_capability("ENABLE") and client.has_capability("CONDSTORE"):
            client.enable("CONDSTORE")

    def _disconnect(self) -> None:
        client, self._client, self._selected = self._client, None, None
        if client is not None:
            with suppress(OSError):
                client.shutdown()

    def _select(self, client: "IMAPClient", folder: str) -> tuple[int, int, int, int]:
        self._selected = None
        with self._translate_refusal(folder):
            reply = client.select_folder(folder, readonly=True)
        validity, following, mails, modseq = (
            reply.get(key, 0) for key in (b"UIDVALIDITY", b"UIDNEXT", b"EXISTS", b"HIGHESTMODSEQ")
        )
        self._selected = folder, validity
        return validity, following, mails, modseq

    @contextmanager
    def _translate_refusal(self, folder: str) -> Iterator[None]:
        try:
            yield
        except IMAP4.abort:
            raise
        except IMAP4.error as error:
            reason = f"{self._title} does not open the folder {one_line(folder)} ({one_line(str(error))})"
            code = _FOLDER_CODES.get(_read_code(error), "unavailable")
            raise FolderError(code, f"{reason}; let {one_line(self._user)} read it, or name it in exclude") from error

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate of {self._title} is not trusted ({error.verify_message})"
            raise SourceError("refused", f"{reason}; name its authority in SSL_CERT_FILE") from error
        except (IMAP4.error, OSError, ValueError) as error:
            self._disconnect()
            reason = one_line(str(error)) or type(error).__name__
            raise SourceError("unavailable", f"{self._title} cannot be read ({reason}); try again later") from error


def _read_code(error: IMAP4.error) -> str:
    """Return the response code of a reply in upper case; empty without one."""
    code = _RESPONSE_CODE.match(str(error))
    return code[1].upper() if code else ""


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged
