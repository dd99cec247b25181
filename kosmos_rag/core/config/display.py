"""Format values of the configuration as one line of YAML, without passwords."""

import json
import re
from typing import Any

# A scheme, or none: not a possessive `?+`, whose group is wrong in the first versions of Python 3.11.
_USERINFO = re.compile(r"^([a-z0-9+.-]*://|(?![a-z0-9+.-]*://))([^:@]*):.*@", re.IGNORECASE | re.DOTALL)
_PASSWORD_PARAMETER = re.compile(r"(password\s*=\s*)('[^']*'|[^\s&#]*)", re.IGNORECASE)
_WEB_QUERY = re.compile(r"(https?://[^\s?#]*[?#])[^\s'\"]+", re.IGNORECASE)
_LONGEST = 200


def mask_password(url: str) -> str:
    """Replace passwords in a URL or `key=value` string by `***`.

    The query of a web address is replaced too: it may hold a key or a signature.
    """
    return _WEB_QUERY.sub(r"\1***", _PASSWORD_PARAMETER.sub(r"\1***", _USERINFO.sub(r"\1\2:***@", url)))


def mask_urls(value: Any) -> Any:
    """Mask every URL in the value of a setting."""
    if isinstance(value, str):
        return mask_password(value) if "://" in value else value
    if isinstance(value, list):
        return [mask_urls(item) for item in value]
    return {key: mask_urls(item) for key, item in value.items()} if isinstance(value, dict) else value


def show(value: Any) -> str:
    """Render a value as JSON with passwords masked, up to 200 characters.

    The result is YAML too.
    """
    try:
        text = json.dumps(mask_passwords(value), ensure_ascii=False, default=str)
    except ValueError:
        # Python refuses to write an integer of more than 4300 digits.
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def mask_passwords(value: Any) -> Any:
    """Mask passwords in every text of a value, also in texts that are no URLs."""
    if isinstance(value, str):
        return mask_password(value)
    if isinstance(value, list | tuple):
        return [mask_passwords(item) for item in value]
    if isinstance(value, dict):
        return {mask_password(str(key)): mask_passwords(item) for key, item in value.items()}
    return value


def one_line(message: str) -> str:
    """Escape what would break a line or not print."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)
