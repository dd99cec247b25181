"""Convert failures of third-party parsers to ParseError."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.parsing import bounds


@contextmanager
def translate_errors(kind: str) -> Iterator[None]:
    """Turn any exception inside the block into ParseError `corrupt`.

    A missing package is `unsupported`. ParseError and MemoryError pass through: the first is specific already, the
    second is no fault of the document.
    """
    try:
        yield
    except (ParseError, MemoryError):
        raise
    except ModuleNotFoundError as error:
        purpose = f"reading a {kind} file"
        raise missing_extra(
            "parsing", purpose, error.name or str(error), error=partial(ParseError, "unsupported")
        ) from error
    except Exception as exc:
        reason = " ".join(f"{type(exc).__name__}: {exc}".split())[: bounds.MAX_REASON_CHARS]
        message = f"broken {kind} file ({reason}); check that the program it comes from opens it"
        raise ParseError("corrupt", message) from exc
