"""Parse a mail: who wrote what to whom and when, the body, the names of what is attached."""

from email import message_from_bytes, policy
from email.message import EmailMessage

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.clean import clean_title
from kosmos_rag.ingestion.parsing.compose import Composition
from kosmos_rag.ingestion.parsing.decode import decode
from kosmos_rag.ingestion.parsing.html import parse_html
from kosmos_rag.ingestion.parsing.limits import OutputLimits

_SHOWN = ("From", "To", "Cc", "Date")


def parse_eml(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a mail, with its subject as title.

    The plain body is preferred to the HTML body.

    Raises:
        ParseError: `too_large`, or what the body's own parser raises.
    """
    message = message_from_bytes(data, _class=EmailMessage, policy=policy.default)
    subject = clean_title(str(message.get("Subject", "")))
    composition = Composition(limits)
    composition.heading(1, subject or "")
    composition.block("\n".join(_header_lines(message)))
    _add_body(composition, message, limits)
    names = [name for part in message.iter_attachments() if (name := clean_title(part.get_filename() or ""))]
    if names:
        composition.block(f"Attachments: {', '.join(names)}")
    return composition.parsed(media_types.EML, subject)


def _header_lines(message: EmailMessage) -> list[str]:
    values = ((name, clean_title(str(message.get(name, "")))) for name in _SHOWN)
    return [f"{name}: {value}" for name, value in values if value]


def _add_body(composition: Composition, message: EmailMessage, limits: OutputLimits) -> None:
    body = message.get_body(preferencelist=("plain", "html"))
    text = _decoded(body) if isinstance(body, EmailMessage) else ""
    if not text or text.isspace():
        return
    if body is not None and body.get_content_type() == "text/html":
        composition.document(parse_html(text.encode(), limits))
    else:
        composition.block(text)


def _decoded(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes) or not payload.strip():
        return ""
    try:
        return payload.decode(part.get_content_charset() or "ascii")
    except (LookupError, UnicodeDecodeError):  # no charset, or not the one it is written in
        return decode(payload)
