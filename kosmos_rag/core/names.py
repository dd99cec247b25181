"""Names of tenants, collections and experiments."""

import re

from kosmos_rag.core.errors import RequestError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def validate_name(kind: str, name: str) -> str:
    """Validate the name of a tenant or a collection, and return it.

    Raises:
        RequestError: the name is malformed.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{kind} name {str(name)[:80]!r} is malformed; "
            "use 1 to 63 of a-z, 0-9, '-' and '_', a letter or digit first"
        )
    return name
