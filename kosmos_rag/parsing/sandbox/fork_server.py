"""Start, use and replace the fork server.

It is the process (`zygote`) that forks a child for each file.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from kosmos_rag.core.errors import ParseError, first_line
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.sandbox.isolation import Isolation
from kosmos_rag.parsing.sandbox.protocol import FORK, receive_frame

_ZYGOTE = "kosmos_rag.parsing.sandbox.zygote"
_PROBE = "kosmos_rag.parsing.sandbox.isolation"


class ForkServerLost(Exception):
    """The fork server ended, and its children with it."""


class ForkServer:
    """A running fork server. Thread-safe."""

    def __init__(self) -> None:
        """Start the server. Raises OSError, or EOFError where it ends at once."""
        self._lock = threading.Lock()
        self._control, child_end = socket.socketpair()
        try:
            with child_end:
                self._process = _popen(child_end)
        except BaseException:
            self._control.close()
            raise
        try:
            self.isolation = self._wait_until_ready()
            """What its children cannot reach: it has tried."""
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> Isolation:
        frame = receive_frame(self._control, bounds.MAX_REQUEST_BYTES, time.monotonic() + bounds.MAX_START_S)
        self._control.settimeout(bounds.MAX_FORK_S)
        return Isolation.decode(frame)

    def fork(self, connection: socket.socket, end: socket.socket) -> None:
        """Request a child that serves `connection`.

        Its exit code is written to `end`. Raises ForkServerLost.
        """
        try:
            with self._lock:
                socket.send_fds(self._control, [FORK], [connection.fileno(), end.fileno()])
        except OSError as error:
            raise ForkServerLost from error

    def stop(self) -> None:
        """End the fork server and its children."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(bounds.MAX_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def disown(self) -> None:
        """Close our side in a forked copy of this process.

        The server belongs to the original.
        """
        self._control.close()
        self._process.returncode = 0


def _popen(control: socket.socket) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 — our own module by our own interpreter
        _command(_ZYGOTE),
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for us; we end it
    )


def _command(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]


def _environment() -> dict[str, str]:
    """Return the environment of the fork server: import paths, no secrets."""
    package = find_spec("kosmos_rag")
    assert package is not None, "this module is a part of it"
    root = str(Path(str(package.origin)).parents[1])
    library_paths = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    return library_paths | {
        "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]),
        "LC_ALL": "C.UTF-8",
        # A process that forks must have one thread; these libraries would start more.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        # Of ONNX Runtime, which reads pictures: see `models/onnx.py`.
        "ORT_DISABLE_TELEMETRY": "1",
    }


class ForkServerHolder:
    """Holds the fork server of this process, one at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def current(self) -> ForkServer:
        """Return the running server; start one where there is none. Raises ParseError."""
        with self._lock:
            if self._server is None:
                self._server = _start()
            return self._server

    def discard(self, server: ForkServer) -> None:
        """Stop a lost server, unless another thread has replaced it already."""
        with self._lock:
            if self._server is server:
                self._server = None
                server.stop()

    def stop(self) -> None:
        """Stop the server at the end of this process."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.stop()

    def after_fork(self) -> None:
        """Forget the server in a forked copy of this process."""
        # Another thread may have held the lock, and does not exist here.
        self._lock = threading.Lock()
        if self._server is not None:
            self._server.disown()
            self._server = None


def _start() -> ForkServer:
    """Start a fork server. Raises ParseError."""
    try:
        return ForkServer()
    except (OSError, EOFError) as error:
        message = f"the process that parses files cannot be started ({first_line(error)}); see its output"
        raise ParseError("crashed", message) from error


def probe_isolation() -> Isolation:
    """Return what a parser cannot reach, probed in a short-lived process.

    Raises ParseError.
    """
    command = _command(_PROBE)
    try:
        process = subprocess.run(  # noqa: S603 — our own module by our own interpreter
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=bounds.MAX_START_S,
        )
        return Isolation.decode(process.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = f"the isolation of the parser's process could not be checked ({first_line(error)}); see its output"
        raise ParseError("crashed", message) from error


_HOLDER = ForkServerHolder()
atexit.register(_HOLDER.stop)
os.register_at_fork(after_in_child=_HOLDER.after_fork)

current = _HOLDER.current
discard = _HOLDER.discard
