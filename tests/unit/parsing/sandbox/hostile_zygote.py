"""The zygote with a parser that a file has taken over: it tries to get out, and answers with what it got hold of."""

import ctypes
import json
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kosmos_rag.parsing.sandbox import zygote
from kosmos_rag.parsing.sandbox.protocol import receive_frame, receive_request, send_frame

LIBC: Any = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _called(result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _read(path: str, offset: int = 0, length: int = 4096) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.pread(descriptor, length, offset)


def _read_memory(pid: int, address: int) -> None:
    buffer = ctypes.create_string_buffer(16)
    local, remote = _Vector(ctypes.addressof(buffer), 16), _Vector(address, 16)
    _called(LIBC.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))


def _attach(pid: int) -> None:
    _called(LIBC.ptrace(_PTRACE_ATTACH, pid, None, None))
    LIBC.waitpid(pid, None, 0)
    LIBC.ptrace(_PTRACE_DETACH, pid, None, None)


def _connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as connection:
        connection.connect(address)
        connection.send(b"out")


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _attempts(aim: dict[str, Any]) -> dict[str, Callable[[], object]]:
    owner, outside = aim["owner"], aim["outside"]
    attempts: dict[str, Callable[[], object]] = {
        "connects to a port": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", aim["port"])),
        "sends a datagram": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", aim["port"])),
        "connects to a socket file": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, aim["socket"]),
        "reads the memory of its owner by a call": lambda: _read_memory(owner, aim["address"]),
        "traces its owner": lambda: _attach(owner),
        "signals its owner": lambda: os.kill(owner, 0),
        "signals the zygote": lambda: os.kill(os.getppid(), 0),
        "signals the group": lambda: os.kill(0, signal.SIGCONT),
        "limits its owner": lambda: _called(LIBC.prlimit(owner, 7, None, ctypes.create_string_buffer(16))),
        "reads a file": lambda: _read(outside),
        "truncates a file": lambda: os.truncate(outside, 0),
        "removes a file": lambda: Path(outside).unlink(),
        "makes a folder": lambda: Path(f"{outside}-new").mkdir(),
        "lists a folder": lambda: list(Path(outside).parent.iterdir()),
        "starts a program": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "replaces itself": lambda: os.execv("/nonexistent", ["true"]),
        "leaves a process behind": _fork,
    }
    for name, pid in (("its owner", owner), ("the zygote", os.getppid()), ("a sibling", aim["sibling"])):
        attempts |= {
            f"reads the environment of {name}": partial(_read, f"/proc/{pid}/environ"),
            f"opens the memory of {name}": partial(_read, f"/proc/{pid}/mem", aim["address"], 16),
        }
    return attempts


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except FileNotFoundError:
        return True  # it got as far as looking
    except OSError:
        return False
    return True


def attack(connection: socket.socket) -> None:
    """Try everything, or wait as somebody's sibling; answer with what succeeded."""
    receive_request(connection)
    aim = json.loads(receive_frame(connection, 2**20))
    if aim == "wait":
        send_frame(connection, str(os.getpid()).encode())
        signal.pause()
    names = [name for name, attempt in _attempts(aim).items() if _succeeds(attempt)]
    send_frame(connection, json.dumps(names).encode())


if __name__ == "__main__":
    vars(zygote)["work"] = attack
    zygote.main()
