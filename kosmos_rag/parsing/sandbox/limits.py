"""Limit the resources and privileges of a process.

Where a system lacks one of these limits, the others still apply.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from enum import IntEnum
from pathlib import Path

from kosmos_rag.parsing import bounds


class _Linux(IntEnum):
    """The names and numbers of linux/prctl.h, linux/sched.h, linux/mount.h and linux/capability.h."""

    PR_SET_PDEATHSIG = 1
    PR_SET_DUMPABLE = 4
    PR_SET_NO_NEW_PRIVS = 38
    CLONE_NEWNS = 0x00020000
    CLONE_NEWUSER = 0x10000000
    CLONE_NEWNET = 0x40000000
    MS_BIND = 0x1000
    CAPABILITY_VERSION_3 = 0x20080522


_NICENESS = 7
"""About a fifth of the processor time of an ordinary process, where both need it."""

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def clear_dumpable() -> None:
    """Hide the process's memory from the user's other processes.

    Its environment too, and no core dump is written.
    """
    if _LIBC is not None:
        _LIBC.prctl(_Linux.PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_privileges() -> None:
    """Drop all capabilities, and the means to gain any. Linux only.

    Root's too; starting a program gains none.
    """
    if _LIBC is not None:
        _LIBC.prctl(_Linux.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        header = (ctypes.c_uint32 * 2)(_Linux.CAPABILITY_VERSION_3, 0)
        _LIBC.capset(header, (ctypes.c_uint32 * 6)())


def leave_network() -> bool:
    """Enter an empty network namespace.

    Returns whether the kernel lets an ordinary user do so. The user namespace that this takes also hides the
    environment and memory of this user's other processes. The process must
    have one thread: the kernel refuses others.
    """
    return _LIBC is not None and _LIBC.unshare(_Linux.CLONE_NEWUSER | _Linux.CLONE_NEWNET) == 0


def replace_temporary_folder(path: Path, folder: Path) -> bool:
    """Let this process see `folder` where others see the folder of temporary files at `path`.

    After `leave_network`, whose namespace allows it. Returns whether the kernel does.
    """
    if _LIBC is None or _LIBC.unshare(_Linux.CLONE_NEWNS):
        return False
    return not _LIBC.mount(os.fsencode(folder), os.fsencode(path), None, ctypes.c_ulong(_Linux.MS_BIND), None)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which forked it, ends.

    Linux only. The kernel means the thread that forked, so this is of no use to the child of a process of several
    threads.
    """
    if _LIBC is not None:
        _LIBC.prctl(_Linux.PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def lower_priority(pid: int) -> None:
    """Give a process less processor time, where others need it.

    It is the only one of its session.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + _NICENESS)
    # Where Linux groups processes by session, the value of the session decides.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS))


def keep_only(*descriptors: int) -> None:
    """Close all other descriptors; the standard streams become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = 3
    for descriptor in sorted(descriptors):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, min(allowed, bounds.MAX_DESCRIPTOR))


def limit_resources(*, memory_bytes: int, cpu_s: int) -> None:
    """Limit memory, processor time, open files, file writes and core dumps."""
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_FSIZE, 0)
    lower_limit(resource.RLIMIT_NOFILE, bounds.MAX_OPEN_FILES)
    # At the soft limit comes SIGXCPU, which shows the reason; at the hard one SIGKILL.
    lower_limit(resource.RLIMIT_CPU, cpu_s, grace=bounds.CPU_GRACE_S)
    # macOS knows this limit and refuses it.
    with contextlib.suppress(OSError, ValueError):
        lower_limit(resource.RLIMIT_AS, memory_bytes)


def lower_limit(kind: int, value: int, *, grace: int = 0) -> None:
    """Lower a limit permanently. The hard limit may be lower already.

    Args:
        kind: the limit, `resource.RLIMIT_…`.
        value: soft limit, in the unit of its kind.
        grace: what the hard limit has above it.
    """
    _, hard = resource.getrlimit(kind)
    highest = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    resource.setrlimit(kind, (min(value, highest), highest))
