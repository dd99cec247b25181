"""Large files of rows: parts with whole rows, the header, and the row numbers of the file."""

import csv
import json
from io import BytesIO, StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos_rag.core.config import IngestionSettings, ParsingSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.parts import divide_file
from kosmos_rag.parsing import bounds, parse

SETTINGS = IngestionSettings(parsing=ParsingSettings(text_mb=1))


def divide(data: bytes, name: str = "a.csv") -> list[bytes]:
    file = BytesIO(data)
    return [part.read(file) for part in divide_file(file, name, SETTINGS)]


def parse_parts(data: bytes, name: str = "a.csv") -> list[ParsedDocument]:
    file = BytesIO(data)
    return [
        parse(
            SourceDocument(
                source=part.name(name), data=part.read(file), media_type=part.media_type, skipped_rows=part.skipped
            )
        )
        for part in divide_file(file, name, SETTINGS)
    ]


def build_table(rows: int, note: str = "bought in the shop") -> bytes:
    return b"id,customer,note\n" + b"".join(f"{number},Ada {number},{note}\n".encode() for number in range(rows))


def test_divide_file__each_part_has_the_header_and_whole_rows() -> None:
    data = build_table(40_000)
    parts = divide(data)
    assert len(parts) > 2
    assert all(part.startswith(b"id,customer,note\n") and part.endswith(b"\n") for part in parts)
    assert b"".join([parts[0], *(part.removeprefix(b"id,customer,note\n") for part in parts[1:])]) == data
    assert all(len(parsed.text.encode()) <= 2**20 for parsed in parse_parts(data))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_divide_file__a_file_whose_text_fits_is_one_document(name: str) -> None:
    assert divide(build_table(10), name) == []
    assert divide(build_table(3_000), name) == []


def test_divide_file__other_kinds_of_files_are_not_divided() -> None:
    assert divide(build_table(60_000), "a.txt") == []
    assert divide(b"<!DOCTYPE html><html><body><p>" + b"word " * 400_000 + b"</p></body></html>") == []
    assert divide(b"\x7fELF" + bytes(3_000_000)) == []


def test_divide_file__places_name_the_rows_of_the_file() -> None:
    parsed = parse_parts(build_table(40_000))[1]
    assert parsed.text.startswith("id | customer | note\n")
    second = next(place for place in parsed.places if "A1:" not in (place.cells or ""))
    line = parsed.text[second.start : second.end]
    number = int(line.split("; ")[0].removeprefix("id: "))
    assert second.cells == f"A{number + 2}:C{number + 2}"


def test_divide_file__a_quoted_cell_of_several_lines_is_never_cut() -> None:
    rows = [["id", "note"], *([str(number), f'a "quoted"\nnote, {"x" * 300}\nof lines'] for number in range(6_000))]
    file = StringIO()
    csv.writer(file).writerows(rows)
    parts = divide(file.getvalue().encode())
    assert len(parts) > 2
    tables = [list(csv.reader(StringIO(part.decode(), newline=""), strict=True)) for part in parts]
    assert [rows[0], *(row for part in tables for row in part[1:])] == rows


def test_divide_file__lines_above_the_header_are_part_of_it() -> None:
    parts = divide(b"Orders of 2024,,\n,,\n" + build_table(40_000))
    assert all(part.startswith(b"Orders of 2024,,\n,,\nid,customer,note\n") for part in parts)


def test_divide_file__long_names_of_columns_make_smaller_parts() -> None:
    names = [f"amount of the {number}th delivery in euro" for number in range(30)]
    data = (",".join(names) + "\n" + (",".join("1" * 30) + "\n") * 5_000).encode()
    parts = parse_parts(data)
    assert len(parts) > 10
    assert all(len(part.text.encode()) <= 2**20 for part in parts)


def test_divide_file__names_of_columns_count_in_bytes() -> None:
    names = [f"第{number}回の配送金額の合計" for number in range(40)]
    data = (",".join(names) + "\n" + (",".join("1" * 40) + "\n") * 10_000).encode()
    assert all(len(part.text.encode()) <= 2**20 for part in parse_parts(data))


def test_divide_file__long_paths_of_json_make_smaller_parts() -> None:
    record: Any = {f"a{number}": number for number in range(40)}
    for name in ("delivery of the order", "contract with the customer", "department in the country"):
        record = {name: record}
    data = (json.dumps(record) + "\n").encode() * 3_000
    parts = parse_parts(data, "a.jsonl")
    assert len(parts) > 2
    assert all(len(part.text.encode()) <= 2**20 for part in parts)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig", "shift_jis"])
def test_divide_file__parts_have_the_encoding_of_the_file(encoding: str) -> None:
    """The only letters that tell the encoding are in the first part."""
    word = "東京都は日本の首都であり、世界最大の都市圏です" if encoding == "shift_jis" else "Müller kauft Äpfel für Öl"
    rows = [f"{number},{word if number < 400 else 'plain'},{'x' * 60}" for number in range(30_000)]
    text = "id,customer,note\n" + "\n".join([*rows, f"30000,{word},end"]) + "\n"
    parts = parse_parts(text.encode(encoding))
    assert len(parts) > 1
    assert word in parts[0].text
    assert word in parts[-1].text


def test_divide_file__json_lines_keep_their_objects() -> None:
    rows = [{"id": number, "name": "Ada", "tags": ["a", "b"], "note": "x" * 200} for number in range(6_000)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    parts = divide(data, "a.jsonl")
    assert len(parts) > 2
    assert [json.loads(line) for part in parts for line in part.splitlines()] == rows
    assert b"".join(parts) == data


def test_divide_file__a_row_beyond_the_limit_is_refused_by_its_name() -> None:
    with pytest.raises(SourceError, match=r"row after row \d of a\.csv .* ingestion\.parsing\.text_mb") as error:
        divide(b"id,note\n1," + b"x" * 2_000_000)
    assert error.value.code == "too_large"


def test_divide_file__a_quote_that_never_ends_leaves_lines() -> None:
    """No cell of a table is that long, and the parser keeps such a file as lines too."""
    data = b'id,note\n1,"' + b"x,y\n" * 400_000
    parts = divide(data)
    assert len(parts) > 1
    assert all(part.endswith(b"\n") for part in parts)
    assert b"".join([parts[0], *(part.removeprefix(b"id,note\n") for part in parts[1:])]) == data


def test_divide_file__a_row_of_many_quoted_lines_is_refused_at_the_limit() -> None:
    file = BytesIO(b"id,note\n" + b'"\n",' * 1_000_000)
    with pytest.raises(SourceError, match=r"a row after row \d of a\.csv"):
        divide_file(file, "a.csv", SETTINGS)
    assert file.tell() < 2 * 2**20


def test_divide_file__rows_after_an_invalid_quote_keep_their_numbers() -> None:
    rows = [f"{number},Ada {number},bought in the shop\n" for number in range(40_000)]
    rows[500] = '500,"Ada" 500,bought in the shop\n'
    rows[501] = '501,"Ada\n501",bought in the shop\n'
    data = ("id,customer,note\n" + "".join(rows)).encode()
    parts = divide_file(BytesIO(data), "a.csv", SETTINGS)
    for part in parts[1:]:
        first = int(data[part.offset :].split(b",")[0])
        assert part.skipped_rows == first


def test_divide_file__more_parts_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_FILE_PARTS", 3)
    with pytest.raises(SourceError, match=r"more than 3 parts of 0\.5 MB .* ingestion\.parsing\.text_mb"):
        divide(build_table(100_000))


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_divide_file__line_endings_of_other_systems(ending: str) -> None:
    data = build_table(40_000).replace(b"\n", ending.encode())
    parts = divide(data)
    assert len(parts) > 2
    header = f"id,customer,note{ending}".encode()
    assert all(part.startswith(header) and part.endswith(ending.encode()) for part in parts)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), min_size=2, max_size=4),
        min_size=5,
        max_size=30,
    )
)
def test_divide_file__any_table_is_divided_between_rows(rows: list[list[str]]) -> None:
    file = StringIO(newline="")
    csv.writer(file).writerows(rows * (1_300_000 // (len(str(rows)) + 1)))
    data = file.getvalue().encode()
    parts = divide_file(BytesIO(data), "a.csv", SETTINGS)
    if parts:
        assert sum(part.length for part in parts) == len(data)
        assert [part.offset for part in parts[1:]] == [part.offset + part.length for part in parts[:-1]]
