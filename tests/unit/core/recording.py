"""A tracer that keeps the spans it makes, through the API of OpenTelemetry as an SDK implements it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace


class RecordedSpan(trace.NonRecordingSpan):
    """A span that tells what it was given."""

    def __init__(self, name: str, parent: trace.SpanContext, options: dict[str, Any]) -> None:
        trace_id = parent.trace_id if parent.is_valid else secrets.randbits(128)
        super().__init__(trace.SpanContext(trace_id, secrets.randbits(64), is_remote=False, trace_flags=_SAMPLED))
        self.name = name
        self.parent = parent
        self.attributes: dict[str, Any] = dict(options.get("attributes") or {})
        self.links = list(options.get("links") or ())
        self.started_at: int | None = options.get("start_time")
        self.ended_at: int | None = None
        self.error: BaseException | None = None

    def is_recording(self) -> bool:
        return self.ended_at is None

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes.update(attributes)

    def end(self, end_time: int | None = None) -> None:
        self.ended_at = end_time or 0


_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class RecordingTracer(trace.Tracer):
    """Makes spans, and keeps them in the order of their beginnings."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def start_span(self, name: str, context: Any = None, **options: Any) -> RecordedSpan:  # type: ignore[override]
        span = RecordedSpan(name, trace.get_current_span(context).get_span_context(), options)
        self.spans.append(span)
        return span

    @contextmanager
    def start_as_current_span(self, name: str, **options: Any) -> Iterator[RecordedSpan]:  # type: ignore[override]
        span = self.start_span(name, **options)
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            yield span
        except BaseException as error:
            span.error = error
            raise
        finally:
            contexts.detach(token)
            span.end()

    def find_spans(self, name: str) -> list[RecordedSpan]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]
