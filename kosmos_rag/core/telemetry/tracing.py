"""OpenTelemetry spans, and W3C Trace Context between processes.

Only the API of OpenTelemetry is used. Spans are made where the process has set up an SDK. The trace id is known without
one too: to log lines, to exemplars of metrics, and to jobs.
"""

import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]

_TRACER = trace.get_tracer("kosmos_rag")
_PROPAGATOR = TraceContextTextMapPropagator()


def parse_traceparent(traceparent: object) -> trace.SpanContext | None:
    """Parse a `traceparent` header; None where it is not well formed."""
    if not isinstance(traceparent, str):
        return None
    context = _PROPAGATOR.extract({"traceparent": traceparent}, Context())
    parent = trace.get_current_span(context).get_span_context()
    return parent if parent.is_valid else None


def current_traceparent() -> str | None:
    """Return the `traceparent` to send with a request or a job.

    The result is None outside of a trace.
    """
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


def current_trace_id() -> str | None:
    """Return the current trace id, 32 hexadecimal digits.

    The result is None outside of a trace.
    """
    current = trace.get_current_span().get_span_context()
    return trace.format_trace_id(current.trace_id) if current.is_valid else None


@contextmanager
def continue_trace(traceparent: object) -> Iterator[None]:
    """Run the block in the trace of the caller.

    Without effect where `traceparent` is not well formed.
    """
    parent = parse_traceparent(traceparent)
    if parent is None:
        yield
        return
    with _use(parent):
        yield


@contextmanager
def start_span(
    name: str,
    attributes: Attributes | None = None,
    links: Iterable[object] = (),
    kind: trace.SpanKind = trace.SpanKind.INTERNAL,
) -> Iterator[trace.Span]:
    """Make a span of the block; also a decorator.

    An exception that leaves the block sets the status and `error.type`; its message may quote texts and is left out.

    Args:
        attributes: attributes of the span. Texts of tenants are among them only where `genai.captures_texts()`.
        links: `traceparent`s of other traces that the work is for.
        kind: CLIENT for a call of another server, INTERNAL within the process.
    """
    linked = [trace.Link(context) for link in links if (context := parse_traceparent(link))]
    with _TRACER.start_as_current_span(
        name, attributes=attributes, links=linked, kind=kind, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            set_error(current, error)
            raise


def open_span(name: str, attributes: Attributes, *, kind: trace.SpanKind) -> trace.Span:
    """Start a span that ends elsewhere, by its `end`.

    It is not the current one.

    Args:
        attributes: attributes of the span. Texts of tenants are among them only where `genai.captures_texts()`.
        kind: CLIENT for a call of another server, INTERNAL within the process.
    """
    return _TRACER.start_span(name, attributes=attributes, kind=kind)


def set_error(span: trace.Span, error: BaseException) -> None:
    """Mark a span as failed by the error's type, without its message."""
    span.set_status(trace.StatusCode.ERROR)
    span.set_attribute("error.type", type(error).__qualname__)


@contextmanager
def start_entry_span(name: str, traceparents: Collection[object]) -> Iterator[None]:
    """Start the first span of a request or job in this process."""
    callers = {caller for caller in traceparents if parse_traceparent(caller)}
    parent, links = (next(iter(callers)), ()) if len(callers) == 1 else (None, callers)
    with continue_trace(parent), start_span(name, links=links):
        if current_trace_id() is not None:
            yield
            return
        # Without an SDK there is no span: the ids still join the log lines of one request.
        with _use(trace.SpanContext(secrets.randbits(128), secrets.randbits(64), is_remote=False)):
            yield


def rename_span(name: str, attributes: Attributes) -> None:
    """Set the name of the current span.

    It may be known only at the span's end.
    """
    current = trace.get_current_span()
    current.update_name(name)
    current.set_attributes(attributes)


def record_span(name: str, seconds: float, *, root: bool = False, attributes: Attributes | None = None) -> None:
    """Make a span that ends now and took `seconds`.

    Args:
        seconds: its duration.
        root: whether it is made outside of a trace too.
    """
    if root or trace.get_current_span().is_recording():
        end = time.time_ns()
        _TRACER.start_span(name, start_time=end - round(seconds * 1e9), attributes=attributes).end(end)


def _use(parent: trace.SpanContext) -> AbstractContextManager[trace.Span]:
    return trace.use_span(trace.NonRecordingSpan(parent), record_exception=False, set_status_on_exception=False)


@dataclass(slots=True)
class StageTimer:
    """Measures consecutive stages of a search and records each as a span.

    One thread uses it.
    """

    durations_ms: dict[str, float] = field(default_factory=dict, init=False)
    """Milliseconds of each stage that ran, in order."""
    _is_recording: bool = field(default_factory=lambda: trace.get_current_span().is_recording(), init=False)
    """Whether the span that the search is in is recorded."""
    _started: float = field(default_factory=time.perf_counter, init=False)
    _measured_s: float = field(default=0.0, init=False)
    """Seconds of the stages so far."""

    def record(self, stage: str, *, next_s: float = 0.0) -> None:
        """End a stage that started where the previous one ended.

        A stage that runs again adds to its duration.

        Args:
            next_s: Seconds within the stage that the next one took.
        """
        duration_s = time.perf_counter() - self._started - self._measured_s - next_s
        self._measured_s += duration_s
        self.durations_ms[stage] = self.durations_ms.get(stage, 0.0) + duration_s * 1000
        if self._is_recording:
            record_span(f"kosmos.{stage}", duration_s)

    def timings_ms(self) -> dict[str, float]:
        """Return milliseconds of each stage, and of all as `total`."""
        total = (time.perf_counter() - self._started) * 1000
        return {stage: round(duration, 3) for stage, duration in {**self.durations_ms, "total": total}.items()}
