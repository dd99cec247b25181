"""Rules for the texts and titles of all parsers."""

import re

_UNCLEAN = re.compile(r"[\x00-\x08\x0b-\x1f\ud800-\udfff]")
_FORBIDDEN = re.compile(r"[\x00\ud800-\udfff]")
_CONTROLS = re.compile(r"[\x01-\x08\x0b-\x1f]")
_LONGEST_TITLE = 300


def clean(text: str) -> str:
    r"""Normalise line ends and control characters.

    Line ends become `\\n`, NUL and lone surrogates are removed, other C0 controls but tab become spaces.
    """
    if not _UNCLEAN.search(text):  # by far the most; tables clean line by line
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub(" ", _FORBIDDEN.sub("", text))


def clean_title(text: str) -> str | None:
    """Bring a title into one line of at most 300 characters.

    None where nothing is left. Every chunk carries the titles of its section, so a megabyte after a `#` must not become
    one.
    """
    return " ".join(clean(text).split())[:_LONGEST_TITLE].rstrip() or None
