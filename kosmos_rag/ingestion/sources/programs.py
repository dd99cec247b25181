"""Programs that sources run, such as git and rclone, with a time limit."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError

_BLOCK_BYTES = 1024 * 1024
_MESSAGE_BYTES = 4096


class ProgramFailed(Exception):
    """A program ended with an error or ran out of time.

    Sources translate it: the message is what the program itself says.
    """

    def __init__(self, message: str, *, code: int | None, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        """Exit status; None if the program was ended at its time limit."""
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

    def run(self, *arguments: str, timeout_s: float, folder: Path | None = None, data: bytes | None = None) -> bytes:
        """Run the program and return its output.

        Raises ProgramFailed.

        Args:
            arguments: the arguments of this call.
            timeout_s: seconds after which it is ended.
            folder: its working folder.
            data: what it reads.
        """
        with self.stream(*arguments, timeout_s=timeout_s, folder=folder, data=data) as output:
            return output.read()

    @contextmanager
    def stream(
        self, *arguments: str, timeout_s: float, folder: Path | None = None, data: bytes | None = None
    ) -> Iterator[BinaryIO]:
        """Run the program while its output is read.

        It is ended where the reader leaves early. Raises ProgramFailed at the end of the output.

        Args:
            arguments: see `run`.
            timeout_s: see `run`.
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
                cwd=folder,
                env=self._environment,
                start_new_session=True,
            ) as process:
                assert process.stdout is not None
                late = threading.Event()
                timer = threading.Timer(timeout_s, _end, (process, late))
                timer.start()
                try:
                    yield cast("BinaryIO", process.stdout)
                    if process.stdout.read(1):
                        return  # the reader has what it wants
                    process.wait()
                finally:
                    timer.cancel()
                    _end(process, threading.Event())
            if late.is_set():
                raise ProgramFailed(f"{self.name} did not end within {timeout_s:g} s", code=None)
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


def _end(process: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    if process.poll() is None:
        late.set()
        process.kill()


def _read_end(messages: BinaryIO) -> str:
    messages.seek(max(0, messages.seek(0, os.SEEK_END) - _MESSAGE_BYTES))
    return messages.read().decode("utf-8", "replace")


def _find_message(output: str) -> str:
    """Return the first fatal error of an error output, else its last line."""
    lines = [line for line in output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return one_line((fatal[:1] or lines[-1:] or [""])[0])
