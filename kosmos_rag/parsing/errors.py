"""Convert failures of third-party parsers to ParseError."""

from collections.abc import Iterator
from contextlib import contextmanager

from kosmos_rag.core.errors import ParseError

_MAX_REASON_CHARS = 200


@contextmanager
def translate_errors(kind: str) -> Iterator[None]:
    """Turn any exception inside the block into ParseError `corrupt`.

    ParseError and MemoryError pass through: the first is specific already, the second is no fault of the document.
    """
    try:
        yield
    except (ParseError, MemoryError):
        raise
    except Exception as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())[:_MAX_REASON_CHARS]
        message = f"broken {kind} file ({reason}); check that the program it comes from opens it"
        raise ParseError("corrupt", message) from exc
