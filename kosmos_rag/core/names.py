"""Names of tenants, collections and experiments, and spellings of file names."""

import re
import unicodedata
from collections.abc import Iterable

from kosmos_rag.core.errors import RequestError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def validate_name(kind: str, name: str) -> str:
    """Validate a name, and return it.

    Raises:
        RequestError: the name is malformed.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{kind} name {str(name)[:80]!r} is malformed; "
            "use 1 to 63 of a-z, 0-9, '-' and '_', a letter or digit first"
        )
    return name


def spell_sources(sources: Iterable[str]) -> list[str]:
    """Return names of files with their composed and decomposed spellings.

    Some file systems decompose letters with accents: a name that looks the same has other characters.
    """
    return list(
        dict.fromkeys(
            spelling
            for source in sources
            for spelling in (source, *(unicodedata.normalize(form, source) for form in ("NFC", "NFD")))
        )
    )
