"""Logging of our processes: command line, service and workers.

Importing the library configures no logging.

Each message has an `action`, a fixed name of the event, and fields for what it concerns. What tenants wrote (questions,
names and texts of documents) is in no message: it is in the field `texts`, written with `observability.log_texts` only.
The same setting decides about messages of exceptions, which may quote it, and about INFO messages of libraries, which
name the addresses that they fetch.
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
"""Fields on each log line of a request: `request_id`, `trace_id`, and `parent_id` of the caller."""

_STANDARD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "texts", "taskName", "color_message"}


def set_up_logging(settings: ObservabilitySettings) -> None:
    """Log to standard error, as text or as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    if not settings.log_texts:
        handler.addFilter(_is_ours_or_warning)
    if settings.log_format == "json":
        handler.setFormatter(_JsonFormatter(texts=settings.log_texts))
    else:
        handler.setFormatter(_TextFormatter(texts=settings.log_texts))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)


def _is_ours_or_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] in {"kosmos_rag", "uvicorn"}


class _Formatter(logging.Formatter):
    """Formats exceptions without their messages unless texts are logged.

    Types and stack remain.
    """

    def __init__(self, fmt: str | None = None, *, texts: bool) -> None:
        super().__init__(fmt)
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        # Another handler's formatter may have cached the text with messages.
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 — the name is logging's
        return super().formatException(ei) if self._texts else "".join(_stack_without_messages(ei[1])).rstrip()


def _stack_without_messages(error: BaseException | None) -> Iterator[str]:
    """Yield the lines of a traceback, without messages."""
    if error is None:
        return
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (*group, *([] if cause in (None, error) else [cause])):
        yield from _stack_without_messages(other)
        yield "then, because of it or while handling it:\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"


class _TextFormatter(_Formatter):
    def __init__(self, *, texts: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", texts=texts)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — the name is logging's
        line = super().formatMessage(record)
        line += "".join(f" {name}={value}" for name, value in _fields(record).items())
        if self._texts:
            line += "".join(f" {name}={text!r}" for name, text in _get_texts(record).items())
        ids = [value for value in (REQUEST.get().get("request_id"), tracing.current_trace_id()) if value]
        return f"{line} [{' '.join(ids)}]" if ids else line


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "action": fields.pop("action", "none"),  # messages of libraries
            "message": record.getMessage(),
            **fields,
            **({"trace_id": trace_id} if (trace_id := tracing.current_trace_id()) else {}),
            **REQUEST.get(),
            **(_get_texts(record) if self._texts else {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _get_texts(record: logging.LogRecord) -> Mapping[str, Any]:
    texts: Mapping[str, Any] = getattr(record, "texts", {})
    return texts
