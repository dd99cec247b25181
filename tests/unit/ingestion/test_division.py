"""Division of documents: in memory up to the size limit, from a file above it, and never of what must stay whole."""

import os
from collections.abc import Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from kosmos_rag.core.config import IngestionSettings, ParsingSettings
from kosmos_rag.core.errors import DISK_FULL, IngestionError, SourceError
from kosmos_rag.core.types import Outcome, SourceDocument
from kosmos_rag.ingestion import division
from kosmos_rag.ingestion.discovery import LoadedDocument
from kosmos_rag.ingestion.division import DividedDocument, PartOutcomes, divide
from kosmos_rag.ingestion.parts import FilePart, divide_file, join_etag, split_etag
from kosmos_rag.ingestion.report import PublishedDocument
from kosmos_rag.ingestion.sources.files import LargeDocument, attach_content, read_content, read_or_open
from tests.unit.ingestion.test_parts import build_table

SETTINGS = IngestionSettings(max_file_mb=1, parsing=ParsingSettings(text_mb=1))
TABLE = build_table(60_000)


def name_document(name: str = "orders.csv") -> SourceDocument:
    return SourceDocument(source=name, data=b"", metadata={"team": "x"}, acl=("finance",), language="german")


def read_parts(document: SourceDocument) -> list[SourceDocument]:
    divided = divide(document, SETTINGS)
    assert isinstance(divided, DividedDocument)
    with closing(divided):
        return [divided.read(part) for part in divided.parts]


def blocks(data: bytes) -> list[bytes]:
    return [data[start : start + 2**16] for start in range(0, len(data), 2**16)]


def test_divide__parts_are_equal_from_memory_and_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(TABLE)
    contents = [TABLE, read_content(blocks(TABLE), path.name, SETTINGS), read_or_open(path, path.name, SETTINGS)]
    documents = [attach_content(name_document(), content) for content in contents]
    assert [type(document) for document in documents] == [SourceDocument, LargeDocument, LargeDocument]
    first, *others = [read_parts(document) for document in documents]
    assert others == [first, first]
    assert [part.source for part in first] == [f"orders.csv#part-{number}" for number in range(1, len(first) + 1)]
    assert {(part.acl, part.language, part.metadata["team"]) for part in first} == {(("finance",), "german", "x")}


@pytest.mark.parametrize(
    "document",
    [
        SourceDocument(source="orders.csv", data=build_table(10)),
        SourceDocument(source="orders.txt", data=TABLE),
        SourceDocument(source="orders.csv", data=TABLE, media_type="text/plain"),
        SourceDocument(source="orders.csv", data=TABLE, skipped_rows=(1, 100)),
        SourceDocument(source="orders.csv", data=b"id,note\n1," + b"x" * 2_000_000),
        SourceDocument(source="orders.csv", data=TABLE + b"\xff\x00\xfe\x00\x01," * 2_000),
    ],
)
def test_divide__leaves_other_documents_to_the_parser(document: SourceDocument) -> None:
    assert divide(document, SETTINGS) is document


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,note\n1," + b"x" * 2_000_000, r"a row after row \d of orders\.csv .* ingestion\.parsing\.text_mb"),
        (b"\x7fELF" + bytes(2_000_000), r"orders\.csv has more than .* ingestion\.max_file_mb"),
    ],
)
def test_divide__refuses_a_file_above_the_limit_without_parts(data: bytes, message: str) -> None:
    content = read_content(blocks(data), "orders.csv", SETTINGS)
    with pytest.raises(SourceError, match=message) as error:
        divide(attach_content(name_document(), content), SETTINGS)
    assert error.value.code == "too_large"
    assert not isinstance(content, bytes)
    assert content.closed


def test_divide__notices_a_file_that_is_changed_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(TABLE)
    divided = divide(attach_content(name_document(), read_or_open(path, path.name, SETTINGS)), SETTINGS)
    assert isinstance(divided, DividedDocument)
    divided.read(divided.parts[0])
    with path.open("ab") as file:
        file.write(b"1,2,3\n")
    with pytest.raises(SourceError, match=r"orders\.csv was changed while it was read; ingest it again"):
        divided.read(divided.parts[1])
    divided.close()


def test_divide__notices_a_file_that_is_changed_while_its_rows_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(TABLE)

    def divide_and_change(file: BinaryIO, source: str, settings: IngestionSettings) -> Sequence[FilePart]:
        parts = divide_file(file, source, settings)
        with path.open("ab") as changed:
            changed.write(b"1,2,3\n")
        return parts

    monkeypatch.setattr(division, "divide_file", divide_and_change)
    divided = divide(attach_content(name_document(), read_or_open(path, path.name, SETTINGS)), SETTINGS)
    assert isinstance(divided, DividedDocument)
    with closing(divided), pytest.raises(SourceError, match=r"orders\.csv was changed while it was read"):
        divided.read(divided.parts[0])


def test_read_content__holds_no_more_than_the_limit_of_a_file_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty megabytes arrive block by block, and the memory of Python objects grows by less than six."""
    import tracemalloc

    tracemalloc.start()
    content = read_content((b"1,2,3\n" * 10_000 for _ in range(1_000)), "orders.csv", SETTINGS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not isinstance(content, bytes)
    assert os.fstat(content.fileno()).st_size == 60_000_000
    assert peak < 6_000_000
    content.close()


def test_read_content__refuses_other_files_above_the_limit() -> None:
    with pytest.raises(SourceError, match=r"a\.txt has more than the 1,048,576 bytes that ingestion\.max_file_mb"):
        read_content(blocks(TABLE * 2), "a.txt", SETTINGS)


def test_read_content__names_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: open("/dev/full", "r+b", buffering=0))  # noqa: PTH123, SIM115
    with pytest.raises(SourceError, match=r"orders\.csv does not fit into .*TMPDIR") as error:
        read_content(blocks(TABLE * 2), "orders.csv", SETTINGS)
    assert (error.value.code, error.value.retryable) == (DISK_FULL, True)


@pytest.mark.parametrize("etag", [None, "", "abc", "abc:", ":3", "abc:x", "abc:3-", "abc-3"])
def test_split_etag__knows_what_is_of_no_part(etag: str | None) -> None:
    assert split_etag(etag) == ("", 0, 0)


def test_split_etag__returns_what_join_etag_has_joined() -> None:
    assert split_etag(join_etag("W/:12:7", 12)) == ("W/:12:7", 12, 12)
    assert split_etag(join_etag("W/:12:7", 12, empty=3)) == ("W/:12:7", 12, 9)
    assert join_etag(None, 12) is None


def collect(count: int) -> tuple[PartOutcomes, list[object]]:
    ended: list[object] = []
    return PartOutcomes(count, succeed=ended.append, fail=ended.append), ended


PART = LoadedDocument(SourceDocument(source="orders.csv#part-1", data=b""))


def publish(*outcomes: Outcome) -> list[PublishedDocument]:
    return [
        PublishedDocument(pending=PART, outcome=outcome, chunks=2, reused=1, truncated_tokens=0, fallbacks={})
        for outcome in outcomes
    ]


def test_part_outcomes__end_the_file_with_the_last_part() -> None:
    outcomes, ended = collect(4)
    outcomes.record_unchanged([PART])
    outcomes.record_published(publish(Outcome.NEW, Outcome.CHANGED))
    outcomes.record_published([])
    assert (ended, outcomes.is_ended) == ([], False)
    outcomes.record_empty([PART])
    assert (ended, outcomes.is_ended) == ([outcomes], True)
    assert outcomes.build_published(PART, Outcome.CHANGED).chunks == 4


@pytest.mark.parametrize(
    ("published", "unchanged", "has_replaced", "expected"),
    [
        ((), 2, False, Outcome.UNCHANGED),
        ((), 2, True, Outcome.CHANGED),
        ((Outcome.NEW,), 0, False, Outcome.NEW),
        ((Outcome.NEW,), 0, True, Outcome.CHANGED),
        ((Outcome.NEW,), 1, False, Outcome.CHANGED),
        ((Outcome.NEW, Outcome.CHANGED), 0, False, Outcome.CHANGED),
    ],
)
def test_part_outcomes__of_a_file(
    published: tuple[Outcome, ...], unchanged: int, has_replaced: bool, expected: Outcome
) -> None:
    outcomes, _ = collect(9)
    outcomes.record_published(publish(*published))
    outcomes.record_unchanged([PART] * unchanged)
    assert outcomes.find_outcome(has_replaced=has_replaced) is expected


def test_part_outcomes__name_the_first_part_that_failed() -> None:
    outcomes, ended = collect(3)
    outcomes.record_failure([PART], SourceError("not_found", "it is gone"))
    outcomes.record_unchanged([PART])
    assert ended == []
    outcomes.record_failure([PART], SourceError("unreadable", "it is broken"))
    [error] = ended
    assert isinstance(error, IngestionError)
    assert (error.code, str(error)) == ("not_found", "orders.csv#part-1 and 1 other parts: it is gone")


@pytest.mark.parametrize("error", [ValueError("a bug"), IngestionError("lease_lost", "another worker has it")])
def test_part_outcomes__end_at_once_where_no_part_is_at_fault(error: Exception) -> None:
    outcomes, ended = collect(3)
    for _ in range(3):
        outcomes.record_failure([PART], error)
    assert (ended, outcomes.is_ended) == ([error], True)


def test_divide__closes_what_it_has_opened() -> None:
    file: BinaryIO = BytesIO(TABLE)
    divided = DividedDocument(name_document(), file, SETTINGS)
    divided.close()
    assert file.closed
