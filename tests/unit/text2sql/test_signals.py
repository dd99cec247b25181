"""The signals of schemas, each by itself, with the weights of schema-classic."""

from dataclasses import replace
from typing import Any

import pytest

from kosmos_rag import Settings
from kosmos_rag.core.config.presets import load
from kosmos_rag.core.types import Passage
from kosmos_rag.engine.signals import SelectionSignal
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.retrieval.signals.registry import build_signals, load_signal_classes
from kosmos_rag.text2sql.signals import SCHEMA_RULES
from tests.unit.retrieval.signals.passages import build_query, passage

CLASSIC = build_signals(
    load("schema-classic", Settings.load(), validate=build_signal_rules).values["rag"]["signals"], "rag.signals"
)


def test_signals__are_mounted_in_the_ranking() -> None:
    assert SCHEMA_RULES.keys() <= load_signal_classes().keys()
    assert set(SCHEMA_RULES) == {
        "schema_entities", "schema_exact", "schema_lexical", "schema_penalty", "schema_recipe", "schema_status",
        "schema_targets",
    }  # fmt: skip


def _column(table: str, model: str, column: str, *, cosine: float = 0.5, **message: Any) -> Passage:
    metadata = {"kind": "schema_column", "table": table, "model": model, "column": column, **message}
    return passage(metadata=metadata, dense_score=cosine)


def _recipe(pattern: str, *, curated: bool) -> Passage:
    metadata = {"kind": "query_recipe", "pattern": pattern, "curated": curated, "keywords": ["program", "count"]}
    return passage(metadata=metadata, dense_score=0.5)


def _added(name: str, hit: Passage, question: str) -> float:
    signal = CLASSIC[name]
    if isinstance(signal, SelectionSignal):
        return signal.select(build_query(question), [hit])[0].score - hit.score
    return signal.weight * signal.value(build_query(question), hit)


SUCCESS = _column("program_statistics", "ProgramStatistics", "success_count")
STATUS = _column("program_runs", "ProgramRun", "status", values=["pending", "failed", "succeeded", "running"])
CREATED = _column("programs", "Program", "created_at", type="TIMESTAMP", keywords=["created", "at"])
NAME = _column("programs", "Program", "name", keywords=["name"])
PROGRAM_NAME = _column("programs", "Program", "name", keywords=["program", "name", "warning"])
KNOWN_NAME = _column("programs", "Program", "name", keywords=["name"], values=["acid rain warning"])
FOR_PROGRAM = passage(
    metadata={
        "kind": "query_recipe",
        "pattern": "aggregation",
        "curated": True,
        "keywords": ["program", "count"],
        "columns": ["program_statistics.success_count", "programs.name"],
    },
    dense_score=0.5,
)
SIZE = _column("run_outputs", "RunOutput", "size_bytes", type="BIGINT", keywords=["size", "bytes"])


@pytest.mark.parametrize(
    ("name", "hit", "question", "added"),
    [
        ("schema_lexical", SUCCESS, "the success count", 3.0),
        ("schema_lexical", SUCCESS, "success counts in program statistics", 3.0 + 2.0 + 1.5),
        ("schema_lexical", SUCCESS, "the count", 0.0),
        ("schema_exact", SUCCESS, "success count of the program", 6.0),
        ("schema_exact", SUCCESS, "success count", 0.0),
        ("schema_status", STATUS, "status of runs", 4.0),
        ("schema_status", STATUS, "runs that failed", 5.0),
        ("schema_status", STATUS, "status of failed, pending or running runs", 6.0),
        ("schema_status", STATUS, "runs by machine", 0.0),
        ("schema_status", SUCCESS, "status", 0.0),
        ("schema_recipe", _recipe("aggregation", curated=True), "how many program runs", 4.0 + 2.0),
        ("schema_recipe", _recipe("aggregation", curated=False), "total of the program", 2.0),
        ("schema_recipe", _recipe("temporal", curated=True), "program", 4.0),
        ("schema_recipe", _recipe("temporal", curated=False), "latest program", 2.0),
        ("schema_recipe", _recipe("status", curated=False), "failed program", 2.0),
        ("schema_recipe", _recipe("relationship", curated=False), "variants of a program", 2.0),
        ("schema_recipe", _recipe("aggregation", curated=True), "how many zebras", 0.0),
        ("schema_entities", NAME, 'program "forest fire"', 3.0),
        ("schema_entities", NAME, "programs", 0.0),
        ("schema_entities", CREATED, "programs since yesterday", 2.0),
        ("schema_entities", CREATED, "when was the program created", 2.0 + 2.0),
        ("schema_entities", SIZE, "outputs of more than 500 bytes", 1.0),
        ("schema_entities", SIZE, "size of outputs", 0.0),
        ("schema_entities", PROGRAM_NAME, "the forest fire program", 3.0),
        ("schema_entities", PROGRAM_NAME, "failures for program forest fire", 3.0),
        ("schema_entities", PROGRAM_NAME, "average run time of the program", 0.0),
        ("schema_entities", KNOWN_NAME, "name of the acid rain warning", 3.0),
        ("schema_entities", FOR_PROGRAM, "success count for the forest fire program", 3.0 + 1.0),
        ("schema_lexical", FOR_PROGRAM, "success count for the forest fire program", 3.0),
        ("schema_exact", FOR_PROGRAM, "success count for the forest fire program", 6.0),
        ("schema_penalty", _column("users", "User", "email", cosine=0.1), "success of programs", -3.0),
        ("schema_penalty", _column("users", "User", "success", cosine=0.1), "success of programs", -2.0),
        ("schema_penalty", _column("users", "User", "email", cosine=0.5), "success of programs", 0.0),
    ],
)
def test_bonuses_and_penalties__are_those_of_the_preset(name: str, hit: Passage, question: str, added: float) -> None:
    assert _added(name, hit, question) == pytest.approx(added)


@pytest.mark.parametrize("name", list(CLASSIC))
def test_other_documents__are_left_as_they_are(name: str) -> None:
    assert _added(name, passage("success count of the program"), "success count of the program") == 0.0


def test_the_points_of_a_recipe__are_added_to_the_column_that_it_returns() -> None:
    signal = CLASSIC["schema_targets"]
    assert isinstance(signal, SelectionSignal)
    recipe, weaker = replace(FOR_PROGRAM, score=19.74), replace(FOR_PROGRAM, score=15.0)
    hits = signal.select(
        build_query("success count"), [recipe, weaker, replace(NAME, score=12.0), replace(SUCCESS, score=9.84)]
    )
    assert [hit.score for hit in hits] == [pytest.approx(29.58), 19.74, 15.0, 12.0], "the best recipe, once"
    assert [hit.rank for hit in hits] == [1, 2, 3, 4]
