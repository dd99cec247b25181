"""Programs that sources run: they end where they are silent, or take longer than a worker waits."""

import os
import resource
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kosmos_rag.ingestion.sources.programs import Program, ProgramFailed, read_blocks

_WRITE = "import sys, time\nfor _ in range(6): print('more', file=sys.{stream}, flush=True); time.sleep(0.3)"
SILENCE_S = 1.0


@pytest.fixture
def python() -> Program:
    return Program(sys.executable, install="install Python")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_program__that_goes_on_writing_may_take_longer_than_its_silence(python: Program, stream: str) -> None:
    output = python.run("-c", _WRITE.format(stream=stream), silence_s=SILENCE_S)
    assert output == (b"more\n" * 6 if stream == "stdout" else b"")


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", "import os, time; os.close(1); time.sleep(60)"])
def test_program__that_is_silent_is_ended(python: Program, program: str) -> None:
    began = time.monotonic()
    with pytest.raises(ProgramFailed, match="wrote nothing for 1 s"):
        python.run("-c", program, silence_s=SILENCE_S)
    assert time.monotonic() - began < 30


def test_program__that_writes_without_end_is_ended(python: Program) -> None:
    endless = "import time\nwhile True: print('more', flush=True); time.sleep(0.01)"
    with (
        pytest.raises(ProgramFailed, match=r"took longer than 1\.5 s"),
        python.stream("-c", endless, silence_s=60.0, longest_s=1.5) as output,
    ):
        output.read()


def test_program__is_read_by_a_process_with_many_open_files(python: Program) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(Path(os.devnull).open())
        assert python.run("-c", "print('one')", silence_s=60.0) == b"one\n"


def test_program__ends_with_what_it_has_started(python: Program, tmp_path: Path) -> None:
    child = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '60']); "
        "print(child.pid, file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)"
    )
    pid = tmp_path / "pid"
    with pytest.raises(ProgramFailed, match="wrote nothing"):
        python.run("-c", child, str(pid), silence_s=SILENCE_S)
    status = Path(f"/proc/{pid.read_text().strip()}/stat")
    for _ in range(100):
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child goes on")


def test_program__waits_for_a_slow_reader(python: Program) -> None:
    with python.stream("-c", "print('x' * 300_000)", silence_s=SILENCE_S) as output:
        time.sleep(2 * SILENCE_S)
        assert sum(map(len, read_blocks(output))) == 300_001


def test_program__ends_where_its_reader_leaves(python: Program) -> None:
    began = time.monotonic()
    with python.stream("-c", "import time; print('x' * 300_000, flush=True); time.sleep(60)", silence_s=60.0) as output:
        output.read(1)
    assert time.monotonic() - began < 30
