"""Files that mean harm: each ends within its limits, as a document or with a code, and harms nobody."""

import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing.sandbox.client import parse_confined
from tests.reliability.hostile_files import FILES, OTHER_KINDS, SOUND
from tests.reliability.hostile_pdf import PDFS

LIMITS = ParsingSettings(memory_mb=768, cpu_s=4, timeout_s=12)
GRACE_S = 3.0
RSS_GROWTH_MB = 50
PASSWD = Path("/etc/passwd")
CODES = {
    "empty",
    "binary",
    "corrupt",
    "encrypted",
    "no_text",
    "unsupported",
    "too_large",
    "crashed",
    "timeout",
    "memory",
}
HOSTILE = {f"a.pdf: {attack}": make for attack, make in PDFS.items()} | FILES
HEAVY = {
    "a.pdf: bomb of 512 MB",
    "a.pdf: bomb of 20 GB in two layers",
    "a.pdf: form that draws itself",
    "a.pdf: a million words",
    "a.html: half a million headings",
    "a.html: tables in tables",
    "a.md: half a million headings",
    "a.md: a fence that never ends",
    "a.txt: thirty megabytes",
    "a.txt: one line of ten megabytes",
    "a.json: six million objects",
    "a.json: a long name above many values",
    "a.jsonl: half a million lines",
    "a.csv: a million columns",
    "a.csv: long names above many rows",
    "a.tsv: tabs alone",
    "a.xlsx: cells in the last column",
}
"""Those that take a second or more; the others are quick."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures memory through /proc")


class Account:
    """What became of the files, and the largest that this process was."""

    def __init__(self) -> None:
        gc.collect()
        self.ends: Counter[str] = Counter()
        self.slowest = (0.0, "")
        self._secrets = [line for line in PASSWD.read_text().splitlines() if line] if PASSWD.exists() else []
        self._before = _rss_mb()
        self.growth_mb = 0.0

    def parse(self, name: str, data: bytes) -> str:
        """Parse a file; return how it ended."""
        start = time.monotonic()
        try:
            parsed = parse_confined(SourceDocument(source=name.partition(":")[0], data=data), LIMITS)
        except ParseError as error:
            end, text = error.code, str(error)
            assert "\n" not in text, name
        else:
            end, text = "document", parsed.text
            assert text.strip(), name
            assert "\0" not in text, name
        seconds = time.monotonic() - start
        assert seconds < LIMITS.timeout_s + GRACE_S, name
        assert end in CODES | {"document"}, name
        assert not any(secret in text for secret in self._secrets), name
        self.ends[end] += 1
        self.slowest = max(self.slowest, (seconds, name))
        return end

    def measure(self) -> None:
        """Note how much larger this process is than at the begin."""
        self.growth_mb = max(self.growth_mb, _rss_mb() - self._before)

    def report(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Print the figures."""
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.most_common())
        seconds, name = self.slowest
        with capsys.disabled():
            sys.stdout.write(
                f"\n{self.ends.total()} files: {ends}; slowest {seconds:.1f} s ({name}); "
                f"this process grew by {self.growth_mb:.0f} MB\n"
            )


def _rss_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.fixture
def account() -> Iterator[Account]:
    """An empty account, taken after the zygote has started.

    Garbage is collected as by default: other tests collect it less often, and their processes grow.
    """
    threshold = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    parse_confined(SourceDocument(source="a.txt", data=b"words"), LIMITS)
    yield Account()
    gc.set_threshold(*threshold)


def _parse_all(account: Account, files: Iterable[tuple[str, bytes]]) -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda file: account.parse(*file), files):
            account.measure()


def _cuts(step: int) -> list[tuple[str, bytes]]:
    """Each format cut off at every so many percent."""
    sound = {name: make() for name, make in SOUND.items()}
    return [
        (f"{name}: {percent} %", data[: len(data) * percent // 100])
        for name, data in sound.items()
        for percent in range(0, 100, step)
    ]


def _mutated(data: bytes, dice: random.Random) -> bytes:
    """Change bytes, take a piece out, or write one twice."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                del changed[at : at + dice.randint(1, 32)]
            case 1:
                changed[at:at] = changed[at : at + dice.randint(1, 32)]
            case _:
                changed[at] = dice.randrange(256)
        if not changed:
            break
    return bytes(changed)


def test_corpus__is_as_large_as_it_says() -> None:
    assert len(HOSTILE) >= 80
    assert HOSTILE.keys() > HEAVY
    archives = [name for name in HOSTILE if name.partition(":")[0] in OTHER_KINDS]
    assert len(archives) + 10 * len(OTHER_KINDS) >= 200


def test_sound_files__are_documents(account: Account) -> None:
    assert {account.parse(name, make()) for name, make in SOUND.items()} == {"document"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names", [HOSTILE.keys() - HEAVY, pytest.param(HEAVY, marks=pytest.mark.slow)], ids=["quick", "heavy"]
)
def test_hostile_files__end_with_a_document_or_a_code(
    names: set[str], account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in sorted(names):
        account.parse(name, HOSTILE[name]())
        account.measure()
    account.report(capsys)
    assert account.growth_mb < RSS_GROWTH_MB


def test_files_cut_off__at_every_tenth(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    _parse_all(account, _cuts(10))
    account.report(capsys)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_files_cut_off__at_every_percent(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    _parse_all(account, _cuts(1))
    account.report(capsys)
    assert account.growth_mb < RSS_GROWTH_MB


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_files_changed_at_random__ten_thousand(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(20_260_930)
    sound = {name: make() for name, make in SOUND.items()}
    names = sorted(sound)
    for start in range(0, 10_000, 500):
        chosen = [names[number % len(names)] for number in range(start, start + 500)]
        _parse_all(account, [(name, _mutated(sound[name], dice)) for name in chosen])
    account.report(capsys)
    assert account.growth_mb < RSS_GROWTH_MB
