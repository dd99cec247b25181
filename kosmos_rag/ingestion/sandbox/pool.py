"""The zygote as its owner sees it: started on first use, replaced when lost, gone with the process."""

import atexit
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import kosmos_rag
from kosmos_rag.core.errors import ParseError, first_line
from kosmos_rag.ingestion.sandbox.protocol import FORK, READY

_START_S = 60.0
_STOP_S = 5.0
_FORK_S = 10.0
_MODULE = "kosmos_rag.ingestion.sandbox.zygote"


class HelperLost(Exception):
    """The zygote ended, and the children with it."""


class Helper:
    """A running zygote. Thread-safe."""

    def __init__(self) -> None:
        """Start it. Raises OSError, or EOFError where it ends at once."""
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _popen(theirs)
        except BaseException:
            self._control.close()
            raise
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        self._control.settimeout(_START_S)
        if self._control.recv(len(READY)) != READY:
            raise EOFError("it ended before it was ready")
        self._control.settimeout(_FORK_S)

    def fork(self, connection: socket.socket, end: socket.socket) -> None:
        """Ask for a child that serves `connection`; its exit code is written to `end`. Raises HelperLost."""
        try:
            with self._lock:
                socket.send_fds(self._control, [FORK], [connection.fileno(), end.fileno()])
        except OSError as error:
            raise HelperLost from error

    def stop(self) -> None:
        """End the zygote and its children."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def disown(self) -> None:
        """Let go of it in a fork of ours: it is the original's."""
        self._control.close()
        self._process.returncode = 0


def _popen(control: socket.socket) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 — our own module by our own interpreter
        [sys.executable, "-P", "-m", _MODULE],
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for us; we end it
    )


def _environment() -> dict[str, str]:
    """What the zygote needs to find our modules, and nothing that could be a secret."""
    root = str(Path(kosmos_rag.__file__).parents[1])
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
        "LC_ALL": "C.UTF-8",
        # A process that forks must have one thread; these libraries would start more.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        # Of ONNX Runtime, which reads pictures: see `embedding/onnx.py`.
        "ORT_DISABLE_TELEMETRY": "1",
    }


class _Keeper:
    """Holds the one helper of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Helper | None = None

    def current(self) -> Helper:
        with self._lock:
            if self._helper is None:
                self._helper = _started()
            return self._helper

    def discard(self, lost: Helper) -> None:
        """Stop a helper that was lost, unless another thread has replaced it already."""
        with self._lock:
            if self._helper is lost:
                self._helper = None
                lost.stop()

    def stop(self) -> None:
        with self._lock:
            helper, self._helper = self._helper, None
        if helper is not None:
            helper.stop()

    def after_fork(self) -> None:
        # Another thread may have held the lock, and does not exist here.
        self._lock = threading.Lock()
        if self._helper is not None:
            self._helper.disown()
            self._helper = None


def _started() -> Helper:
    try:
        return Helper()
    except (OSError, EOFError) as error:
        message = f"the process that parses files cannot be started ({first_line(error)}); see its output"
        raise ParseError("crashed", message) from error


_KEEPER = _Keeper()
atexit.register(_KEEPER.stop)
os.register_at_fork(after_in_child=_KEEPER.after_fork)

current = _KEEPER.current
discard = _KEEPER.discard
