"""Programs that sources run, such as git and rclone, as long as they write something."""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, BinaryIO, cast

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError

if TYPE_CHECKING:
    from subprocess import Popen

    from _typeshed import WriteableBuffer

_BLOCK_BYTES = 1024 * 1024
LONGEST_S = 3000.0
"""Seconds after which a call is ended, less than a worker waits for a document or for the first entry of a listing."""
_MESSAGE_BYTES = 4096


class ProgramFailed(Exception):
    """A program ended with an error, wrote nothing for too long, or took too long.

    Sources translate it: the message is what the program itself says.
    """

    def __init__(self, message: str, *, code: int | None, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        """Exit status; None if the program was ended from outside."""
        self.output = output
        """The end of what it wrote to its error output."""


class Program:
    """A program of this machine with fixed arguments and environment. Thread-safe."""

    def __init__(
        self, name: str, *, install: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Find the program.

        Raises ConfigError if it is not installed.

        Args:
            name: its name on the path.
            install: how to install it, for the message.
            arguments: what each call begins with.
            environment: the whole environment of a call; None for that of this process.
        """
        path = shutil.which(name)
        if path is None:
            raise ConfigError(f"a source needs the program {name}, which is not on the path: {install}")
        self.name = name
        self._command = (path, *arguments)
        self._environment = environment

    def run(self, *arguments: str, silence_s: float, folder: Path | None = None, data: bytes | None = None) -> bytes:
        """Run the program and return its output.

        Raises ProgramFailed.

        Args:
            arguments: the arguments of this call.
            silence_s: seconds after which it is ended where it writes neither output nor messages.
            folder: its working folder.
            data: what it reads.
        """
        with self.stream(*arguments, silence_s=silence_s, folder=folder, data=data) as output:
            return output.read()

    @contextmanager
    def stream(
        self,
        *arguments: str,
        silence_s: float,
        longest_s: float = LONGEST_S,
        folder: Path | None = None,
        data: bytes | None = None,
    ) -> Iterator[BinaryIO]:
        """Run the program while its output is read.

        It is ended where the reader leaves early. Raises ProgramFailed at the end of the output.

        Args:
            arguments: see `run`.
            silence_s: see `run`. A reader that takes its time does not count.
            longest_s: seconds after which it is ended in any case, the time of the reader included.
            folder: see `run`.
            data: see `run`.
        """
        with tempfile.TemporaryFile() as messages, tempfile.TemporaryFile() as stdin:
            stdin.write(data or b"")
            stdin.seek(0)
            with subprocess.Popen(  # noqa: S603 — a program of the path, and arguments that no shell reads
                (*self._command, *arguments),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=messages,
                bufsize=0,
                cwd=folder,
                env=self._environment,
                start_new_session=True,
            ) as process:
                watched = _WatchedOutput(self.name, process, messages, silence_s=silence_s, longest_s=longest_s)
                try:
                    yield cast("BinaryIO", BufferedReader(watched))
                    if watched.read(1):
                        return  # the reader has what it wants
                    watched.wait()
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)  # it leads a session: what it has started ends too
            if process.returncode != 0:
                output = _read_end(messages)
                message = _find_message(output) or f"{self.name} failed"
                raise ProgramFailed(message, code=process.returncode, output=output)


def read_blocks(output: BinaryIO) -> Iterator[bytes]:
    """Yield the output of a program in blocks."""
    return iter(lambda: output.read(_BLOCK_BYTES), b"")


def read_records(output: BinaryIO, separator: bytes = b"\0") -> Iterator[bytes]:
    """Yield the records of an output, each ended by a separator, without holding it all."""
    rest = b""
    for block in read_blocks(output):
        *records, rest = (rest + block).split(separator)
        yield from records
    if rest:
        yield rest


def inherited_environment(without: frozenset[str], **changes: str) -> dict[str, str]:
    """Return the environment of this process with changes, and without some variables."""
    return {**{name: value for name, value in os.environ.items() if name not in without}, **changes}


class _WatchedOutput(RawIOBase):
    """The output of a program that must not be silent for long."""

    def __init__(
        self, name: str, process: "Popen[bytes]", messages: BinaryIO, *, silence_s: float, longest_s: float
    ) -> None:
        super().__init__()
        assert process.stdout is not None
        self._name, self._process, self._output = name, process, process.stdout
        self._messages, self._silence_s, self._longest_s = messages, silence_s, longest_s
        self._ends_at = time.monotonic() + longest_s
        # Unlike select, poll takes descriptors of any number.
        self._arrival = select.poll()
        self._arrival.register(self._output, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read what has arrived. Raises ProgramFailed."""
        self._watch(lambda slice_s: bool(self._arrival.poll(slice_s * 1000)))
        return cast("RawIOBase", self._output).readinto(buffer) or 0

    def wait(self) -> None:
        """Wait for the end of the program. Raises ProgramFailed."""
        self._watch(self._has_ended)

    def _has_ended(self, slice_s: float) -> bool:
        with suppress(TimeoutExpired):
            self._process.wait(slice_s)
        return self._process.returncode is not None

    def _watch(self, is_done: Callable[[float], bool]) -> None:
        slice_s = min(1.0, self._silence_s)
        known_size, until = -1, 0.0
        while time.monotonic() < self._ends_at:
            if is_done(slice_s):
                return
            now = time.monotonic()
            if (size := os.fstat(self._messages.fileno()).st_size) != known_size:
                known_size, until = size, now + self._silence_s - slice_s
            elif now >= until:
                raise ProgramFailed(f"{self._name} wrote nothing for {self._silence_s:g} s", code=None)
        raise ProgramFailed(f"{self._name} took longer than {self._longest_s:g} s", code=None)


def _read_end(messages: BinaryIO) -> str:
    messages.seek(max(0, messages.seek(0, os.SEEK_END) - _MESSAGE_BYTES))
    return messages.read().decode("utf-8", "replace")


def _find_message(output: str) -> str:
    """Return the first fatal error of an error output, else its last line."""
    lines = [line for line in output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return one_line((fatal[:1] or lines[-1:] or [""])[0])
