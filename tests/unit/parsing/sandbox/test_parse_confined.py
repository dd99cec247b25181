"""Each file in a process of its own: the same documents, and an end with a code for everything else."""

import io
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import fpdf
import pytest
from PIL import Image

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.sandbox import fork_server
from kosmos_rag.parsing.sandbox.client import parse_confined, render_confined
from tests.unit.parsing.sandbox.files import many_objects, wide_workbook
from tests.unit.parsing.sandbox.zygotes import busy_child, children, is_alive, until, zygote

LIMITS = ParsingSettings()
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the zygote hides its entries in /proc from all but root")


def document(data: bytes, source: str = "a.txt") -> SourceDocument:
    return SourceDocument(source=source, data=data)


def parse_error(data: bytes, source: str = "a.txt", limits: ParsingSettings = LIMITS) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_confined(document(data, source), limits)
    assert "\n" not in str(caught.value)
    return caught.value


class Background:
    """A parse in a thread, and how it ended."""

    def __init__(self, data: bytes) -> None:
        self.result: ParsedDocument | ParseError | None = None
        self._thread = threading.Thread(target=self._run, args=(data,))
        self._thread.start()

    def _run(self, data: bytes) -> None:
        try:
            self.result = parse_confined(document(data, "a.xlsx"), LIMITS)
        except ParseError as error:
            self.result = error

    def end(self) -> ParsedDocument | ParseError | None:
        self._thread.join(60)
        return self.result


@pytest.mark.parametrize(
    ("data", "source"),
    [
        ('Grüße 😀\n\n# No heading\ttab "quoted" \\ back'.encode(), "a.log"),
        (b"# One\n\ntext\n\n## Two\n\nmore", "a.md"),
        (b"name,city\nAda,London\n", "a.csv"),
    ],
)
def test_parse_confined__gives_what_parse_gives(data: bytes, source: str) -> None:
    assert parse_confined(document(data, source), LIMITS) == parse(document(data, source))


def test_parse_confined__title_of_the_source_document() -> None:
    titled = SourceDocument(source="a.txt", data=b"x", title="Given")
    assert parse_confined(titled, LIMITS).title == "Given"


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "empty"), (bytes(range(256)) * 8, "binary"), (b"PK\x03\x04", "corrupt"), (b"GIF89a\0", "unsupported")],
)
def test_parse_confined__raises_what_parse_raises(data: bytes, code: str) -> None:
    error = parse_error(data)
    assert error.code == code
    assert not error.retryable


def test_parse_confined__more_text_than_the_limit() -> None:
    error = parse_error(b"word " * 300_000, limits=ParsingSettings(text_mb=1))
    assert error.code == "too_large"
    assert "ingestion.parsing.text_mb" in str(error)


def test_parse_confined__text_of_the_limit_that_json_doubles() -> None:
    text = '"\\\n' * (2**20 // 3)
    assert parse_confined(document(text.encode()), ParsingSettings(text_mb=1)).text == text


def test_parse_confined__more_headings_than_are_kept() -> None:
    assert parse_error(b"# a\n\n" * 30_000, "a.md").code == "too_large"


def test_parse_confined__too_long_by_the_clock() -> None:
    error = parse_error(wide_workbook(15_000), limits=ParsingSettings(timeout_s=0.5))
    assert error.code == "timeout"
    assert error.retryable
    assert "ingestion.parsing.timeout_s" in str(error)


@needs_proc
def test_parse_confined__a_late_child_is_killed_and_leaves_no_zombie() -> None:
    parse_error(wide_workbook(15_000), limits=ParsingSettings(timeout_s=0.5))
    until(lambda: True if not children(zygote()) else None)


def test_parse_confined__too_much_computing() -> None:
    error = parse_error(wide_workbook(15_000), limits=ParsingSettings(cpu_s=1))
    assert error.code == "timeout"
    assert "ingestion.parsing.cpu_s" in str(error)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not limit address space")
def test_parse_confined__too_much_memory() -> None:
    error = parse_error(many_objects(4_000_000), "a.json", ParsingSettings(memory_mb=256))
    assert error.code == "memory"
    assert error.retryable


def test_parse_confined__smallest_memory_is_enough_for_a_small_file() -> None:
    assert parse_confined(document(b"words"), ParsingSettings(memory_mb=256)).text == "words"


@needs_proc
@pytest.mark.parametrize(
    ("sent_signal", "code", "message"),
    [(signal.SIGSEGV, "crashed", "SIGSEGV"), (signal.SIGKILL, "memory", "memory_mb")],
)
def test_parse_confined__child_dies(sent_signal: signal.Signals, code: str, message: str) -> None:
    running = Background(wide_workbook(15_000))
    os.kill(busy_child(), sent_signal)
    error = running.end()
    assert isinstance(error, ParseError)
    assert (error.code, error.retryable) == (code, True)
    assert message in str(error)


@needs_proc
def test_parse_confined__zygote_dies_between_files() -> None:
    parse_confined(document(b"one"), LIMITS)
    first = zygote()
    os.kill(first, signal.SIGKILL)
    assert parse_confined(document(b"two"), LIMITS).text == "two"
    assert zygote() != first
    assert not is_alive(first)


@needs_proc
def test_parse_confined__zygote_dies_under_a_file_and_nobody_notices() -> None:
    running = Background(wide_workbook(300))
    child = busy_child()
    os.kill(zygote(), signal.SIGKILL)
    parsed = running.end()
    assert isinstance(parsed, ParsedDocument)
    assert parsed.text.endswith("\n300")
    until(lambda: None if is_alive(child) else True)


@needs_proc
def test_parse_confined__zygote_dies_twice_under_a_file() -> None:
    running = Background(wide_workbook(15_000))
    for _ in range(2):
        busy_child()
        os.kill(zygote(), signal.SIGKILL)
        first = fork_server.current()
        until(lambda first=first: True if fork_server.current() is not first or running.result else None)
    error = running.end()
    assert isinstance(error, ParseError)
    assert error.code == "crashed"


def test_parse_confined__from_many_threads() -> None:
    texts = [f"text {number}" for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        parsed = list(pool.map(lambda text: parse_confined(document(text.encode()), LIMITS).text, texts))
    assert parsed == texts


def test_parse_confined__a_slow_file_holds_up_no_other() -> None:
    with ThreadPoolExecutor(4) as pool:
        slow = pool.submit(parse_error, wide_workbook(15_000), "a.xlsx", ParsingSettings(timeout_s=4, memory_mb=4096))
        parsed = [parse_confined(document(b"quick"), LIMITS).text for _ in range(20)]
        assert not slow.done()
        assert parsed == ["quick"] * 20
        if sys.platform == "linux":
            lowered = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
            until(lambda: os.getpriority(os.PRIO_PROCESS, busy_child()) == lowered or None)
        assert slow.result().code == "timeout"


@needs_proc
def test_parse_confined__in_a_fork_of_ours() -> None:
    parse_confined(document(b"before"), LIMITS)
    zygote_pid = zygote()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = parse_confined(document(b"inside"), LIMITS).text
        os.write(write, f"{text} {zygote()}".encode())
        fork_server._HOLDER.stop()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text, child_zygote = pipe.read().split()
    os.waitpid(pid, 0)
    assert text == "inside"
    assert int(child_zygote) != zygote_pid
    assert zygote() == zygote_pid
    assert parse_confined(document(b"after"), LIMITS).text == "after"


@needs_proc
@needs_root
def test_zygote__has_one_thread_and_none_of_our_files(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w"):
        os.kill(zygote(), signal.SIGKILL)
        parse_confined(document(b"new one"), LIMITS)
        status = Path(f"/proc/{zygote()}/status").read_text()
        opened = []
        for link in Path(f"/proc/{zygote()}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                opened.append(link.readlink())
    assert "\nThreads:\t1\n" in status
    assert not [path for path in opened if path.is_relative_to(tmp_path)]


@needs_proc
@needs_root
def test_zygote__never_imports_models_or_settings() -> None:
    maps = Path(f"/proc/{zygote()}/maps").read_text()
    assert "pdfium" in maps
    for name in ("torch", "onnxruntime", "psycopg", "pydantic_core"):
        assert name not in maps


@pytest.mark.parametrize(
    ("size", "shape"), [((100, 200), (1400, 2800)), ((3, 5_000), (3, 4000)), ((5_000, 3), (1400, 1))]
)
def test_render_confined__bounds_the_picture_of_any_page(size: tuple[int, int], shape: tuple[int, int]) -> None:
    file = fpdf.FPDF(unit="pt", format=size)
    file.add_page()
    with Image.open(io.BytesIO(render_confined(bytes(file.output()), 1, LIMITS))) as picture:
        assert all(abs(result - expected) <= 1 for result, expected in zip(picture.size, shape, strict=True)), (
            picture.size
        )


def test_render_confined__reports_what_is_no_pdf() -> None:
    with pytest.raises(ParseError):
        render_confined(b"%PDF-1.7 and no more", 1, LIMITS)
