"""Spans of OpenTelemetry, and the trace that a request or a job belongs to, as W3C Trace Context hands it on.

Spans go through the API alone (the extra kosmos-rag[otel]): without it, or without an SDK that collects them, none is
made. A trace is known either way, to logs, to samples of metrics and to jobs.
"""

import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
except ImportError:
    _TRACER: Any = None
else:
    _TRACER = trace.get_tracer("kosmos_rag")

P = ParamSpec("P")
R = TypeVar("R")

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_GIVEN: ContextVar[str | None] = ContextVar("kosmos_rag_traceparent", default=None)


def parsed(traceparent: object) -> tuple[str, str] | None:
    """Return trace and span of a `traceparent`; None where it is not well formed."""
    found = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or found[1] == _NO_TRACE or found[2] == _NO_SPAN:
        return None
    return found[1], found[2]


@contextmanager
def continued(traceparent: object) -> Iterator[None]:
    """Go on with the trace of whoever asked for what is done in here; with none where there is none."""
    if (ids := parsed(traceparent)) is None:
        yield
        return
    given = _GIVEN.set(str(traceparent))
    attached = None if _TRACER is None else contexts.attach(trace.set_span_in_context(_remote(*ids, str(traceparent))))
    try:
        yield
    finally:
        if attached is not None:
            contexts.detach(attached)
        _GIVEN.reset(given)


def _remote(trace_id: str, span_id: str, traceparent: str) -> Any:
    return trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=int(trace_id, 16),
            span_id=int(span_id, 16),
            is_remote=True,
            trace_flags=trace.TraceFlags(int(traceparent[-2:], 16)),
        )
    )


def traceparent() -> str | None:
    """Return what goes on with this trace elsewhere; None where there is none."""
    if _TRACER is not None:
        now = trace.get_current_span().get_span_context()
        if now.is_valid:
            return f"00-{now.trace_id:032x}-{now.span_id:016x}-{now.trace_flags:02x}"
    return _GIVEN.get()


def trace_id() -> str | None:
    """Return the id of this trace; None where there is none."""
    if _TRACER is not None:
        now = trace.get_current_span().get_span_context()
        if now.trace_id != trace.INVALID_TRACE_ID:
            return f"{now.trace_id:032x}"
    given = _GIVEN.get()
    return None if given is None else given.split("-")[1]


@contextmanager
def span(name: str, *, links: Iterable[object] = (), **attributes: str | int | float | bool) -> Iterator[None]:
    """Make a span of what is done in here, and the parent of the spans within. An error that leaves it is its status.

    `links` are the `traceparent`s of others that it is done for as well.
    """
    if _TRACER is None:
        yield
        return
    linked = [trace.Link(_remote(*ids, str(link)).get_span_context()) for link in links if (ids := parsed(link))]
    with _TRACER.start_as_current_span(name, attributes=attributes, links=linked):
        yield


@contextmanager
def begun(name: str, traceparents: Collection[object]) -> Iterator[None]:
    """Make a span of what is done in here for those who asked, in the trace that they name.

    Where they name several, or none, in a new one, with links to theirs.
    """
    given = {traceparent for traceparent in traceparents if parsed(traceparent)}
    with continued(next(iter(given)) if len(given) == 1 else None), span(name, links=given if len(given) > 1 else ()):
        if trace_id() is not None:
            yield
            return
        with continued(f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"):
            yield


def spanned(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a span of each call."""

    def within(call: Callable[P, R]) -> Callable[P, R]:
        @wraps(call)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with span(name):
                return call(*args, **kwargs)

        return called

    return within


def renamed(name: str, **attributes: str | int | float | bool) -> None:
    """Name the span that this is in, when its name becomes known."""
    if _TRACER is not None:
        now = trace.get_current_span()
        now.update_name(name)
        now.set_attributes(attributes)


def passed(name: str, seconds: float, *, alone: bool = False) -> None:
    """Make a span of what ends now and took so many seconds, within the one that this is in; else none, or `alone`."""
    if _TRACER is not None and (alone or trace.get_current_span().is_recording()):
        end = time.time_ns()
        _TRACER.start_span(name, start_time=end - round(seconds * 1e9)).end(end)
