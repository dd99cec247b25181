"""Refuse system calls to a process, by seccomp: https://docs.kernel.org/userspace-api/seccomp_filter.html.

A filter is a program of the classic Berkeley Packet Filter over the number and the arguments of a call. It is written
out here: the bindings of libseccomp on the index need its shared library, and a list of refused calls needs none.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any


class _Control(IntEnum):
    """What linux/prctl.h and linux/seccomp.h have for `prctl`."""

    PR_GET_SECCOMP = 21
    PR_SET_SECCOMP = 22
    SECCOMP_MODE_FILTER = 2


class _Operation(IntEnum):
    """Instructions of linux/bpf_common.h with their modes."""

    LOAD_WORD = 0x20
    JUMP_IF_EQUAL = 0x15
    JUMP_IF_AT_LEAST = 0x35
    JUMP_IF_BIT_IS_SET = 0x45
    RETURN = 0x06


class _Action(IntEnum):
    """What linux/seccomp.h does with a call; the error number is added to ERRNO."""

    ALLOW = 0x7FFF0000
    KILL_PROCESS = 0x80000000
    ERRNO = 0x00050000


class _Offset(IntEnum):
    """Where the fields of struct seccomp_data are."""

    NUMBER = 0
    ARCHITECTURE = 4
    FIRST_ARGUMENT = 16


class _Bit(IntEnum):
    """Bits of numbers and arguments of system calls."""

    CLONE_THREAD = 0x10000
    X32 = 0x40000000
    """Of the numbers of a second set of system calls on x86_64."""


_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""By the name of the processor: its number in linux/audit.h, and its column in `NUMBERS`."""

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # Sockets: the child has the one that it answers on.
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # Memory and queues that processes share by a number.
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "kcmp": (312, 272), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "setpriority": (141, 140),
    # New processes and programs; threads are allowed, see `confining_filter`.
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    # Parts of the kernel that have had many faults, and that no parser needs.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "open_by_handle_at": (304, 265),
    "modify_ldt": (154, None), "iopl": (172, None), "ioperm": (173, None),
    # Refused by their arguments, or not by `confining_filter`.
    "clone": (56, 220), "clone3": (435, 435), "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261),
    "prctl": (157, 167), "landlock_create_ruleset": (444, 444),
}  # fmt: skip
"""Numbers of system calls on x86_64 and on aarch64 (asm/unistd_64.h, asm-generic/unistd.h)."""

_BY_ARGUMENTS = frozenset({"clone", "clone3", "kill", "tgkill", "prlimit64", "prctl", "landlock_create_ruleset"})
_ON_CONNECTED_SOCKETS = frozenset({"sendto", "sendmsg", "sendmmsg"})
"""Reach other sockets by an address; on a connected one the child answers."""
_FOR_PROGRAMS = frozenset(
    {"socket", "bind", "listen", "accept", "accept4", "fork", "vfork", "execve", "execveat", "tkill", "shmget", "shmat"}
    | {"shmctl", "semget", "setpriority"}
)
"""What a program needs that starts others, and is harmless without a connection."""

_LIBC: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def is_available() -> bool:
    """Return whether the kernel and processor support the filter."""
    return (
        _LIBC is not None
        and platform.machine() in _ARCHITECTURES
        and _LIBC.prctl(_Control.PR_GET_SECCOMP, 0, 0, 0, 0) >= 0
    )


def confining_filter(pid: int) -> bytes:
    """Return a filter for the process `pid`: no sockets, programs, processes, namespaces.

    Signals to itself alone.
    """
    program = refusing_filter(
        dict.fromkeys(NUMBERS.keys() - _BY_ARGUMENTS - _ON_CONNECTED_SOCKETS, errno.EPERM) | {"clone3": errno.ENOSYS}
    )
    refuse = _instruction(_Operation.RETURN, _Action.ERRNO | errno.EPERM)
    allow = program[-_INSTRUCTION.size :]
    argument = _instruction(_Operation.LOAD_WORD, _Offset.FIRST_ARGUMENT)
    # The C library tries `clone` after `clone3`, whose flags lie in memory that a filter cannot read.
    threads_only = [
        argument,
        _instruction(_Operation.JUMP_IF_BIT_IS_SET, _Bit.CLONE_THREAD, skip_if=1),
        refuse,
        allow,
    ]
    itself_only = [argument, _instruction(_Operation.JUMP_IF_EQUAL, pid, skip_if=1), refuse, allow]
    itself_or_zero = [
        argument,
        _instruction(_Operation.JUMP_IF_EQUAL, pid, skip_if=2),
        _instruction(_Operation.JUMP_IF_EQUAL, 0, skip_if=1),
        refuse,
        allow,
    ]
    rules = [("clone", threads_only), ("kill", itself_only), ("tgkill", itself_only), ("prlimit64", itself_or_zero)]
    by_arguments = b"".join(_for_call(name, body) for name, body in rules)
    return program[: -_INSTRUCTION.size] + by_arguments + allow


def disconnecting_filter() -> bytes:
    """Return a filter for a program that starts others: no connections, other memory, namespaces.

    It may listen on sockets of its own. Nobody else's is reached, wherever its file is.
    """
    return refusing_filter(dict.fromkeys(NUMBERS.keys() - _BY_ARGUMENTS - _FOR_PROGRAMS, errno.EPERM))


def refusing_filter(calls: Mapping[str, int]) -> bytes:
    """Return a filter that refuses calls and allows all others.

    Each refused call returns its error number.
    """
    architecture, _ = _ARCHITECTURES[platform.machine()]
    head = [
        _instruction(_Operation.LOAD_WORD, _Offset.ARCHITECTURE),
        _instruction(_Operation.JUMP_IF_EQUAL, architecture, skip_if=1),
        _instruction(_Operation.RETURN, _Action.KILL_PROCESS),
        _instruction(_Operation.LOAD_WORD, _Offset.NUMBER),
        _instruction(_Operation.JUMP_IF_AT_LEAST, _Bit.X32, skip_else=1),
        _instruction(_Operation.RETURN, _Action.ERRNO | errno.ENOSYS),
    ]
    refused = [
        _for_call(name, [_instruction(_Operation.RETURN, _Action.ERRNO | code)]) for name, code in sorted(calls.items())
    ]
    return b"".join([*head, *refused, _instruction(_Operation.RETURN, _Action.ALLOW)])


def install(program: bytes) -> None:
    """Filter the system calls of this thread and of what it starts.

    Needs `PR_SET_NO_NEW_PRIVS`. Raises OSError.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    filters = _Program(length=len(program) // _INSTRUCTION.size, instructions=ctypes.addressof(buffer))
    if _LIBC.prctl(_Control.PR_SET_SECCOMP, _Control.SECCOMP_MODE_FILTER, ctypes.byref(filters), 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


_INSTRUCTION = struct.Struct("=HBBI")


def _instruction(code: int, value: int, *, skip_if: int = 0, skip_else: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, skip_if, skip_else, value)


def _for_call(name: str, body: Sequence[bytes]) -> bytes:
    """Run `body`, which ends the program, at the call of this name.

    The processor may have none.
    """
    _, column = _ARCHITECTURES[platform.machine()]
    number = NUMBERS[name][column]
    return (
        b"" if number is None else _instruction(_Operation.JUMP_IF_EQUAL, number, skip_else=len(body)) + b"".join(body)
    )
