"""The process that forks the children.

It imports the parsers once, so that a child costs milliseconds.

It has one thread and nothing of the environment it was started from; `isolation` closes its children off. Run as a
module with the control socket as standard input; it ends when that closes.
"""

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import time
import warnings

from kosmos_rag.parsing.sandbox.isolation import Confinement
from kosmos_rag.parsing.sandbox.limits import end_with_parent, keep_only, lower_priority
from kosmos_rag.parsing.sandbox.protocol import FORK, OUT_OF_MEMORY, send_frame
from kosmos_rag.parsing.sandbox.worker import work

_LIBRARIES = (
    "pypdfium2",
    "docx.package",
    "pptx",
    "openpyxl",
    "selectolax.lexbor",
    "chardet",
    "email.policy",
)
"""What the parsers import on first use."""
_SLOW_S = 0.5
"""Seconds after which a child gets a lower priority: other work does not wait for a file that takes long."""


class _Zygote:
    """Forks a child for each pair of sockets, and reports its exit."""

    def __init__(self, control: socket.socket, confinement: Confinement) -> None:
        self._control = control
        self._confinement = confinement
        self._pid = os.getpid()
        self._ends: dict[int, socket.socket] = {}
        """By the child's pid: the socket that takes its end. When the other side closes it, the child is killed."""
        self._started: dict[int, float] = {}
        """By the pid of a child of the usual priority: when it was forked."""
        self._selector = selectors.DefaultSelector()
        self._woken, wake = socket.socketpair()
        for end in (self._woken, wake):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.detach(), warn_on_full_buffer=False)
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self) -> None:
        """Fork until the control socket closes; then kill what still runs."""
        while True:
            for key, _ in self._selector.select(_SLOW_S if self._started else None):
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                elif key.fileobj is not self._control:
                    self._kill(key.data)
                elif not self._accept():
                    self._end()
                    return
            self._reap()
            self._lower_priorities()

    def _accept(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, len(FORK), 2)
        if not message:
            return False
        connection, end = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        with connection:
            self._fork(connection, end)
        return True

    def _fork(self, connection: socket.socket, end: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            _send_exit_code(end, os.EX_OSERR)
            return
        if pid == 0:
            _run_child(connection.detach(), self._pid, self._confinement)
        self._ends[pid] = end
        self._started[pid] = time.monotonic()
        self._selector.register(end, selectors.EVENT_READ, pid)

    def _kill(self, pid: int) -> None:
        # A pid stays the child's until it is reaped, and reaping removes it here.
        if pid in self._ends:
            os.kill(pid, signal.SIGKILL)
            self._selector.unregister(self._ends[pid])

    def _reap(self) -> None:
        while self._ends:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            end = self._ends.pop(pid)
            self._started.pop(pid, None)
            with contextlib.suppress(KeyError):  # gone with the killing
                self._selector.unregister(end)
            _send_exit_code(end, os.waitstatus_to_exitcode(status))

    def _lower_priorities(self) -> None:
        slow = [pid for pid, started in self._started.items() if time.monotonic() - started >= _SLOW_S]
        for pid in slow:
            del self._started[pid]
            lower_priority(pid)

    def _end(self) -> None:
        for pid in self._ends:
            os.kill(pid, signal.SIGKILL)


def _send_exit_code(end: socket.socket, exit_code: int) -> None:
    # The client may have closed its end already.
    with end, contextlib.suppress(OSError):
        end.sendall(str(exit_code).encode())


def _run_child(descriptor: int, parent: int, confinement: Confinement) -> None:
    """Run a forked child; never returns."""
    exit_code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end_with_parent(parent)
        os.setsid()  # for `lower_priority`
        keep_only(descriptor, *confinement.descriptors)
        confinement.apply()
        with socket.socket(fileno=descriptor) as connection:
            work(connection)
        exit_code = 0
    except MemoryError:
        exit_code = OUT_OF_MEMORY
    finally:
        os._exit(exit_code)


def main() -> None:
    """Import the parsers, isolate the process, report the isolation, and serve."""
    warnings.simplefilter("ignore")  # nobody reads what a library says about a file
    for name in _LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):  # of an extra: a file that needs it will report it
            importlib.import_module(name)
    confinement = Confinement.prepare()
    isolation = confinement.probe()
    gc.freeze()  # a collection in a child would copy every page that holds an object
    with socket.socket(fileno=0) as control:
        send_frame(control, isolation.encode())
        _Zygote(control, confinement).serve()


if __name__ == "__main__":
    main()
