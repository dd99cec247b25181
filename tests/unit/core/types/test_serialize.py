"""The JSON shape of the records: what it shows to whom, and that it reads back."""

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from inspect import getattr_static
from typing import Any, get_args, get_type_hints

import pytest

from kosmos_rag.apps.http.examples import EXAMPLES
from kosmos_rag.core import types
from kosmos_rag.core.types import (
    Answer,
    Arm,
    AuditRecord,
    Context,
    DocumentInfo,
    ErasureReport,
    ExperimentAssignment,
    IngestReport,
    SearchResult,
)
from kosmos_rag.core.types.serialize import Serializable, from_dict, json_schema, to_dict, to_json
from kosmos_rag.engine.tenant import Tenant
from tests.unit.core.test_explanation import FOUND

LOCATION = {
    "document_id",
    "version_id",
    "version",
    "source",
    "title",
    "section",
    "span",
    "lines",
    "pages",
    "location",
} | {"place"}
PASSAGE = LOCATION | {
    *(
        "rank",
        "chunk_id",
        "media_type",
        "metadata",
        "chunk_index",
        "text",
        "chunker",
        "collection",
        "department",
        "parent_span",
    ),
    *("quote_sha256", "notes", "table_context", "also_in", "inner_hits"),
}
SCORES = {
    *("score", "dense_rank", "dense_score", "lexical_rank", "lexical_score", "fused_rank", "fused_score"),
    *("score_contributions", "rerank_score", "signals"),
}
RESULT = {
    *("question", "requested", "hits", "stages", "warnings", "degraded_stages", "incomplete_reason", "retrieval_id"),
    *("experiment", "returned", "milliseconds", "next_cursor", "facets", "operators", "activity", "conditions"),
}
PLANS = {"expansion", "timings_ms", "retrievers", "cached", "intent"}
CITATION = LOCATION | {"index", "marker", "quote_sha256", "table_context", "date", "link", "outdated"}
EVIDENCE = {"citation", "text", "span", "pages", "page_breaks", "tokens", "chunk_ids"}
CONTEXT = {"question", "text", "passages", "tokens", "max_tokens", "omitted", "retrieval"}
ANSWER = {
    *("question", "search_query", "text", "mode", "refused", "verified", "truncated", "confidence", "sentences"),
    *("report", "context", "warnings", "closest"),
}
RECORDS = {name: kind for name in EXAMPLES if isinstance(kind := getattr(types, name, None), type)}


def _with_unknown(values: Any) -> Any:
    """Add a member to every object but those whose members are data."""
    if isinstance(values, list):
        return [_with_unknown(item) for item in values]
    if isinstance(values, dict):
        data = (
            "data",
            "metadata",
            "departments",
            "entities",
            "parts",
            "tables",
            "schema_refs",
            "docs",
            "omitted",
            "facets",
        )
        return {name: item if name in data else _with_unknown(item) for name, item in values.items()} | {"later": 1}
    return values


@pytest.mark.parametrize("name", RECORDS)
def test_from_dict__ignores_members_of_a_newer_service(name: str) -> None:
    kind = RECORDS[name]
    assert repr(from_dict(kind, _with_unknown(EXAMPLES[name]))) == repr(from_dict(kind, EXAMPLES[name]))


def _retrieval(name: str, values: dict[str, Any]) -> SearchResult:
    if name == "SearchResult":
        return SearchResult.from_dict(values)
    return Context.from_dict(values).retrieval if name == "Context" else Answer.from_dict(values).context.retrieval


def _with_experiment(name: str, experiment: Any) -> dict[str, Any]:
    values = json.loads(json.dumps(EXAMPLES[name]))
    inner = {"SearchResult": values, "Context": values.get("retrieval")}.get(name) or values["context"]["retrieval"]
    inner["experiment"] = experiment
    return values


@pytest.mark.parametrize("name", ["SearchResult", "Context", "Answer"])
def test_from_dict__reads_the_experiment(name: str) -> None:
    served = _retrieval(name, _with_experiment(name, {"experiment": "deeper", "arm": "treatment"}))
    assert served.experiment == ExperimentAssignment(experiment="deeper", arm=Arm.TREATMENT)
    assert _retrieval(name, EXAMPLES[name]).experiment is None


@pytest.mark.parametrize("name", RECORDS)
def test_public_shape__reads_back_to_the_same_shape(name: str) -> None:
    record: Any = from_dict(RECORDS[name], EXAMPLES[name])
    assert to_dict(record, explain=False) == EXAMPLES[name]
    assert json.loads(to_json(record, explain=False)) == EXAMPLES[name]


def test_full_shape__reads_back_to_the_same_record() -> None:
    assert SearchResult.from_dict(json.loads(json.dumps(FOUND.to_dict()))) == FOUND


def test_members__are_these_and_scores_only_with_explain() -> None:
    payload, explained = FOUND.to_dict(explain=False), FOUND.to_dict()
    assert payload.keys() == RESULT
    assert explained.keys() == RESULT | PLANS
    assert (payload["hits"][0].keys(), explained["hits"][0].keys()) == (PASSAGE, PASSAGE | SCORES)
    context, answer = EXAMPLES["Context"], EXAMPLES["Answer"]
    assert context.keys() == CONTEXT
    assert context["retrieval"].keys() == RESULT - {"hits", "returned"}
    assert context["passages"][0].keys() == EVIDENCE
    assert answer.keys() == ANSWER
    assert answer["context"].keys() == CONTEXT - {"text"}
    assert answer["context"]["passages"] == context["passages"]
    assert answer["sentences"][0].keys() == {"text", "kind", "score", "citation", "columns"}
    assert answer["sentences"][0]["citation"].keys() == CITATION


@pytest.mark.parametrize("kind", [SearchResult, Context, Answer])
def test_schema__marks_what_explain_adds(kind: type[Any]) -> None:
    schema = json_schema(kind)
    hidden = {name for name, member in schema["$defs"]["Passage"]["properties"].items() if member.get("x-explain")}
    assert hidden == SCORES
    assert not SCORES & set(schema["$defs"]["Passage"]["required"])
    assert "payload" not in json_schema(types.JobInfo)["properties"]


def test_schema__describes_members_by_the_docstrings_of_their_fields() -> None:
    schema = json_schema(SearchResult)
    described = {name: member.get("description") for name, member in schema["properties"].items()}
    assert described["hits"] == "The passages, best first."
    assert described["retrieval_id"] == "Its record in the audit log, for feedback; None where no log is kept."
    assert described["warnings"] is not None
    assert described["returned"] == "How many hits there are."
    assert schema["$defs"]["Place"]["properties"]["cells"]["description"] == "Cells of the sheet: `B12:D12`."


@pytest.mark.parametrize("wrong", [{}, {"question": 1}, {**EXAMPLES["SearchResult"], "hits": [{}]}, []])
def test_from_dict__refuses_anything_else(wrong: Any) -> None:
    with pytest.raises(ValueError, match="validation error"):
        SearchResult.from_dict(wrong)


def test_results__iterate_and_count_their_hits() -> None:
    result = SearchResult.from_dict(EXAMPLES["SearchResult"])
    assert (list(result), len(result)) == (list(result.hits), len(result.hits))
    context = Context.from_dict(EXAMPLES["Context"])
    assert (list(context), len(context)) == (list(context.passages), len(context.passages))
    assert len(result) >= 1 <= len(context)
    assert result.model_dump() == result.to_dict()


@pytest.mark.parametrize("name", ["SearchResult", "Context", "Answer"])
def test_html__escapes_every_text(name: str) -> None:
    def with_markup(values: Any) -> Any:
        if isinstance(values, dict):
            return {key: with_markup(value) for key, value in values.items()}
        if isinstance(values, list):
            return [with_markup(value) for value in values]
        is_prose = isinstance(values, str) and " " in values
        return f"<script>{values}</script>" if is_prose else values

    record: Any = from_dict(RECORDS[name], with_markup(EXAMPLES[name]))
    output = record._repr_html_()
    assert "&lt;script&gt;" in output
    assert "<script>" not in output
    assert record.question.removeprefix("<script>").removesuffix("</script>") in output


def _records(kind: Any) -> Iterator[type[Any]]:
    """Yield the record classes in an annotation."""
    if isinstance(kind, type) and is_dataclass(kind) and kind.__module__.startswith("kosmos_rag.core.types"):
        yield kind
    for part in get_args(kind):
        yield from _records(part)


def _methods(kind: type[Any]) -> Iterator[Any]:
    for name in dir(kind):
        member = getattr_static(kind, name)
        if not name.startswith("_"):
            yield member.fget if isinstance(member, property) else member


def test_results__of_the_library_have_one_way_to_json() -> None:
    parts = [get_type_hints(method).get("return") for method in _methods(Tenant)]
    facades = [
        Tenant,
        *(part for part in parts if isinstance(part, type) and part.__module__.startswith("kosmos_rag.engine")),
    ]
    results = {
        record
        for facade in facades
        for method in _methods(facade)
        for record in _records(get_type_hints(method).get("return"))
    }
    assert {IngestReport, DocumentInfo, AuditRecord, ErasureReport, SearchResult} <= results
    assert {record.__name__ for record in results if not issubclass(record, Serializable)} == set()
