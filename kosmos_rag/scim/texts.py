"""What the database can store."""

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
