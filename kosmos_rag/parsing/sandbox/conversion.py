"""Convert files of old formats by LibreOffice, in a process without network and other files.

Run as a module it confines itself and becomes LibreOffice.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import DISK_FULL, ParseError, first_line, is_disk_full
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.office.legacy import LegacyFormat, find_legacy_format, legacy_error
from kosmos_rag.parsing.sandbox import landlock, seccomp
from kosmos_rag.parsing.sandbox.limits import drop_privileges, leave_network, lower_limit, replace_temporary_folder

if TYPE_CHECKING:
    from kosmos_rag.core.config import ParsingSettings

_PROGRAM = "soffice"
_TEMPORARY = Path("/tmp")  # noqa: S108 — a folder of this process alone is there
_READABLE = (
    "/usr", "/lib", "/lib64", "/bin", "/etc/fonts", "/etc/ld.so.cache", "/etc/libreoffice", "/etc/localtime",
    "/var/cache/fontconfig", "/var/lib/libreoffice", "/var/spool/libreoffice", "/dev/urandom", "/dev/random",
    "/dev/zero", "/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/sys/devices/system", "/sys/fs/cgroup",
)  # fmt: skip
_MISSING_LAYERS = {97: "namespaces", 98: "Landlock", 99: "seccomp"}
"""By the exit code of the process that lacks them."""
_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="DisableMacrosExecution">\
<value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="BlockUntrustedRefererLinks">\
<value>true</value></prop></item>
</oor:items>
"""


def convert_legacy(document: SourceDocument, limits: "ParsingSettings") -> SourceDocument:
    """Return a DOC or PPT as DOCX or PPTX, where the settings let LibreOffice convert it.

    Others are returned unchanged.

    Raises:
        ParseError: `unsupported` where LibreOffice is not installed, `not_isolated`, `timeout`, `corrupt` where
            it does not open the file, `disk_full`, or `unavailable` where the system refuses a file or a process.
    """
    is_wanted = limits.libreoffice and document.media_type is None
    legacy = find_legacy_format(document.data) if is_wanted else None
    if legacy is None:
        return document
    program = shutil.which(_PROGRAM)
    if program is None:
        raise legacy_error(legacy)
    try:
        # What LibreOffice leaves there must not fail a file that it has converted.
        with tempfile.TemporaryDirectory(prefix="kosmos-rag-", ignore_cleanup_errors=True) as name:
            return replace(document, data=_convert(program, Path(name), document.data, legacy, limits))
    except OSError as error:
        code = DISK_FULL if is_disk_full(error) else "unavailable"
        message = (
            f"this machine cannot run LibreOffice: {error.strerror or first_line(error)}; free space and processes"
        )
        raise ParseError(code, message) from error


def _convert(program: str, folder: Path, data: bytes, kind: LegacyFormat, limits: "ParsingSettings") -> bytes:
    source = folder / f"document.{kind.extension}"
    source.write_bytes(data)
    settings = folder / "profile" / "user" / "registrymodifications.xcu"
    settings.parent.mkdir(parents=True)
    settings.write_text(_PROFILE)
    code = _run(program, folder, (source.name, kind.target), limits)
    target = source.with_suffix(f".{kind.target}")
    if missing := _MISSING_LAYERS.get(code):
        raise ParseError(
            "not_isolated",
            f"LibreOffice cannot be kept from network and files without {missing}: let the container use it, or save "
            f"the file as {kind.target.upper()}",
        )
    if not target.is_file() or target.is_symlink():
        message = f"LibreOffice does not convert the {kind.name} (exit code {code}); open it there and save it as "
        raise ParseError("corrupt", message + kind.target.upper())
    return target.read_bytes()


def _run(program: str, folder: Path, arguments: Sequence[str], limits: "ParsingSettings") -> int:
    """Run LibreOffice, and return its exit code. Raises ParseError `timeout`."""
    memory_bytes = limits.memory_mb * 2**20 * bounds.CONVERTER_MEMORY_FACTOR
    bounded = (str(folder), str(limits.cpu_s), str(memory_bytes), program)
    command = (sys.executable, "-P", "-m", __name__, *bounded, *arguments)
    process = subprocess.Popen(  # noqa: S603 — a program of the path, and arguments that no shell reads
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=_environment(),
        start_new_session=True,
    )
    try:
        return process.wait(limits.timeout_s)
    except subprocess.TimeoutExpired as error:
        message = f"LibreOffice did not convert the file within {limits.timeout_s:g} s; raise "
        raise ParseError("timeout", f"{message}ingestion.parsing.timeout_s or save the file as DOCX or PPTX") from error
    finally:
        with suppress(ProcessLookupError):  # its own session: the programs that it started end too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment() -> Mapping[str, str]:
    """Return an environment without the secrets of this process."""
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _confine(folder: Path, program: Path, *, cpu_s: int, memory_bytes: int) -> int | None:
    """Keep this process from network, sockets and other files.

    It sees its folder as that of temporary files, since LibreOffice has its socket there whatever the environment
    says. Returns the exit code of `_MISSING_LAYERS` where the system lacks one.
    """
    if not (leave_network() and replace_temporary_folder(_TEMPORARY, folder)):
        return 97
    readable = [*map(Path, _READABLE), *_program_folders(program)]
    ruleset = landlock.create_ruleset(readable, runnable=True, writable=[_TEMPORARY])
    if ruleset is None:
        return 98
    if not seccomp.is_available():
        return 99
    drop_privileges()
    landlock.restrict(ruleset)
    os.close(ruleset)
    seccomp.install(seccomp.disconnecting_filter())
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, bounds.MAX_ARCHIVE_BYTES),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_NPROC, bounds.MAX_CONVERTER_PROCESSES),
    ):
        lower_limit(kind, value)
    return None


def _program_folders(program: Path) -> Iterator[Path]:
    """Yield where LibreOffice is installed, if that is not a folder of the system."""
    yield from Path("/opt").glob("libreoffice*")
    folder = program.resolve().parent
    # Its libraries are in `program`, and `share` next to that.
    yield folder.parent if folder.name == "program" else folder


def _become(folder: str, cpu_s: str, memory_bytes: str, program: str, source: str, target: str) -> None:
    code = _confine(Path(folder), Path(program), cpu_s=int(cpu_s), memory_bytes=int(memory_bytes))
    if code is not None:
        sys.exit(code)
    command = (
        program, f"-env:UserInstallation={(_TEMPORARY / 'profile').as_uri()}", "--headless", "--norestore",
        "--nodefault", "--nolockcheck", "--convert-to", target, "--outdir", str(_TEMPORARY), str(_TEMPORARY / source),
    )  # fmt: skip
    os.chdir(_TEMPORARY)
    home = str(_TEMPORARY)
    environment = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "LC_ALL": "C.UTF-8"}
    os.execve(program, command, environment)  # noqa: S606 — see `_run`


if __name__ == "__main__":
    _become(*sys.argv[1:])
