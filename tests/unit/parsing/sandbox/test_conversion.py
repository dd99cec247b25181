"""DOC and PPT by LibreOffice, confined; these tests need it on the path."""

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import docx
import pptx
import pytest

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing.office.encrypted import OLE
from kosmos_rag.parsing.sandbox import conversion, landlock
from kosmos_rag.parsing.sandbox.client import parse_confined

needs_libreoffice = pytest.mark.skipif(
    shutil.which("soffice") is None, reason="needs libreoffice-writer-nogui and libreoffice-impress-nogui"
)
ON = ParsingSettings(libreoffice=True)
BROKEN_DOC = OLE + bytes(512) + "WordDocument\0".encode("utf-16-le")


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
def test_convert_legacy__doc(legacy_files: Callable[[str], bytes]) -> None:
    parsed = parse_legacy(legacy_files("a.doc"))
    assert [heading.title for heading in parsed.headings] == ["Leave"]
    assert "Employees have twenty days. Grüße aus 東京." in parsed.text
    assert "Country: Kenya; Days: 21" in parsed.text


@needs_libreoffice
def test_convert_legacy__ppt(legacy_files: Callable[[str], bytes]) -> None:
    parsed = parse_legacy(legacy_files("a.ppt"), source="a.ppt")
    assert len(parsed.pages) == 2
    assert parsed.text.index("First") < parsed.text.index("words of First") < parsed.text.index("Second")


@needs_libreoffice
@pytest.mark.parametrize("source", ["a", "a.pdf", "line\nbreak.doc", "-headless.doc", "../../a.doc", "a;b$(c).doc"])
def test_convert_legacy__the_name_of_the_file_means_nothing(legacy_files: Callable[[str], bytes], source: str) -> None:
    assert "twenty days" in parse_legacy(legacy_files("a.doc"), source=source).text


@needs_libreoffice
def test_convert_legacy__leaves_nothing_behind(
    legacy_files: Callable[[str], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "twenty days" in parse_legacy(legacy_files("a.doc")).text
    assert list(tmp_path.iterdir()) == []


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


SCRIPT = """#!/bin/sh
cp document.doc copy && cat copy > written
cat {secret} > stolen
env > environment
exit 7
"""


@pytest.mark.skipif(landlock.version() == 0, reason="needs Landlock")
def test_run__the_process_reaches_only_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in place of LibreOffice tries to read a secret and the environment."""
    secret, folder = tmp_path / "secret.txt", tmp_path / "folder"
    secret.write_text("a secret")
    folder.mkdir()
    (folder / "document.doc").write_bytes(b"data")
    program = folder / "program"
    program.write_text(SCRIPT.format(secret=secret))
    program.chmod(0o755)
    monkeypatch.setenv("KOSMOS_SECRET", "sesame")
    code = subprocess.run(
        [sys.executable, "-c", RUN_SCRIPT, str(folder)], check=False, timeout=60, env={"PYTHONPATH": ":".join(sys.path)}
    ).returncode
    assert code == 7
    assert (folder / "written").read_bytes() == b"data"
    assert (folder / "stolen").read_text() == ""
    assert "sesame" not in (folder / "environment").read_text()


RUN_SCRIPT = """
import os, subprocess, sys
from pathlib import Path
from kosmos_rag.parsing.sandbox import conversion
home, isolated = conversion._confine(Path(sys.argv[1]), cpu_s=20)
os.chdir(home)
sys.exit(subprocess.run(["/bin/sh", str(home / "program")]).returncode if isolated else 7)
"""


@needs_libreoffice
def test_convert_legacy__is_refused_where_isolation_is_required_and_missing(
    legacy_files: Callable[[str], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "_run", lambda *arguments: conversion._NOT_ISOLATED)
    assert read_error(legacy_files("a.doc")).code == "not_isolated"
