"""The value of a number in digits, by the signs of its language."""

import re

_SIGNS = ".,'\u2019\u00a0\u202f"
NUMBER = rf"\d+(?:[{_SIGNS}]\d+)*"
"""Pattern of a number in digits, with decimal sign and signs of grouping."""
_WHOLE = re.compile(
    rf"-?(?:\d+|[1-9]\d{{0,2}}([{_SIGNS}])\d{{3}}(?:\1\d{{3}})*|[1-9]\d?(?:,\d\d)+,\d{{3}})",
    re.ASCII,  # SQL has no other digits
)
"""Plain, with groups of three digits, or Indian: 1850, 1,850 and 1,00,000."""
_GROUPING_SIGNS = {"english": ",", "spanish": ".,"}
"""Points and commas that group three digits where they are the only sign. Mexico groups by commas, Spain by points."""
_OTHER_GROUPING_SIGNS = "."


def read_number(text: str, language: str) -> str | None:
    """Return the value of a number in decimal notation: `1850`, `-2.5`.

    The result is None where the text is no number, as 2,5,7 and 10:30. The last of two different signs is the decimal
    sign, and a repeated one groups.

    Args:
        text: A match of `NUMBER`, with or without a minus before it.
        language: Text search configuration. It decides whether 1.850 is 1850, as in German, or 1.85, as in English.
    """
    whole, decimals = text, ""
    signs = re.findall(rf"[{_SIGNS}]", text)
    if signs and signs[-1] in ".," and signs.count(signs[-1]) == 1 and not _is_grouped(text, signs, language):
        whole, _, decimals = text.rpartition(signs[-1])
    if not _WHOLE.fullmatch(whole) or not decimals.isascii():
        return None
    minus = "-" if text.startswith("-") else ""
    digits, decimals = re.sub(r"\D", "", whole).lstrip("0") or "0", decimals.rstrip("0")
    return f"{minus}{digits}.{decimals}" if decimals else f"{minus}{digits}"


def _is_grouped(text: str, signs: list[str], language: str) -> bool:
    by = _GROUPING_SIGNS.get(language, _OTHER_GROUPING_SIGNS)
    return len(signs) == 1 and signs[0] in by and _WHOLE.fullmatch(text) is not None
