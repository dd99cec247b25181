"""The audit log of a tenant in a target: each event at least once, and in order."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.siem.export import export_audit
from kosmos_rag.siem.targets import EVENT, ExportError, FileTarget
from tests.commands import run_command, set_variables
from tests.integration.variants import opened

AUDITED = {"rag.audit.enabled": True, "rag.chunking.min_size": 1}


class BreakingTarget:
    """Takes some batches, and fails after each of the others was taken."""

    def __init__(self, *outcomes: bool) -> None:
        self.outcomes = list(outcomes)
        self.events: list[EVENT] = []

    def write(self, events: Sequence[EVENT]) -> int:
        self.events += events
        if self.outcomes and not self.outcomes.pop(0):
            raise ExportError("the target broke")
        return 0

    def close(self) -> None:
        pass


def _ask(engine: Engine, name: str, *questions: str) -> None:
    tenant = engine.tenant(name, subject="ada")
    tenant.ingest([SourceDocument(source="leave.md", data=b"Employees have twenty days of leave.")])
    for question in questions:
        tenant.search(question)


def _questions(events: Sequence[EVENT]) -> list[str]:
    return [event["unmapped"]["question"] for event in events if event["class_uid"] == 6003]


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_export__has_each_sealed_record_once(settings: Settings, tenant_name: str, tmp_path: Path) -> None:
    target, state = FileTarget(tmp_path / "events.jsonl"), tmp_path / "state.json"
    with opened(settings, AUDITED) as engine:
        tenant = engine.tenant(tenant_name)
        _ask(engine, tenant_name, "first leave", "second leave")
        assert export_audit(tenant, target, state).exported == 0  # nothing is sealed
        tenant.audit.seal()
        assert export_audit(tenant, target, state).exported == 2
        assert export_audit(tenant, target, state).exported == 0
        _ask(engine, tenant_name, "third leave")
        tenant.audit.seal()
        assert export_audit(tenant, target, state).exported == 1
    events = _read_lines(tmp_path / "events.jsonl")
    assert _questions(events) == ["first leave", "second leave", "third leave"]
    assert events[0]["actor"]["user"]["name"] == "ada"
    assert events[0]["resources"][0]["name"] == "leave.md"


@pytest.mark.parametrize(("audited", "reason"), [("false", "rag.audit.enabled is false"), ("true", "only sealed")])
def test_command__says_why_nothing_was_exported(
    settings: Settings, tenant_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audited: str, reason: str
) -> None:
    set_variables(monkeypatch, settings.database, RAG__AUDIT__ENABLED=audited)
    with opened(settings, {}) as engine:
        _ask(engine, tenant_name)
    files = ("--to", str(tmp_path / "events.jsonl"), "--state", str(tmp_path / "state.json"))
    result = run_command("siem", "export", *files, "-t", tenant_name)
    assert result.exit_code == 0, result.output
    assert reason in result.output


def test_export__sends_a_batch_again_that_a_target_has_not_confirmed(
    settings: Settings, tenant_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kosmos_rag.siem.export._BATCH", 2)
    target, state = BreakingTarget(True, False), tmp_path / "state.json"
    questions = [f"leave {number}" for number in range(5)]
    with opened(settings, AUDITED) as engine:
        tenant = engine.tenant(tenant_name)
        _ask(engine, tenant_name, *questions)
        tenant.audit.seal()
        with pytest.raises(ExportError, match="the target broke; run the command again"):
            export_audit(tenant, target, state)
        assert export_audit(tenant, target, state).exported == 3
    assert _questions(target.events) == [*questions[:4], *questions[2:]]
    assert len({event["metadata"]["uid"] for event in target.events}) == 5


def test_export__has_erasures_and_a_position_for_each_tenant(
    settings: Settings, tenant_name: str, tmp_path: Path
) -> None:
    target, state = BreakingTarget(), tmp_path / "state.json"
    with opened(settings, AUDITED) as engine:
        for name in (tenant_name, f"{tenant_name}-b"):
            _ask(engine, name, f"leave of {name}")
            engine.tenant(name).audit.seal()
            engine.tenant(name).erase(source="leave.md")
            export_audit(engine.tenant(name), target, state)
        for name in (tenant_name, f"{tenant_name}-b"):
            assert export_audit(engine.tenant(name), target, state).exported == 0
    erasures = [event for event in target.events if event["class_uid"] == 3004]
    assert [event["metadata"]["tenant_uid"] for event in erasures] == [tenant_name, f"{tenant_name}-b"]
    assert "leave.md" not in json.dumps(erasures)


def test_state__of_something_else_is_refused(settings: Settings, tenant_name: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("[]")
    with (
        opened(settings, AUDITED) as engine,
        pytest.raises(RequestError, match="is not the state of an export"),
    ):
        export_audit(engine.tenant(tenant_name), BreakingTarget(), state)


def test_state__that_cannot_be_written_is_named(settings: Settings, tenant_name: str, tmp_path: Path) -> None:
    with (
        opened(settings, AUDITED) as engine,
        pytest.raises(RequestError, match="cannot be used: No such file or directory; name another file"),
    ):
        export_audit(engine.tenant(tenant_name), BreakingTarget(), tmp_path / "absent" / "state.json")
