"""What the database can store, and how names and subjects are compared."""

import unicodedata
from typing import Any

from scim2_models import InvalidValueException

from kosmos_rag.core.types import is_text


def check_texts(value: Any) -> None:
    """Raise InvalidValueException where a text of a JSON value has a NUL or lone surrogate."""
    pending = [value]
    while pending:
        entry = pending.pop()
        if isinstance(entry, dict):
            pending += [*entry.keys(), *entry.values()]
        elif isinstance(entry, list):
            pending += entry
        elif isinstance(entry, str) and not is_text(entry):
            raise InvalidValueException(detail=f"{entry[:60]!a} has a NUL or a lone surrogate; remove it")


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
