"""JSON Lines as a source: each good line a document, each bad one a failure with its number."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.listing import Source
from kosmos_rag.ingestion.sources.registry import create_source


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "faq.jsonl"


def _listed(source: Source) -> tuple[dict[str, SourceDocument], list[IngestFailure]]:
    listing = source.listing()
    loaded = {entry.source.rpartition("#")[2]: source.load(entry) for entry in listing}
    return loaded, listing.failures


def test_lines__are_documents(file: Path, opened: Any) -> None:
    file.write_text(
        '{"key": "a", "body": "first", "name": "A", "year": 2026, "tags": ["x"], "other": 1}\n'
        "\n"
        '{"key": 7, "body": "zweite \\u00e4", "name": null}'
    )
    source = opened(
        kind="json_lines",
        path=file,
        id_field="key",
        text_field="body",
        title_field="name",
        metadata_fields=["year", "tags"],
        metadata={"team": "x", "year": 1},
        acl=["hr"],
    )
    documents, failures = _listed(source)
    assert failures == []
    assert documents == {
        "a": SourceDocument(
            source=f"{file.parent.name}/{file.name}#a",
            data=b"first",
            title="A",
            metadata={"team": "x", "year": 2026, "tags": ["x"]},
            acl=("hr",),
        ),
        "7": SourceDocument(
            source=f"{file.parent.name}/{file.name}#7",
            data="zweite ä".encode(),
            metadata={"team": "x", "year": 1},
            acl=("hr",),
        ),
    }


def test_lines__that_are_bad_are_named_and_the_others_go_on(file: Path, opened: Any) -> None:
    bad = [
        b"{not json",
        b'["a", "list"]',
        b'{"text": "no id"}',
        b'{"id": null, "text": "x"}',
        b'{"id": true, "text": "x"}',
        b'{"id": "", "text": "x"}',
        b'{"id": "nan", "text": "x", "n": NaN}',
        b'{"id": "inf", "text": "x", "n": 1e999}',
        b'{"id": "latin", "text": "caf\xe9"}',
        b'{"id": "nul\\u0000", "text": "x"}',
        b'{"id": "lone\\ud800", "text": "x"}',
        b"[" * 100_000,
        b'{"id": "long", "text": "' + b"x" * 2_500_000 + b'"}',
        b'{"id": ' + b"9" * 5000 + b"}",
        b'{"id": "good", "text": "repeats the first"}',
    ]
    file.write_bytes(b"\n".join([b'\xef\xbb\xbf{"id": "good", "text": "first"}', *bad, b'{"id": "last", "text": "z"}']))
    documents, failures = _listed(opened(kind="json_lines", path=file))
    assert {name: document.data for name, document in documents.items()} == {"good": b"first", "last": b"z"}
    assert len(failures) == len(bad)
    numbered = [failure for failure in failures if ", line " in failure.source]
    assert [int(failure.source.rpartition(" ")[2]) for failure in numbered] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15]
    assert failures[-1].code == "duplicate"
    assert failures[-3].code == "too_large"
    assert all(failure.message.isprintable() for failure in failures)


def test_text__missing_or_no_text_fails_alone_when_it_is_loaded(file: Path, opened: Any) -> None:
    file.write_text('{"id": 1}\n{"id": 2, "text": null}\n{"id": 3, "text": {}}\n{"id": 4, "text": "x", "title": 5}\n')
    source = opened(kind="json_lines", path=file, title_field="title")
    listing = source.listing()
    for entry in listing:
        with pytest.raises(SourceError, match="text") as caught:
            source.load(entry)
        assert caught.value.code == "unreadable"
    assert listing.complete, "their identity is known, so nothing else is taken for gone"


def test_load__of_a_file_that_was_written_again(file: Path, opened: Any) -> None:
    file.write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n')
    source = opened(kind="json_lines", path=file)
    first, second = source.listing()
    file.write_text('{"id": 2, "text": "b"}\n{"id": 1, "text": "a"}\n')
    for entry in (first, second):
        with pytest.raises(SourceError, match="list the file again") as caught:
            source.load(entry)
        assert caught.value.code == "not_found"
    file.unlink()
    with pytest.raises(SourceError, match="does not exist"):
        source.load(first)


def test_mark__changes_with_what_is_taken_of_the_line_and_with_nothing_else(file: Path, opened: Any) -> None:
    def etag(row: dict[str, Any], **spec: Any) -> str | None:
        file.write_text("\n" + json.dumps(row))
        [entry] = opened(kind="json_lines", path=file, metadata_fields=["year"], **spec).listing()
        return str(entry.etag)

    first = etag({"id": 1, "text": "a", "year": 1})
    assert etag({"seen": 5, "year": 1, "text": "a", "id": 1}) == first
    others = [
        etag({"id": 1, "text": "b", "year": 1}),
        etag({"id": 1, "text": "a", "year": 2}),
        etag({"id": 1, "text": "a", "year": 1}, title_field="title"),
        etag({"id": 1, "text": "a", "year": 1}, acl=["hr"]),
    ]
    assert len({first, *others}) == 5


def test_covers__the_documents_of_this_file(file: Path, opened: Any) -> None:
    listing = opened(kind="json_lines", path=file).listing()
    assert listing.covers(f"{file.parent.name}/{file.name}#gone")
    assert not listing.covers(f"{file.parent.name}/{file.name}")
    assert not listing.covers(f"{file.parent.name}/{file.name}x#a")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]),
    bom=st.booleans(),
)
def test_places__lead_back_to_every_line(texts: list[str], end: str, bom: bool, tmp_path: Path) -> None:
    file = tmp_path / "any.jsonl"
    lines = [json.dumps({"id": n, "text": text}, ensure_ascii=n % 2 == 0) for n, text in enumerate(texts)]
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + end.join(lines).encode())
    documents, failures = _listed(create_source({"kind": "json_lines", "path": str(file)}, IngestionSettings()))
    assert failures == []
    assert [document.data.decode() for document in documents.values()] == texts
