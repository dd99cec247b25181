"""Inline PGP in the text of a mail (RFC 9580).

Sections 6.2 and 7.
"""

import re

_BLOCK = re.compile(r"^-----BEGIN PGP ([A-Z ]+)-----$.*?(?:^-----END PGP \1-----$|\Z)", re.MULTILINE | re.DOTALL)
_SIGNED = re.compile(r"^-----BEGIN PGP SIGNED MESSAGE-----\n(?:[A-Za-z]+: [^\n]*\n)*\n?", re.MULTILINE)
_DASHES = re.compile(r"^- (?=-|From )", re.MULTILINE)
_ENCRYPTED = "MESSAGE"


def strip_armor(text: str) -> tuple[str, bool]:
    """Remove signatures, keys and encrypted blocks from a text.

    The second value is whether most of the text is encrypted.
    """
    if "-----BEGIN PGP " not in text:
        return text, False
    if _SIGNED.search(text):
        text = _DASHES.sub("", _SIGNED.sub("", text))
    blocks = list(_BLOCK.finditer(text))
    rest = _BLOCK.sub("", text)
    encrypted = sum(len(block[0]) for block in blocks if block[1] == _ENCRYPTED)
    return rest, encrypted > len(rest.strip())
