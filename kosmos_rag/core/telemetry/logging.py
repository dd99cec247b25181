"""Where logs go in the processes that are ours: the command line and the workers. A library import sets up nothing.

Each message has an `action`, a word for what happened that does not change, and beside it what it happened to. What
tenants wrote, questions and names and texts of documents, is in no message: it stands under `texts`, which is
written only where `observability.log_texts` asks for it. So it is with what exceptions say, which may quote it, and
with what libraries tell in passing, such as the addresses that they fetch.
"""

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from kosmos_rag.core.config import ObservabilitySettings
from kosmos_rag.core.telemetry import tracing

REQUEST: ContextVar[Mapping[str, str]] = ContextVar("kosmos_rag_request", default=MappingProxyType({}))
"""What tells the lines of one request apart: `request_id` and `trace_id`, where the service runs."""

_OF_LOGGING = {*vars(logging.makeLogRecord({})), "message", "asctime", "texts", "taskName", "color_message"}


def set_up_logging(settings: ObservabilitySettings) -> None:
    """Send logs to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    if not settings.log_texts:
        handler.addFilter(_is_ours_or_grave)
    if settings.log_format == "json":
        handler.setFormatter(_JsonFormatter(texts=settings.log_texts))
    else:
        handler.setFormatter(_TextFormatter(texts=settings.log_texts))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)


def _is_ours_or_grave(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] in {"kosmos_rag", "uvicorn"}


class _Formatter(logging.Formatter):
    """Leaves out what exceptions say, unless texts are written: where they happened, and their types, remain."""

    def __init__(self, fmt: str | None = None, *, texts: bool) -> None:
        super().__init__(fmt)
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        # Another handler's formatter may have kept its own, which says all.
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 — the name is logging's
        return super().formatException(ei) if self._texts else "".join(_places(ei[1])).rstrip()


def _places(error: BaseException | None) -> Iterator[str]:
    """Yield what a traceback has, without the messages."""
    if error is None:
        return
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (*within, *([] if before in (None, error) else [before])):
        yield from _places(other)
        yield "then, because of it or meanwhile:\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"


class _TextFormatter(_Formatter):
    def __init__(self, *, texts: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", texts=texts)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — the name is logging's
        line = super().formatMessage(record)
        line += "".join(f" {name}={value}" for name, value in _given(record).items())
        if self._texts:
            line += "".join(f" {name}={text!r}" for name, text in _texts_of(record).items())
        ids = [found for found in (REQUEST.get().get("request_id"), tracing.current_trace_id()) if found]
        return f"{line} [{' '.join(ids)}]" if ids else line


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        given = _given(record)
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "action": given.pop("action", "none"),  # of libraries that we use
            "message": record.getMessage(),
            **given,
            **({"trace_id": trace_id} if (trace_id := tracing.current_trace_id()) else {}),
            **REQUEST.get(),
            **(_texts_of(record) if self._texts else {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _given(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OF_LOGGING}


def _texts_of(record: logging.LogRecord) -> Mapping[str, Any]:
    texts: Mapping[str, Any] = getattr(record, "texts", {})
    return texts
