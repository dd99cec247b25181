"""DOC and PPT by LibreOffice, confined; these tests need it on the path."""

import errno
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docx
import pptx
import pytest

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.sandbox import conversion, landlock, seccomp
from kosmos_rag.parsing.sandbox.client import parse_confined
from tests.unit.parsing.compound import compound_file

needs_libreoffice = pytest.mark.skipif(
    shutil.which("soffice") is None, reason="needs libreoffice-writer-nogui and libreoffice-impress-nogui"
)
ON = ParsingSettings(libreoffice=True)
BROKEN_DOC = compound_file({"WordDocument": b"no text"})


def parse_legacy(data: bytes, settings: ParsingSettings = ON, source: str = "a.doc") -> ParsedDocument:
    return parse_confined(SourceDocument(source=source, data=data), settings)


def read_error(data: bytes, settings: ParsingSettings = ON) -> ParseError:
    with pytest.raises(ParseError) as refusal:
        parse_legacy(data, settings)
    return refusal.value


@pytest.fixture(scope="module")
def legacy_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """Returns a DOC or PPT that LibreOffice has written from a DOCX or PPTX."""
    folder = tmp_path_factory.mktemp("legacy")
    document = docx.Document()
    document.add_heading("Leave", 1)
    document.add_paragraph("Employees have twenty days. Grüße aus 東京.")
    table = document.add_table(2, 2)
    for row, texts in zip(table.rows, (("Country", "Days"), ("Kenya", "21")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    document.add_paragraph("A text after the table.")
    document.save(str(folder / "a.docx"))
    slides = pptx.Presentation()
    for title in ("First", "Second"):
        slide = slides.slides.add_slide(slides.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"words of {title}"
    slides.save(str(folder / "a.pptx"))
    for source, target in (("a.docx", "doc"), ("a.pptx", "ppt")):
        command = ["soffice", f"-env:UserInstallation={(folder / 'profile').as_uri()}", "--headless", "--convert-to"]
        subprocess.run([*command, target, "--outdir", str(folder), str(folder / source)], check=True, timeout=100)
    return lambda name: (folder / name).read_bytes()


@needs_libreoffice
def test_convert_legacy__doc(
    legacy_files: Callable[[str], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    parsed = parse_legacy(legacy_files("a.doc"))
    assert [heading.title for heading in parsed.headings] == ["Leave"]
    assert "Employees have twenty days. Grüße aus 東京." in parsed.text
    assert "Country: Kenya; Days: 21" in parsed.text
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@needs_libreoffice
def test_convert_legacy__ppt(legacy_files: Callable[[str], bytes]) -> None:
    parsed = parse_legacy(legacy_files("a.ppt"), source="a.ppt")
    assert len(parsed.pages) == 2
    assert parsed.text.index("First") < parsed.text.index("words of First") < parsed.text.index("Second")


@needs_libreoffice
@pytest.mark.parametrize("source", ["a", "-headless;b$(c)\n../../a.pdf"])
def test_convert_legacy__the_name_of_the_file_means_nothing(legacy_files: Callable[[str], bytes], source: str) -> None:
    assert "twenty days" in parse_legacy(legacy_files("a.doc"), source=source).text


@needs_libreoffice
def test_convert_legacy__a_broken_file_is_corrupt_or_has_no_text() -> None:
    assert read_error(BROKEN_DOC).code in ("corrupt", "empty")


@needs_libreoffice
def test_convert_legacy__ends_at_the_time_limit(legacy_files: Callable[[str], bytes]) -> None:
    error = read_error(legacy_files("a.doc"), ParsingSettings(libreoffice=True, timeout_s=0.05))
    assert error.code == "timeout"
    assert "ingestion.parsing.timeout_s" in str(error)


@pytest.mark.parametrize("settings", [ON, ParsingSettings()], ids=["on", "off"])
def test_convert_legacy__without_libreoffice_the_error_has_the_command(
    settings: ParsingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    error = read_error(BROKEN_DOC, settings)
    assert error.code == "unsupported"
    assert "apt-get install libreoffice-writer-nogui" in str(error)
    assert "ingestion.parsing.libreoffice" in str(error)


def test_convert_legacy__other_files_are_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: pytest.fail("it looked for LibreOffice"))
    out = io.BytesIO()
    document = docx.Document()
    document.add_paragraph("WordDocument\0".strip("\0"))
    document.save(out)
    assert "WordDocument" in parse_legacy(out.getvalue()).text
    text = SourceDocument(source="a.doc", data=BROKEN_DOC, media_type="text/plain")
    assert conversion.convert_legacy(text, ON) is text


SCRIPT = """
import os, socket, subprocess, sys
from pathlib import Path
from kosmos_rag.parsing.sandbox import conversion
folder, secret, *addresses = sys.argv[1:]
assert conversion._confine(Path(folder), Path(folder, "program"), cpu_s=20, memory_bytes=2**31) is None
os.chdir("/tmp")
subprocess.run(f"cp document.doc copy && cat copy > written; cat {secret} > stolen; ls {Path(secret).parent} > listed; "
    "ulimit -u > processes; env > environment", shell=True, executable="/bin/bash")
for address in addresses:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            if kind == socket.SOCK_STREAM:
                socket.socket(socket.AF_UNIX, kind).connect(address)
            else:
                socket.socket(socket.AF_UNIX, kind).sendto(b"a", address)
            Path("connected").write_text(address)
        except OSError as error:
            with open("refused", "a") as file:
                file.write(f"{error.errno} ")
listener = socket.socket(socket.AF_UNIX)
listener.bind("own")
listener.listen()
try:
    bytearray(2**31)
except MemoryError:
    sys.exit(7)
"""
needs_layers = pytest.mark.skipif(
    landlock.version() == 0 or not seccomp.is_available(), reason="needs Landlock and seccomp"
)


@pytest.fixture
def library_folder() -> Iterator[Path]:
    """Returns a new folder where services have their sockets."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="kosmos-rag-", dir="/var/lib"))
    except PermissionError:
        pytest.skip("needs the right to write to /var/lib")
    yield folder
    shutil.rmtree(folder)


@needs_layers
def test_confine__the_process_reaches_only_its_folder(
    library_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, address = library_folder / "secret.txt", library_folder / "socket"
    secret.write_text("a secret")
    (tmp_path / "document.doc").write_bytes(b"data")
    monkeypatch.setenv("KOSMOS_SECRET", "sesame")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(secret), str(address)]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        code = subprocess.run(command, check=False, timeout=60, env={"PYTHONPATH": ":".join(sys.path)}).returncode
    assert code == 7
    assert (tmp_path / "written").read_bytes() == b"data"
    assert (tmp_path / "stolen").read_text() == (tmp_path / "listed").read_text() == ""
    assert not (tmp_path / "connected").exists()
    assert (tmp_path / "refused").read_text().split() == [str(errno.EPERM)] * 2
    assert int((tmp_path / "processes").read_text()) == bounds.MAX_CONVERTER_PROCESSES
    assert "sesame" not in (tmp_path / "environment").read_text()


def test_program_folders__are_those_of_libreoffice_alone(tmp_path: Path) -> None:
    program = tmp_path / "office" / "program" / "soffice"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "soffice").symlink_to(program)
    folders = set(conversion._program_folders(tmp_path / "soffice"))
    assert folders - set(Path("/opt").glob("libreoffice*")) == {tmp_path / "office"}
    assert Path("/opt") not in folders


@needs_libreoffice
@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ("leave_network", "namespaces"),
        ("landlock.create_ruleset", "Landlock"),
        ("seccomp.is_available", "seccomp"),
    ],
)
@pytest.mark.parametrize("require_isolation", [False, True])
def test_convert_legacy__is_refused_where_a_layer_is_missing(
    layer: str, name: str, require_isolation: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that becomes LibreOffice lacks the layer."""
    target = f"kosmos_rag.parsing.sandbox.{layer}" if "." in layer else f"kosmos_rag.parsing.sandbox.limits.{layer}"
    module, attribute = target.rsplit(".", 1)
    (tmp_path / "sitecustomize.py").write_text(f"import {module} as layer\nlayer.{attribute} = lambda *a, **k: None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = ParsingSettings(libreoffice=True, require_isolation=require_isolation)
    with pytest.raises(ParseError) as refusal:
        conversion.convert_legacy(SourceDocument(source="a.doc", data=BROKEN_DOC), settings)
    assert refusal.value.code == "not_isolated"
    assert f"without {name}" in str(refusal.value)


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, "disk_full"), (errno.EAGAIN, "unavailable")])
def test_convert_legacy__an_error_of_the_system_is_a_parse_error(
    number: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shutil, "which", lambda name: sys.executable)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ParseError) as refusal:
        conversion.convert_legacy(SourceDocument(source="a.doc", data=BROKEN_DOC), ON)
    assert refusal.value.code == code
    assert os.strerror(number) in str(refusal.value)
    assert refusal.value.retryable


def test_run__imports_nothing_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "kosmos_rag.py").write_text("open('imported', 'w').close()")
    conversion._run("/bin/true", tmp_path, ("document.doc", "docx"), ON)
    assert not (tmp_path / "imported").exists()
