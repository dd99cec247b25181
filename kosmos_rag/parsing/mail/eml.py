"""Parse mails: fields, texts in order, forwarded mails and attachments."""

import mimetypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from email.message import Message

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.mail import mime
from kosmos_rag.parsing.mail.msg import read_msg
from kosmos_rag.parsing.text.decode import Decoded
from kosmos_rag.parsing.web.cms import extract_signed_content
from kosmos_rag.parsing.web.html import parse_html

ParsePart = Callable[[SourceDocument], ParsedDocument]
"""Parses an attachment by its own parser."""

UNREADABLE = "attachment_unreadable"
_SHOWN = ("From", "To", "Cc", "Date")
_SKIPPED_TYPES = ("image/", "audio/", "video/", "font/")
_SIGNATURES = frozenset(
    {
        *("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"),
        *("application/pgp-keys", "application/x-pkcs7-certificates"),
    }
)
_CMS = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_REPORTS = frozenset({"message/delivery-status", "message/disposition-notification", "message/feedback-report"})
_MAILS = frozenset({"message/rfc822", "message/global"})
_BODIES = frozenset({"text/plain", "text/html"})
_CALENDAR = "text/calendar"
_EVENT_ID = re.compile(rb"^UID:(\S+)", re.MULTILINE | re.IGNORECASE)
_ENCODED_LINES = re.compile(
    r"(?:^[A-Za-z0-9+/]{60,}={0,2}[ \t]*\n?){4,}(?:^[A-Za-z0-9+/]+={0,2}[ \t]*$)?", re.MULTILINE
)
_MBOX_START = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\n]*\n(?=[!-9;-~]+[ \t]*:)")
_ESCAPED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_PGP_BLOCK = re.compile(r"^-----BEGIN PGP ([A-Z ]+)-----$.*?(?:^-----END PGP \1-----$|\Z)", re.MULTILINE | re.DOTALL)
"""Inline PGP in the text of a mail: RFC 9580, sections 6.2 and 7."""
_PGP_SIGNED = re.compile(r"^-----BEGIN PGP SIGNED MESSAGE-----\n(?:[A-Za-z]+: [^\n]*\n)*\n?", re.MULTILINE)
_PGP_DASHES = re.compile(r"^- (?=-|From )", re.MULTILINE)
_PGP_ENCRYPTED = "MESSAGE"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """The parts of a mail by kind, in their order."""

    limits: OutputLimits
    bodies: list[ParsedDocument] = field(default_factory=list)
    mails: list[Message] = field(default_factory=list)
    attachments: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def extend(self, other: "_Parts", *, bodies: bool = True) -> None:
        """Add the parts of another one."""
        self.bodies.extend(other.bodies if bodies else ())
        self.mails.extend(other.mails)
        self.attachments.extend(other.attachments)
        self.notes.extend(other.notes)


def parse_eml(data: bytes, limits: OutputLimits, parse_part: ParsePart) -> ParsedDocument:
    """Parse a mail, with its subject as title.

    Of alternatives the plain text is preferred to the HTML text. Attachments and forwarded mails are sections of their
    own; one that cannot be read is a note.

    Args:
        parse_part: parses an attachment.

    Raises:
        ParseError: `encrypted`, or `too_large`.
    """
    message = mime.read_message(data)
    composition = Composition(limits)
    _Mail(composition, limits, parse_part).add(message, level=1)
    return composition.build(media_types.EML, mime.header(message, "Subject") or None)


def parse_msg(data: bytes, limits: OutputLimits, parse_part: ParsePart) -> ParsedDocument:
    """Parse an Outlook message as a mail.

    Args:
        parse_part: parses an attachment.

    Raises:
        ParseError: `encrypted`, `too_large`, or `unsupported` without the extra `msg`.
    """
    message, unread = read_msg(data)
    composition = Composition(limits)
    for name in unread:
        composition.add_note(UNREADABLE, f"the attached message {name!r} was left out; save it as a file of its own")
    _Mail(composition, limits, parse_part).add(message, level=1)
    return composition.build(media_types.MSG, mime.header(message, "Subject") or None)


def parse_mbox(data: bytes, limits: OutputLimits, parse_part: ParsePart) -> ParsedDocument:
    """Parse a mailbox in mbox format (RFC 4155).

    Each mail is a section.

    Args:
        parse_part: parses an attachment.

    Raises:
        ParseError: `encrypted` if no mail is readable, or `too_large`.
    """
    composition = Composition(limits)
    mail = _Mail(composition, limits, parse_part)
    envelopes = list(_MBOX_START.finditer(data))
    starts = [envelope.end() for envelope in envelopes] or [0]
    ends = [*(envelope.start() for envelope in envelopes[1:]), len(data)]
    failures = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1):
        message = mime.read_message(_ESCAPED_FROM.sub(rb"\1", data[start:end]))
        try:
            mail.add(message, level=1, title=f"Mail {number}")
        except ParseError as error:
            if error.code != "encrypted":
                raise
            failures.append(error)
            composition.add_note("encrypted_part", f"mail {number} is encrypted and was left out")
    if len(failures) == len(starts):
        raise failures[0]
    return composition.build(media_types.MBOX, None)


def parse_mhtml(data: bytes, limits: OutputLimits, parse_part: ParsePart) -> ParsedDocument:
    """Parse the first HTML part of a saved page (MHTML, RFC 2557).

    Args:
        parse_part: parses an attachment, if there is no HTML part.
    """
    message = mime.read_message(data)
    for part in message.walk():
        if mime.content_type(part) == "text/html" and (decoded := mime.part_text(part)):
            parsed = parse_html(decoded.text.encode(), limits)
            title = parsed.title or mime.header(message, "Subject") or None
            return replace(parsed, media_type=media_types.MHTML, title=title)
    return replace(parse_eml(data, limits, parse_part), media_type=media_types.MHTML)


class _Mail:
    """Adds mails to a composition."""

    def __init__(self, composition: Composition, limits: OutputLimits, parse_part: ParsePart) -> None:
        self._composition = composition
        self._limits = limits
        self._parse_part = parse_part

    def add(self, message: Message, *, level: int, title: str = "") -> None:
        """Add a mail as a section.

        Raises:
            ParseError: `encrypted`; nothing was added then.
        """
        parts = _Parts(limits=self._limits)
        _collect(message, parts, depth=0)
        composition = self._composition
        composition.add_heading(level, mime.header(message, "Subject") or title)
        composition.add_block("\n".join(_header_lines(message)))
        for body in parts.bodies:
            composition.add_document(body, parent_level=level)
        for note in parts.notes:
            composition.add_note(UNREADABLE, note)
        if names := [name for part in parts.attachments if (name := mime.filename(part))]:
            composition.add_block(f"Attachments: {', '.join(names)}")
        self._add_mails(parts.mails, level + 1)
        self._add_attachments(parts.attachments, level + 1)

    def _add_mails(self, mails: list[Message], level: int) -> None:
        for mail in mails:
            subject = mime.header(mail, "Subject") or "Forwarded mail"
            if level > bounds.MAX_NESTED_MAILS:
                self._composition.add_note(UNREADABLE, f"the mail {subject!r} is too deep in other mails")
                continue
            try:
                self.add(mail, level=level, title="Forwarded mail")
            except ParseError as error:
                if error.code == "too_large":  # the whole text, of which this mail is a part
                    raise
                self._note(error, f"the mail {subject!r}")

    def _add_attachments(self, attachments: list[Message], level: int) -> None:
        readable = [part for part in attachments if not mime.content_type(part).startswith(_SKIPPED_TYPES)]
        calendars = [_read_event_ids(part) for part in readable if (mime.filename(part) or "").lower().endswith(".ics")]
        readable = [
            part
            for part in readable  # without an invitation that is attached again with a name
            if mime.content_type(part) != _CALENDAR or mime.filename(part) or _read_event_ids(part) not in calendars
        ]
        if len(readable) > bounds.MAX_MAIL_ATTACHMENTS:
            message = f"only {bounds.MAX_MAIL_ATTACHMENTS} of {len(readable)} attachments were read"
            self._composition.add_note(UNREADABLE, message)
        for number, part in enumerate(readable[: bounds.MAX_MAIL_ATTACHMENTS], start=1):
            name = mime.filename(part) or f"Attachment {number}"
            try:
                parsed = self._parse_part(_build_attachment(part, name))
            except ParseError as error:
                self._note(error, f"the attachment {name!r}")
                continue
            document = replace(parsed, text=parsed.text.rstrip())
            self._composition.add_document(document, parent_level=level, attachment=clean_title(name))

    def _note(self, error: ParseError, subject: str) -> None:
        if error.code != "empty":
            self._composition.add_note(UNREADABLE, f"{subject} cannot be read ({error.code}): {error}")


def _read_event_ids(part: Message) -> frozenset[bytes]:
    """Return the identifiers of the events in a calendar, else its lines."""
    data = b"\n".join(mime.part_bytes(part).split())
    return frozenset(_EVENT_ID.findall(data) or data.split())


def _header_lines(message: Message) -> list[str]:
    return [f"{name}: {value}" for name in _SHOWN if (value := mime.header(message, name))]


def _build_attachment(part: Message, name: str) -> SourceDocument:
    data = mime.part_bytes(part)
    if mime.content_type(part).startswith("text/") and (decoded := mime.part_text(part)):
        data = decoded.text.encode()
    extension = "" if "." in name else mimetypes.guess_extension(mime.content_type(part)) or ""
    return SourceDocument(source=f"{name}{extension}", data=data)


def _collect(part: Message, parts: _Parts, *, depth: int) -> None:
    """Sort what a part contains into `parts`.

    Raises:
        ParseError: `encrypted`.
    """
    kind = mime.content_type(part)
    if depth > bounds.MAX_MAIL_PART_LEVELS:
        parts.notes.append(
            f"parts of the mail that are nested more than {bounds.MAX_MAIL_PART_LEVELS} deep were left out"
        )
    elif kind in _MAILS:
        if (mail := mime.read_inner_message(part)) is not None:
            parts.mails.append(mail)
    elif kind in _REPORTS:
        parts.bodies.append(_plain(Decoded(text=_report(part), encoding="ascii")))
    elif part.is_multipart():
        _collect_multipart(part, kind, parts, depth=depth + 1)
    elif kind in _CMS or (mime.filename(part) or "").lower().endswith(".p7m"):
        _collect_signed(part, parts, depth=depth + 1)
    elif kind == "application/pgp-encrypted":
        raise _encrypted_error("PGP")
    elif _is_body(part, kind):
        _collect_body(part, kind, parts, depth=depth)
    elif kind not in _SIGNATURES:
        parts.attachments.append(part)


def _collect_multipart(part: Message, kind: str, parts: _Parts, *, depth: int) -> None:
    children = [child for child in part.get_payload() if isinstance(child, Message)]
    if kind == "multipart/encrypted":
        raise _encrypted_error("S/MIME or PGP")
    if kind == "multipart/alternative":
        _collect_alternative(children, parts, depth=depth)
        return
    # Of a signed mail, what follows the content is the signature.
    for child in children[:1] if kind == "multipart/signed" else children:
        _collect(child, parts, depth=depth)


def _collect_alternative(children: list[Message], parts: _Parts, *, depth: int) -> None:
    """Collect the plain text, else the HTML text, else any other.

    Attachments may be in any alternative.
    """
    alternatives = []
    for child in children:
        alternative = _Parts(limits=parts.limits)
        _collect(child, alternative, depth=depth)
        alternatives.append((child, alternative))
    with_text = [alternative for _, alternative in alternatives if alternative.bodies]
    plain = [alternative for alternative in with_text if alternative.bodies[0].media_type == media_types.TEXT]
    chosen = next(iter([*plain, *with_text]), None)
    for child, alternative in alternatives:
        is_invitation = mime.content_type(child) == _CALENDAR  # programs show it with the text
        if alternative is chosen or child.is_multipart() or chosen is None or is_invitation:
            parts.extend(alternative, bodies=alternative is chosen)


def _collect_signed(part: Message, parts: _Parts, *, depth: int) -> None:
    if mime.parameter(part, "smime-type") == "certs-only":
        return
    try:
        content = extract_signed_content(mime.part_bytes(part))
    except (IndexError, ValueError) as error:
        raise ParseError("corrupt", f"the S/MIME part of the mail is broken ({error}); save the mail again") from error
    if content is None:
        raise _encrypted_error("S/MIME")
    _collect(mime.read_message(content), parts, depth=depth)


def _collect_body(part: Message, kind: str, parts: _Parts, *, depth: int) -> None:
    decoded = mime.part_text(part)
    if decoded is None:
        return
    if (multipart := mime.recover_parts(part, decoded.text)) is not None:
        _collect(multipart, parts, depth=depth + 1)
        return
    if kind == "text/html":
        parsed = parse_html(decoded.text.encode(), parts.limits)
        body = replace(parsed, notes=(*decoded.notes, *parsed.notes))
    else:
        text, encrypted = _strip_armor(decoded.text)
        if encrypted:
            raise _encrypted_error("PGP")
        if mime.parameter(part, "format") == "flowed":
            text = mime.unflow(text, delete_spaces=mime.parameter(part, "delsp") == "yes")
        text, count = _ENCODED_LINES.subn("", text)
        if count:
            parts.notes.append("encoded data in the text was left out")
        body = _plain(replace(decoded, text=text))
    if body.text and not body.text.isspace():
        parts.bodies.append(body)


def _strip_armor(text: str) -> tuple[str, bool]:
    """Remove signatures, keys and encrypted blocks of PGP from a text.

    The second value is whether most of the text is encrypted.
    """
    if "-----BEGIN PGP " not in text:
        return text, False
    if _PGP_SIGNED.search(text):
        text = _PGP_DASHES.sub("", _PGP_SIGNED.sub("", text))
    blocks = list(_PGP_BLOCK.finditer(text))
    rest = _PGP_BLOCK.sub("", text)
    encrypted = sum(len(block[0]) for block in blocks if block[1] == _PGP_ENCRYPTED)
    return rest, encrypted > len(rest.strip())


def _plain(decoded: Decoded) -> ParsedDocument:
    text = decoded.text.strip("\n").rstrip()
    return ParsedDocument(text=text, media_type=media_types.TEXT, notes=decoded.notes)


def _is_body(part: Message, kind: str) -> bool:
    """Return whether a part is a text of the mail itself.

    Without a type it is plain text.
    """
    if mime.disposition(part) == "attachment" or (mime.disposition(part) and mime.filename(part)):
        return False
    return kind in _BODIES or kind.startswith("multipart/") or kind == "text/rfc822-headers"


def _report(part: Message) -> str:
    """Return the fields of a delivery status or another report.

    One block for each recipient.
    """
    payload = part.get_payload()
    blocks = [block for block in payload if isinstance(block, Message)] if isinstance(payload, list) else []
    fields = ("\n".join(f"{name}: {mime.header(block, name)}" for name in block) for block in blocks)
    return "\n\n".join(text for text in fields if text)


def _encrypted_error(kind: str) -> ParseError:
    return ParseError("encrypted", f"the mail is encrypted ({kind}); save it decrypted")
