"""Restrict the files that a process may open, by Landlock: https://docs.kernel.org/userspace-api/landlock.html.

Called through ctypes: the packages for it on the index are pre-releases, or were first released this year.
"""

import ctypes
import os
import sys
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any


class _SystemCall(IntEnum):
    """System calls of this age have one number on all processors."""

    CREATE_RULESET = 444
    ADD_RULE = 445
    RESTRICT_SELF = 446


class _Landlock(IntEnum):
    """The names and numbers of linux/landlock.h, without their prefix."""

    CREATE_RULESET_VERSION = 1
    RULE_PATH_BENEATH = 1
    ACCESS_FS_EXECUTE = 1 << 0
    ACCESS_FS_READ_FILE = 1 << 2
    ACCESS_FS_READ_DIR = 1 << 3
    ACCESS_NET_BIND_TCP = 1 << 0
    ACCESS_NET_CONNECT_TCP = 1 << 1
    SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
    SCOPE_SIGNAL = 1 << 1


class _Since(IntEnum):
    """The first version of the interface that restricts something."""

    TCP = 4
    SCOPE = 6


_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""By the first version of the interface that has them: how many rights there are, one bit each."""
_TCP = _Landlock.ACCESS_NET_BIND_TCP | _Landlock.ACCESS_NET_CONNECT_TCP
_ABSTRACT_SOCKETS_AND_SIGNALS = _Landlock.SCOPE_ABSTRACT_UNIX_SOCKET | _Landlock.SCOPE_SIGNAL

_LIBC: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """Return the version of the kernel's interface.

    The result is 0 where it has none, or refuses it.
    """
    if _LIBC is None:
        return 0
    try:
        return _call(_SystemCall.CREATE_RULESET, None, 0, _Landlock.CREATE_RULESET_VERSION)
    except OSError:
        return 0


def create_ruleset(readable: Iterable[Path], *, runnable: bool = False, writable: Iterable[Path] = ()) -> int | None:
    """Return the descriptor of a ruleset that allows these paths only; None without Landlock.

    Args:
        readable: files and folders that may be read.
        runnable: whether these may be run too.
        writable: folders in which everything is allowed.
    """
    supported = version()
    if not supported:
        return None
    all_rights = (1 << max(n for since, n in _FILE_RIGHTS.items() if since <= supported)) - 1
    attributes = _RulesetAttributes(
        handled_access_fs=all_rights,
        handled_access_net=_TCP if supported >= _Since.TCP else 0,
        scoped=_ABSTRACT_SOCKETS_AND_SIGNALS if supported >= _Since.SCOPE else 0,
    )
    ruleset = _call(_SystemCall.CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    reading = _Landlock.ACCESS_FS_READ_FILE | (_Landlock.ACCESS_FS_EXECUTE if runnable else 0)
    for path in readable:
        _allow(ruleset, path, reading | (_Landlock.ACCESS_FS_READ_DIR if path.is_dir() else 0))
    for path in writable:
        _allow(ruleset, path, all_rights)
    return ruleset


def restrict(ruleset: int) -> None:
    """Enforce a ruleset on this thread and its children, permanently.

    Needs `PR_SET_NO_NEW_PRIVS`. Raises OSError.
    """
    _call(_SystemCall.RESTRICT_SELF, ruleset, 0)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it is not there, so nobody needs it
    try:
        rule = _PathBeneath(allowed_access=rights, parent_fd=descriptor)
        _call(_SystemCall.ADD_RULE, ruleset, _Landlock.RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: Any) -> int:
    # Of the width of a register: ctypes would pass 32 bits, and the kernel reads 64.
    result = int(_LIBC.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
