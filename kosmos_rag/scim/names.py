"""How names and subjects are compared. The base installation has this module."""

import unicodedata


def fold_name(name: str) -> str:
    """Return a name in lower case and composed (NFC): equal for all forms of one name.

    `str.casefold` folds more: ß is then ss, and two subjects of a provider have the same groups.
    """
    return unicodedata.normalize("NFC", "".join(map(_lower, name)))


def _lower(character: str) -> str:
    """Return the lower case of a character.

    The Kelvin sign and others whose lower case is that of another character stay.
    """
    lower = character.lower()
    return lower if unicodedata.normalize("NFC", lower.upper()) == character else character
