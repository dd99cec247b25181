"""Labels of questions that no longer describe the documents, from the corpus to verdict, metric and doctor."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.evaluation.jobs import gauges, list_warnings
from kosmos_rag.evaluation.metrics import STALE_LABELS
from kosmos_rag.evaluation.monitor.labels import find_stale_labels
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.offline.questions import Location, Question
from tests.integration.variants import changed, opened

TODAY = datetime.now(UTC).date()
NUMBERS = range(12)
SECTIONS = {"rag.chunking.min_size": 1}
"""Short sections are chunks of their own."""


def _text(number: int) -> bytes:
    return f"# Chapter {number}\n\nIntroduction.\n\n## Rules\n\nThe code of case {number} is token{number}.\n".encode()


def _settings(settings: Settings, tenant_name: str, file: Path) -> Settings:
    return changed(settings, {"monitor.questions": {tenant_name: file}, "monitor.isolation_interval_s": None})


def _fill(engine: Engine, tenant_name: str) -> None:
    sources = [SourceDocument(source=f"wiki/{number}.md", data=_text(number)) for number in NUMBERS]
    engine.tenant(tenant_name).ingest(sources)


def _write(file: Path) -> None:
    entries = [
        {"question": f"What is token{number}?", "source": f"wiki/{number}.md", "section": "Rules"} for number in NUMBERS
    ]
    file.write_text(yaml.safe_dump(entries))


def _run(engine: Engine, tenant_name: str) -> MonitorRun:
    [run] = RecallMonitor(engine).run(tenant_name, [MonitorKind.QUESTIONS])
    return run


@pytest.mark.parametrize(
    ("location", "checked_days_ago", "problem"),
    [
        (Location(source="wiki/1.md"), None, None),
        (Location(source="1", section="rules", lines=(7, 7)), 0, None),
        (Location(source="wiki/1.md", section="Rules"), 1, "changed"),
        (Location(source="wiki/99.md"), 0, "gone"),
        (Location(source="wiki/1.md", section="Policies"), 0, "gone"),
        (Location(source="wiki/1.md", lines=(80, 90)), 0, "gone"),
        (Location(source="other/1.md"), None, "gone"),
        (Location(source="wiki/99.md", grade=0), None, None),
    ],
)
def test_label__is_gone_or_changed(
    settings: Settings, tenant_name: str, location: Location, checked_days_ago: int | None, problem: str | None
) -> None:
    checked = None if checked_days_ago is None else TODAY - timedelta(days=checked_days_ago)
    question = Question(id="q", text="?", locations=(location,), checked=checked)
    with opened(settings, SECTIONS) as engine:
        _fill(engine, tenant_name)
        problems = [label.problem for label in find_stale_labels(engine.tenant(tenant_name), [question])]
    assert problems == ([] if problem is None else [problem])


def test_verdict__names_stale_labels_and_measures_the_others(
    settings: Settings, tenant_name: str, tmp_path: Path
) -> None:
    file = tmp_path / "known.yaml"
    _write(file)
    with opened(_settings(settings, tenant_name, file), SECTIONS) as engine:
        _fill(engine, tenant_name)
        before = _run(engine, tenant_name)
        engine.tenant(tenant_name).delete("wiki/3.md")
        engine.tenant(tenant_name).ingest([SourceDocument(source="wiki/4.md", data=b"# Chapter 4\n\nNo rules.\n")])
        after = _run(engine, tenant_name)
        owner = engine.tenant(tenant_name)
        with owner.sessions.write() as connection:
            (warning,) = list_warnings(connection, owner.id, engine.settings)
    assert (before.figures["stale_labels"], before.figures["questions"]) == (0, 12)
    assert "labels" not in before.reason
    assert (after.figures["stale_labels"], after.figures["questions"]) == (2, 10)
    assert "wiki/3.md#Rules) is gone" in after.reason
    assert "wiki/4.md#Rules) is gone" in after.reason
    assert after.figures["recall_at_10"] >= before.figures["recall_at_10"]
    assert gauges([after])[STALE_LABELS] == 2
    assert warning.startswith("questions known: ")
    assert "wiki/3.md#Rules) is gone" in warning


def test_verdict__is_unknown_where_too_few_labels_are_left(
    settings: Settings, tenant_name: str, tmp_path: Path
) -> None:
    file = tmp_path / "known.yaml"
    _write(file)
    with opened(_settings(settings, tenant_name, file), SECTIONS) as engine:
        engine.tenant(tenant_name).ingest([SourceDocument(source="wiki/1.md", data=_text(1))])
        run = _run(engine, tenant_name)
    assert run.state is MonitorState.UNKNOWN
    assert run.figures["stale_labels"] == 11
    assert "and 8 more" in run.reason
    assert gauges([run]) == {STALE_LABELS: 11}


def test_label__of_a_document_for_some_readers_alone_is_gone(settings: Settings, tenant_name: str) -> None:
    question = Question(id="q", text="?", locations=(Location(source="secret.md"),))
    with opened(settings, SECTIONS) as engine:
        engine.tenant(tenant_name).ingest([SourceDocument(source="secret.md", data=b"Secret.", acl=("group:board",))])
        assert [label.problem for label in find_stale_labels(engine.tenant(tenant_name), [question])] == ["gone"]
        board = engine.tenant(tenant_name, principals=[EVERYONE, "group:board"])
        assert find_stale_labels(board, [question]) == []
