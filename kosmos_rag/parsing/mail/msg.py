"""Read Outlook messages (MSG) by python-oxmsg, as mails."""

import re
from email.message import EmailMessage, Message
from email.utils import format_datetime
from enum import IntEnum
from functools import partial
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.parsing.clean import clean, clean_title
from kosmos_rag.parsing.mail import mime

_CODE_PAGES = {65001: "utf-8", 20127: "ascii", 28591: "latin-1"}


class _Property(IntEnum):
    """Identifiers of properties of a message, as MS-OXPROPS has them."""

    HTML = 0x1013
    INTERNET_CODE_PAGE = 0x3FDE


_MEDIA_TYPE = re.compile(r"[a-z0-9-]{1,60}/[a-z0-9.+-]{1,100}")


def read_msg(data: bytes) -> tuple[Message, list[str]]:
    """Return a message as a mail, and names of attached messages.

    Attached messages are not read.

    Raises:
        ParseError: `unsupported` without the extra `msg`, or `encrypted`.
    """
    require_extra(
        "msg",
        "an Outlook message (MSG)",
        "oxmsg",
        alternative="save it as EML",
        error=partial(ParseError, "unsupported"),
    )
    from oxmsg import Message as OutlookMessage

    stored = OutlookMessage.load(data)
    if "smime" in stored.message_class.lower() and "multipartsigned" not in stored.message_class.lower():
        raise ParseError("encrypted", "the mail is encrypted (S/MIME); save it decrypted")
    mail = EmailMessage()
    for name, value in _fields(stored).items():
        if line := clean_title(value):
            mail[name] = line
    _add_texts(mail, stored)
    unread = []
    for number, attachment in enumerate(stored.attachments, start=1):
        name = clean_title(attachment.file_name or "") or f"Attachment {number}"
        if attachment.file_bytes is None:
            unread.append(name)
        else:
            _add_attachment(mail, attachment.file_bytes, attachment.mime_type or "", name)
    return mime.read_message(mail.as_bytes()), unread


def _fields(message: Any) -> dict[str, str]:
    headers = {name.lower(): value for name, value in message.message_headers.items()}
    names = (
        f"{recipient.name} <{recipient.email_address}>" if recipient.email_address else recipient.name
        for recipient in message.recipients
    )
    date = headers.get("date") or (format_datetime(message.sent_date) if message.sent_date else "")
    to, copies = headers.get("to", ""), headers.get("cc", "")
    return {
        "Subject": message.subject,
        "From": message.sender or "",
        "To": to or ("" if copies else ", ".join(names)),
        "Cc": copies,
        "Date": date,
    }


def _add_texts(mail: EmailMessage, message: Any) -> None:
    """Add the plain text, else the HTML text."""
    body = clean(message.body or "")
    if body.strip():
        mail.set_content(body)
    elif page := message.properties.binary_prop_value(_Property.HTML):
        encoding = _CODE_PAGES.get(
            code := message.properties.int_prop_value(_Property.INTERNET_CODE_PAGE) or 65001, f"cp{code}"
        )
        mail.set_content(_decode(page, encoding), subtype="html")
    else:
        mail.set_content("")


def _decode(page: bytes, encoding: str) -> str:
    try:
        return clean(page.decode(encoding, "replace"))
    except LookupError:
        return clean(page.decode("utf-8", "replace"))


def _add_attachment(mail: EmailMessage, data: bytes, media_type: str, name: str) -> None:
    maintype, _, subtype = media_type.partition("/")
    if not _MEDIA_TYPE.fullmatch(media_type) or maintype in ("multipart", "message", "text"):
        maintype, subtype = "application", "octet-stream"
    mail.add_attachment(data, maintype=maintype, subtype=subtype, filename=name)
