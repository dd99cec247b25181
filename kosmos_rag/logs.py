"""Where logs go in the processes that are ours: the command line and the workers. A library import sets up nothing."""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

from kosmos_rag.config import ObservabilitySettings

REQUEST: ContextVar[Mapping[str, str]] = ContextVar("kosmos_rag_request", default=MappingProxyType({}))
"""What tells the lines of one request apart: `request_id` and `trace_id`, where the service runs."""


def set_up_logging(settings: ObservabilitySettings) -> None:
    """Send logs to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(_TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)


class _TextFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — the name is logging's
        line = super().formatMessage(record)
        request_id = REQUEST.get().get("request_id")
        return f"{line} [{request_id}]" if request_id else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **REQUEST.get(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
