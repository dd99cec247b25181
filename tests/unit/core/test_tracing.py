"""Spans and traces, with an SDK and with the API alone."""

import pytest
from opentelemetry import trace

from kosmos_rag.core.telemetry import tracing
from tests.unit.core.recording import RecordingTracer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> RecordingTracer:
    """An SDK that collects."""
    recording = RecordingTracer()
    monkeypatch.setattr(tracing, "_TRACER", recording)
    return recording


@pytest.fixture
def _not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_TRACER", trace.NoOpTracer())


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        7,
        "00-xyz",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        GIVEN + "-1",
        f"01-{TRACE}-{SPAN}",
    ],
)
def test_parse_traceparent__is_nothing_where_it_is_not_well_formed(traceparent: object) -> None:
    assert tracing.parse_traceparent(traceparent) is None
    with tracing.continue_trace(traceparent):
        assert tracing.current_trace_id() is None


def test_parse_traceparent__tells_trace_and_span() -> None:
    parsed = tracing.parse_traceparent(GIVEN)
    assert parsed is not None
    assert (f"{parsed.trace_id:032x}", f"{parsed.span_id:016x}") == (TRACE, SPAN)


@pytest.mark.usefixtures("_not_collected")
def test_trace__goes_on_where_no_span_is_made() -> None:
    with tracing.continue_trace(GIVEN), tracing.start_span("inside", {"number": 1}):
        assert tracing.current_traceparent() == GIVEN
        tracing.record_span("stage", 0.1)
        tracing.rename_span("other", {})
    assert tracing.current_traceparent() is None


@pytest.mark.usefixtures("_not_collected")
def test_entry_span__without_a_trace_begins_one() -> None:
    with tracing.start_entry_span("job", [None]):
        first = tracing.current_trace_id()
    with tracing.start_entry_span("job", []):
        second = tracing.current_trace_id()
    assert first
    assert second
    assert first != second


def test_spans__belong_to_the_trace_of_who_asked(tracer: RecordingTracer) -> None:
    with tracing.start_entry_span("request", [GIVEN]), tracing.start_span("inside", {"number": 1}):
        tracing.record_span("stage", 0.25)
        assert tracing.current_trace_id() == TRACE
        assert tracing.current_traceparent() != GIVEN, "what is done elsewhere belongs to the span that asked for it"
    request, inside, stage = tracer.spans
    assert f"{request.parent.span_id:016x}" == SPAN
    assert inside.parent == request.get_span_context()
    assert inside.attributes == {"number": 1}
    assert stage.parent == inside.get_span_context()
    assert stage.started_at is not None
    assert stage.ended_at is not None
    assert stage.ended_at - stage.started_at == 250_000_000


def test_entry_span__for_several_links_them(tracer: RecordingTracer) -> None:
    other = f"00-{'1' * 32}-{SPAN}-01"
    with tracing.start_entry_span("batch", [GIVEN, other, GIVEN, None]):
        pass
    (batch,) = tracer.spans
    assert not batch.parent.is_valid
    assert {f"{link.context.trace_id:032x}" for link in batch.links} == {TRACE, "1" * 32}


def test_start_span__is_a_span_of_each_call_and_of_its_error(tracer: RecordingTracer) -> None:
    @tracing.start_span("half")
    def half(number: int) -> float:
        """Halve."""
        if number % 2:
            raise ValueError(number)
        return number / 2

    assert half(4) == 2
    with pytest.raises(ValueError, match="3"):
        half(3)
    assert half.__doc__ == "Halve."
    assert [(span.name, type(span.error)) for span in tracer.spans] == [("half", type(None)), ("half", ValueError)]
    assert [span.attributes for span in tracer.spans] == [{}, {"error.type": "ValueError"}], "and not what it says"


def test_record_span__outside_of_any_span_is_one_only_where_it_stands_alone(tracer: RecordingTracer) -> None:
    tracing.record_span("stage", 0.1)
    tracing.record_span("answer", 0.1, root=True)
    assert [span.name for span in tracer.spans] == ["answer"]


def test_rename_span__names_the_span_that_this_is_in(tracer: RecordingTracer) -> None:
    with tracing.start_entry_span("POST", []):
        tracing.rename_span("POST /v1/search", {"status": 200})
    assert [(span.name, span.attributes) for span in tracer.spans] == [("POST /v1/search", {"status": 200})]
