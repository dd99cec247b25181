"""Events of a running log, to targets that are slow, broken or gone."""

import json
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kosmos_rag.apps.cli.app import app
from kosmos_rag.siem.stream import EventStream, StreamReport
from kosmos_rag.siem.targets import EVENT, ExportError

EVENTS: list[dict[str, Any]] = [{"number": number} for number in range(20)]


class GatedTarget:
    """Takes no batch before its gate is open, and fails a number of times first."""

    def __init__(self, failures: int = 0) -> None:
        self.gate = threading.Event()
        self.failures = failures
        self.events: list[EVENT] = []
        self.is_closed = False

    def write(self, events: Sequence[EVENT]) -> int:
        self.gate.wait(30)
        if self.failures:
            self.failures -= 1
            raise ExportError("the target broke")
        self.events += events
        return 0

    def close(self) -> None:
        self.is_closed = True


def test_stream__sends_a_batch_again_until_the_target_takes_it() -> None:
    target = GatedTarget(failures=1)
    target.gate.set()
    with EventStream(target) as stream:
        for event in EVENTS:
            stream.add([event])
    assert target.events == EVENTS
    assert target.is_closed


def test_stream__drops_and_counts_what_a_slow_target_has_no_time_for(caplog: pytest.LogCaptureFixture) -> None:
    target = GatedTarget()
    stream = EventStream(target, max_events=5)
    began = time.monotonic()
    for event in EVENTS:
        stream.add([event])
    assert time.monotonic() - began < 5  # the writer of the log does not wait
    assert "1 events were dropped so far" in caplog.text
    target.gate.set()
    assert stream.close() == StreamReport(exported=5, refused=0, dropped=15)
    assert target.events == EVENTS[:5]


class PickyTarget(GatedTarget):
    """Takes no batch with an odd number, whatever the reason."""

    def write(self, events: Sequence[EVENT]) -> int:
        if any(event["number"] % 2 for event in events):
            raise ValueError("the number is odd")
        return super().write(events)


def test_stream__skips_an_event_that_cannot_be_sent_and_sends_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    target = PickyTarget()
    target.gate.set()
    stream = EventStream(target)
    stream.add(EVENTS)
    assert stream.close() == StreamReport(exported=10, refused=10, dropped=0)
    assert target.events == EVENTS[::2]
    assert "an event cannot be sent, and is skipped" in caplog.text
    assert "the number is odd" in caplog.text


def test_stream__ends_though_the_target_never_works() -> None:
    target = GatedTarget(failures=1000)
    target.gate.set()
    stream = EventStream(target, drain_s=0.5)
    stream.add(EVENTS)
    assert stream.close() == StreamReport(exported=0, refused=0, dropped=20)


def test_convert_log__sends_the_events_of_a_log_with_other_lines_in_it(tmp_path: Path) -> None:
    entry = {"time": "2026-11-27 08:30:00,123", "level": "INFO", "action": "sign_in", "subject": "ada", "scopes": "ask"}
    log = b"starting\n\xff\xfe\n[]\n" + json.dumps(entry).encode() + b"\n"
    target = tmp_path / "security.jsonl"
    result = CliRunner().invoke(app, ["siem", "convert-log", "--to", str(target)], input=log)
    assert result.exit_code == 0, result.output
    assert "2 events sent, 0 refused, 0 dropped" in result.output
    assert "no requests" not in result.output
    assert [json.loads(line)["class_uid"] for line in target.read_text().splitlines()] == [3002, 3003]


ENTRY = {"time": "2026-11-27 08:30:00,123"}


def _convert(tmp_path: Path, *lines: bytes) -> str:
    result = CliRunner().invoke(app, ["siem", "convert-log", "--to", str(tmp_path / "a")], input=b"\n".join(lines))
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**ENTRY, "level": "WARNING", "action": "slow_retrieval"}).encode(),
        json.dumps({**ENTRY, "level": "WARNING", "action": "sign_in_refused"}).encode(),
        b"2026-11-27 08:30:00,123 INFO GET /v1/health 200",
        b'["INFO"]',
    ],
)
def test_convert_log__says_what_a_log_without_requests_needs(tmp_path: Path, line: bytes) -> None:
    assert "the log has no requests: set observability.log_format: json and observability.log_level: INFO" in (
        _convert(tmp_path, line, line)
    )


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [json.dumps({**ENTRY, "level": "INFO", "action": "service_started"}, separators=(",", ":")).encode(), b"text"],
        [b"text", json.dumps({**ENTRY, "severity": "info", "action": "request", "status": 200}).encode()],
    ],
)
def test_convert_log__has_no_advice_for_a_log_that_is_idle_or_has_requests(tmp_path: Path, lines: list[bytes]) -> None:
    assert "no requests" not in _convert(tmp_path, *lines)


def test_convert_log__reads_all_lines_though_no_syslog_server_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kosmos_rag.siem.stream.EventStream", partial(EventStream, drain_s=0.2))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    line = json.dumps({"time": "2026-11-27 08:30:00,123", "action": "sign_in_refused"}).encode() + b"\n"
    result = CliRunner().invoke(app, ["siem", "convert-log", "--to", address], input=line * 20_000)
    assert result.exit_code == 1
    assert "0 events sent, 0 refused, 20000 dropped" in result.output
