"""The command that sends the events of a service's log, in a pipe that is stopped."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LINE = {"action": "request", "status": 403, "time": "2026-01-01T00:00:00+00:00", "method": "GET", "route": "/v1/files"}
DEADLINE_S = 60


def _write_line(process: subprocess.Popen[bytes], subject: str) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(LINE | {"subject": subject}).encode() + b"\n")
    process.stdin.flush()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_convert_log__sends_what_the_service_writes_after_a_stop_of_both(tmp_path: Path, stop: signal.Signals) -> None:
    """Ctrl-C reaches both ends of a pipe, and the service has more to write until it ends."""
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-m", "kosmos_rag", "siem", "convert-log", "--to", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _write_line(process, "ada")
        deadline = time.monotonic() + DEADLINE_S
        while not path.exists() and process.poll() is None:  # it reads
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(stop)
        time.sleep(0.2)
        _write_line(process, "bob")
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert b"2 events sent, 0 refused, 0 dropped" in output
    names = [json.loads(line)["actor"]["user"]["name"] for line in path.read_text().splitlines()]
    assert names == ["ada", "bob"]
