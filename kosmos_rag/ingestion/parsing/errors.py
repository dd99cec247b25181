"""The one door through which the failures of third-party parsers pass."""

from collections.abc import Iterator
from contextlib import contextmanager

from kosmos_rag.core.errors import ParseError

_LONGEST_REASON = 200


@contextmanager
def third_party(what: str) -> Iterator[None]:
    """Turn any exception inside the block into a ParseError with code `corrupt`.

    ParseError and MemoryError pass: the first is said already, the second is no fault of the document.
    """
    try:
        yield
    except (ParseError, MemoryError):
        raise
    except Exception as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())[:_LONGEST_REASON]
        message = f"broken {what} file ({reason}); check that the program it comes from opens it"
        raise ParseError("corrupt", message) from exc
