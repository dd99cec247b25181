"""The memory of a worker that ingests large files of five formats: the part `files` of benchmarks.worker."""

import io
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pdf_prose import FpdfCanvas
from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder

WORDS = (
    "account annual approval audit budget capacity change charge churn clause committee compliance contract cost "
    "customer data delivery demand department deposit device discount employee estimate export factory failure "
    "forecast freight growth holiday incident index insurance inventory invoice investment keeper label launch "
    "ledger licence machine maintenance margin measure meeting model network notice operation order partner "
    "payment penalty pension policy price process product project quality quarter rate receipt refund region "
    "release renewal report request reserve result revenue review risk salary sample schedule segment service "
    "share shipment software standard storage supplier support target tariff task team tender term test threshold "
    "ticket training transfer travel unit update usage vacancy value vendor version volume wage warehouse "
    "warranty week yield"
).split()

_PAUSE_S = 0.1
"""Seconds between two samples of the memory."""


def write_files(folder: Path, *, scale: float = 1.0) -> None:
    """Write one large file of each of five formats.

    A PDF of 200 pages, XLSX of 50,000 rows, HTML of 2 MB, DOCX, and a mail with the DOCX and a text attached.

    Args:
        folder: Is created.
        scale: Factor for pages, rows and paragraphs.
    """
    folder.mkdir(parents=True)
    dice = random.Random(5)
    document = _docx(dice, round(1500 * scale))
    files = {
        "report.pdf": _pdf(dice, max(1, round(200 * scale))),
        "orders.xlsx": _xlsx(dice, max(10, round(50_000 * scale))),
        "manual.html": _html(dice, max(10_000, round(2_000_000 * scale))),
        "handbook.docx": document,
        "mail.eml": _mail(dice, document, max(5, round(2000 * scale))),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)


def _sentences(dice: random.Random, count: int) -> str:
    return " ".join(f"{' '.join(dice.choices(WORDS, k=dice.randint(9, 20))).capitalize()}." for _ in range(count))


def _pdf(dice: random.Random, pages: int) -> bytes:
    canvas = FpdfCanvas()
    for page in range(pages):
        canvas.page()
        canvas.text(60, 60, f"{page + 1} {' '.join(dice.choices(WORDS, k=3)).capitalize()}", 15, bold=True)
        words = _sentences(dice, 45).split()
        for line in range(min(56, len(words) // 12)):
            canvas.text(60, 84 + 13 * line, " ".join(words[12 * line : 12 * line + 12]), 10)
    return canvas.output()


def _xlsx(dice: random.Random, rows: int) -> bytes:
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Orders")
    sheet.append(["Order", "Customer", "Region", "Product", "Amount", "Note"])
    for row in range(rows):
        sheet.append(
            [row, *dice.choices(WORDS, k=3), round(dice.uniform(1, 9000), 2), " ".join(dice.choices(WORDS, k=5))]
        )
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def _html(dice: random.Random, size: int) -> bytes:
    parts, length = ["<html><head><title>Manual</title></head><body>"], 0
    while length < size:
        parts.append(f"<h2>{' '.join(dice.choices(WORDS, k=3))}</h2><p>{_sentences(dice, 12)}</p>")
        length += len(parts[-1])
    return "".join([*parts, "</body></html>"]).encode()


def _docx(dice: random.Random, paragraphs: int) -> bytes:
    import docx

    document = docx.Document()
    for number in range(max(5, paragraphs)):
        if number % 10 == 0:
            document.add_heading(" ".join(dice.choices(WORDS, k=3)).capitalize(), 2)
        document.add_paragraph(_sentences(dice, 6))
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def _mail(dice: random.Random, attached: bytes, sentences: int) -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = "The handbook", "anna@example.com", "team@example.com"
    mail.set_content(_sentences(dice, 60))
    mail.add_attachment(attached, maintype="application", subtype="octet-stream", filename="handbook.docx")
    mail.add_attachment(_sentences(dice, sentences), filename="minutes.txt")
    return mail.as_bytes()


def _kilobytes(process: psutil.Process) -> int:
    """Return the proportional set size of a process.

    Memory that processes share is divided among them.
    """
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _sample(worker: psutil.Process) -> Iterator[tuple[str, int]]:
    """Yield the kind and the kilobytes of each process of a worker."""
    yield "supervisor", _kilobytes(worker)
    for child in worker.children():
        # The embedded server is a child too where the worker started it.
        if "postgres" not in child.name():
            yield "worker", _kilobytes(child)
            for parser in child.children(recursive=True):
                yield "parsers", _kilobytes(parser)


def measure_files(
    settings: Settings, changes: Mapping[str, Any], folder: Path, *, scale: float = 1.0
) -> dict[str, Any]:
    """Run `kosmos-rag worker` over the files, and return its peak memory.

    In MB, of all its processes together.

    Args:
        settings: With the folder of the embedded server.
        changes: What the worker process gets of them.
        folder: For the files; they are written where it does not exist.
        scale: Factor for the size of the files.
    """
    if not folder.exists():
        write_files(folder, scale=scale)
    command = [sys.executable, "-m", "kosmos_rag", "worker", "--until-idle", "--processes", "1"]
    fixed = {"database.data_dir": settings.database.data_dir, "rag.chunking.strategy": "markdown"}
    for name, value in {**changes, **fixed}.items():
        command += ["--set", f"{name}={value}"]
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant("files")
        scope.jobs.enqueue(folder)
        began = time.perf_counter()
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        samples = list(_samples(worker))
        seconds = time.perf_counter() - began
        states = Counter(job.state for job in scope.jobs.find())
        chunks = sum(document.chunks for document in scope.documents())
    peak = max(samples, key=Counter.total)
    return {
        "backend": settings.models.backend,
        "jobs": {str(state): count for state, count in states.items()},
        "chunks": chunks,
        "seconds": round(seconds),
        "peak_mb": round(peak.total() / 1024),
        "at_peak_mb": {kind: round(kilobytes / 1024) for kind, kilobytes in peak.items()},
        "largest_mb": {
            kind: round(max(sample[kind] for sample in samples) / 1024) for kind in ("supervisor", "worker", "parsers")
        },
    }


def _samples(worker: "subprocess.Popen[bytes]") -> Iterator[Counter[str]]:
    """Yield the kilobytes of the processes of a worker by kind until it ends."""
    process = psutil.Process(worker.pid)
    while worker.poll() is None:
        sample: Counter[str] = Counter()
        with suppress(psutil.NoSuchProcess):
            for kind, kilobytes in _sample(process):
                sample[kind] += kilobytes
        yield sample
        time.sleep(_PAUSE_S)
    if worker.returncode:
        raise SystemExit(f"the worker ended with {worker.returncode}; see what it said above")
