"""Where logs go in the processes that are ours: the command line and the workers. A library import sets up nothing.

Each message has an `action`, a word for what happened that does not change, and beside it what it happened to. What
tenants wrote, questions and names and texts of documents, is in no message: it stands under `texts`, which is
written only where `observability.log_texts` asks for it.
"""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from kosmos_rag import tracing
from kosmos_rag.config import ObservabilitySettings

REQUEST: ContextVar[Mapping[str, str]] = ContextVar("kosmos_rag_request", default=MappingProxyType({}))
"""What tells the lines of one request apart: `request_id` and `trace_id`, where the service runs."""

_OF_LOGGING = {*vars(logging.makeLogRecord({})), "message", "asctime", "texts", "taskName", "color_message"}


def set_up_logging(settings: ObservabilitySettings) -> None:
    """Send logs to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(_JsonFormatter(texts=settings.log_texts))
    else:
        handler.setFormatter(_TextFormatter(texts=settings.log_texts))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)


class _TextFormatter(logging.Formatter):
    def __init__(self, *, texts: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._texts = texts

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — the name is logging's
        line = super().formatMessage(record)
        if self._texts:
            line += "".join(f" {name}={text!r}" for name, text in _texts_of(record).items())
        request_id = REQUEST.get().get("request_id")
        return f"{line} [{request_id}]" if request_id else line


class _JsonFormatter(logging.Formatter):
    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        given = {name: value for name, value in vars(record).items() if name not in _OF_LOGGING}
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "action": given.pop("action", "none"),  # of libraries that we use
            "message": record.getMessage(),
            **given,
            **({"trace_id": trace_id} if (trace_id := tracing.trace_id()) else {}),
            **REQUEST.get(),
            **(_texts_of(record) if self._texts else {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def _texts_of(record: logging.LogRecord) -> Mapping[str, Any]:
    texts: Mapping[str, Any] = getattr(record, "texts", {})
    return texts
