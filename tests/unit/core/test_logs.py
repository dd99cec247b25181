"""Lines of the log: an action each, and no text of a tenant's unless it is asked for."""

import ast
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import kosmos_rag
from kosmos_rag.core.config import ObservabilitySettings
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.logging import set_up_logging

PACKAGE = Path(kosmos_rag.__file__).parent
SOURCES = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "workers").glob("*.py")]
_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def _line(capsys: pytest.CaptureFixture[str], **settings: Any) -> str:
    set_up_logging(ObservabilitySettings(**settings))
    with tracing.continue_trace(f"00-{TRACE}-b7ad6b7169203331-01"):
        result = {"action": "slow_retrieval", "tenant": "acme", "plan": {"dense": 3}, "texts": {"question": "SECRET?"}}
        logging.getLogger("kosmos_rag.retrieval").warning("it took %d ms", 7, extra=result)
    return capsys.readouterr().err


def test_json__has_action_trace_and_what_it_happened_to(capsys: pytest.CaptureFixture[str]) -> None:
    line = _line(capsys, log_format="json")
    entry = json.loads(line)
    assert entry.pop("time")
    assert entry == {
        "level": "WARNING",
        "logger": "kosmos_rag.retrieval",
        "action": "slow_retrieval",
        "message": "it took 7 ms",
        "tenant": "acme",
        "plan": {"dense": 3},
        "trace_id": TRACE,
    }


def test_text__ends_with_what_it_happened_to_and_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    result = "it took 7 ms action=slow_retrieval tenant=acme plan={'dense': 3}"
    assert _line(capsys).endswith(f"{result} [{TRACE}]\n")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_texts__are_written_only_where_asked_for(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    assert "SECRET" not in _line(capsys, log_format=log_format)
    assert "SECRET?" in _line(capsys, log_format=log_format, log_texts=True)


def test_json__of_a_library_that_names_no_action(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(ObservabilitySettings(log_format="json"))
    logging.getLogger("elsewhere").warning("broke")
    entry = json.loads(capsys.readouterr().err)
    assert entry["action"] == "none"


def _broken(capsys: pytest.CaptureFixture[str], **settings: Any) -> str:
    set_up_logging(ObservabilitySettings(**settings))
    text = "SEC" + "RET"  # not in a line of this file, which tracebacks show
    try:
        try:
            int(text)
        except ValueError as error:
            raise ExceptionGroup(text, [KeyError(text)]) from error
    except ExceptionGroup:
        logging.getLogger("kosmos_rag.apps.http").exception("broke", extra={"action": "request_failed"})
    return capsys.readouterr().err


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_exceptions__tell_where_and_what_they_are_and_what_they_say_only_where_asked_for(
    capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    result = _broken(capsys, log_format=log_format)
    assert "SECRET" not in result
    assert "in _broken" in result
    for name in ("builtins.ValueError", "builtins.KeyError", "builtins.ExceptionGroup"):
        assert name in result
    assert "SECRET (1 sub-exception)" in _broken(capsys, log_format=log_format, log_texts=True)


def test_libraries__are_heard_below_a_warning_only_where_texts_are(capsys: pytest.CaptureFixture[str]) -> None:
    for texts in (False, True):
        set_up_logging(ObservabilitySettings(log_level="INFO", log_texts=texts))
        logging.getLogger("httpx").info("HTTP Request: GET https://wiki.example.org/SECRET")
        logging.getLogger("kosmos_rag.worker").info("done", extra={"action": "sync_done"})
        message = capsys.readouterr().err
        assert ("SECRET" in message) is texts
        assert "done" in message


_LOGGERS = ("log", "logger", "_LOG")


def _calls(file: Path) -> list[ast.Call]:
    text = file.read_text()
    if not any(f"{name}." in text for name in _LOGGERS):
        return []
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in _LOGGERS
        and node.func.attr in _METHODS
    ]


def _named_actions(call: ast.Call, file: Path) -> bool:
    extra = next((keyword.value for keyword in call.keywords if keyword.arg == "extra"), None)
    if isinstance(extra, ast.Name):  # made a few lines before
        return f'{extra.id} = {{"action": ' in file.read_text()
    return isinstance(extra, ast.Dict) and any(
        isinstance(key, ast.Constant)
        and key.value == "action"
        and isinstance(value, ast.Constant | ast.Name | ast.JoinedStr)
        for key, value in zip(extra.keys, extra.values, strict=True)
    )


def test_log_lines__name_their_action() -> None:
    calls = [(file, call) for file in SOURCES for call in _calls(file)]
    assert len(calls) > 20
    assert [f"{file}:{call.lineno}" for file, call in calls if not _named_actions(call, file)] == []
