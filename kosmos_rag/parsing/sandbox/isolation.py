"""Isolation layers of a parser's process, and a probe that tests them.

Each layer may be missing: containers refuse namespaces, old kernels lack Landlock. What counts is what the probe could
not reach. Run as a module it prints that for its parent.
"""

import json
import os
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from kosmos_rag.parsing.sandbox import landlock, seccomp
from kosmos_rag.parsing.sandbox.limits import clear_dumpable, drop_privileges, leave_network

LAYERS = ("namespaces", "seccomp", "landlock")
TARGETS = ("network", "processes", "files")
"""Unreachable for a parser: any socket; environment, memory and signals of other processes; files of others."""

_PACKAGE = Path(__file__).parents[2]
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/dev/null", "/dev/urandom",
    "/dev/zero", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolation:
    """The protection of a parser: inaccessible resources and active layers."""

    layers: tuple[str, ...]
    """Those of `LAYERS` that are in force."""
    denied: tuple[str, ...]
    """Those of `TARGETS` that a child could not reach."""

    @property
    def complete(self) -> bool:
        """Whether the child reaches none of `TARGETS`."""
        return not self.reachable

    @property
    def reachable(self) -> tuple[str, ...]:
        """Those of `TARGETS` that a child can reach."""
        return tuple(target for target in TARGETS if target not in self.denied)

    @property
    def missing_layers(self) -> tuple[str, ...]:
        """Those of `LAYERS` that are not active."""
        return tuple(layer for layer in LAYERS if layer not in self.layers)

    def describe(self) -> str:
        """Return the reachable targets and the missing layers in one line."""
        suffix = f"; without {', '.join(self.missing_layers)}" if self.missing_layers else ""
        if self.complete:
            return f"a parser's process reaches no {', '.join(TARGETS[:-1])} or {TARGETS[-1]} of others{suffix}"
        return f"a parser's process can reach: {', '.join(self.reachable)}{suffix}"

    def remedy(self) -> str:
        """Return what the process can reach, and what to do about it.

        For a process that runs with `ingestion.parsing.require_isolation`.
        """
        return (
            f"{self.describe()}; let containers use seccomp filters and Landlock, on Linux 5.13 or newer "
            "(docs/parsing.md), or set ingestion.parsing.require_isolation to false"
        )

    def encode(self) -> bytes:
        """Write the isolation as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes | bytearray) -> Self:
        """Read what `encode` wrote. Raises ValueError."""
        try:
            fields = json.loads(data)
            return cls(layers=tuple(fields["layers"]), denied=tuple(fields["denied"]))
        except (KeyError, TypeError) as error:
            raise ValueError("no description of an isolation") from error


class Confinement:
    """The isolation layers that this process applies to its children."""

    def __init__(self, *, namespaces: bool, ruleset: int | None, has_seccomp: bool) -> None:
        self._namespaces = namespaces
        self._ruleset = ruleset
        self._has_seccomp = has_seccomp

    @classmethod
    def prepare(cls) -> Self:
        """Confine this single-threaded process and prepare the rest for its children."""
        clear_dumpable()
        ruleset = landlock.create_ruleset(_readable())
        namespaces = leave_network()
        drop_privileges()
        return cls(namespaces=namespaces, ruleset=ruleset, has_seccomp=seccomp.is_available())

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a child must keep open until `apply`."""
        return () if self._ruleset is None else (self._ruleset,)

    @property
    def layers(self) -> tuple[str, ...]:
        """Those of `LAYERS` that are available."""
        states = {"namespaces": self._namespaces, "seccomp": self._has_seccomp, "landlock": self._ruleset is not None}
        return tuple(layer for layer in LAYERS if states[layer])

    def apply(self) -> None:
        """Isolate this process, a child that was just forked.

        Raises OSError.
        """
        if self._ruleset is not None:
            landlock.restrict(self._ruleset)
            os.close(self._ruleset)
        if self._has_seccomp:
            seccomp.install(seccomp.confining_filter(os.getpid()))

    def probe(self) -> Isolation:
        """Fork a child that tries to reach what it must not."""
        parents = [pid for pid in (os.getpid(), os.getppid()) if pid]
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.apply()
                os.write(write, json.dumps(list(_probe_targets(parents))).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            output = pipe.read()
        os.waitpid(pid, 0)
        return Isolation(layers=self.layers, denied=tuple(json.loads(output or b"[]")))


def _readable() -> Iterator[Path]:
    """Yield the folders that the parsers' libraries are loaded from.

    They are installed packages, ours, and the system's libraries. Not every folder of `sys.path` is among them: that of
    a program contains its settings and its secrets.
    """
    yield _PACKAGE
    for name in ("stdlib", "platstdlib"):
        yield Path(sysconfig.get_path(name))
    for prefix in (sys.prefix, sys.base_prefix):
        yield Path(prefix, "lib")
    for entry in filter(None, sys.path):
        if any(Path(entry).glob("*.dist-info")):
            yield Path(entry)
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        yield Path(folder)
    yield from map(Path, _SYSTEM)


def _probe_targets(parents: list[int]) -> Iterator[str]:
    """Yield those of `TARGETS` that this process fails to reach.

    Only Linux is known well enough to say so.
    """
    if sys.platform != "linux":
        return
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    if not any(_succeeds(_open_socket, family) for family in families):
        yield "network"
    signalled = any(_succeeds(os.kill, pid, 0) for pid in parents)
    paths = [f"/proc/{pid}/{name}" for pid in parents for name in ("environ", "mem")]
    if not signalled and not any(_succeeds(_open, path) for path in paths):
        yield "processes"
    if not _succeeds(_open, "/"):
        yield "files"


def _open_socket(family: int) -> None:
    socket.socket(family).close()


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _succeeds(attempt: Callable[..., None], *arguments: object) -> bool:
    with suppress(OSError):
        attempt(*arguments)
        return True
    return False


if __name__ == "__main__":
    sys.stdout.buffer.write(Confinement.prepare().probe().encode())
