"""What ingestion leaves behind of the documents given: one live version of each, of one model."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import EmbeddingSpaceMismatch, RequestError
from kosmos_rag.models.testing.hashing import HashingEmbedder


def _text(source: str, text: str, **options: Any) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), **options)


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "document",
    [
        _text("", "words"),
        _text("a\x00b", "words"),
        _text("x" * 3000, "words"),
        _text("a", "words", metadata={"at": object()}),
        _text("a", "words", metadata={"x": float("nan")}),
        _text("a", "words", title="lone \ud800 surrogate"),
        _text("a", "words", acl=()),
        _text("a", "words", acl="finance"),
        _text("a", "words", acl=(1,)),
        _text("a", "words", metadata={1: 2, "a": 3}),
        pytest.param(_text("a", "words", metadata={"deep": _deep(5000)}), id="deep"),
        pytest.param(_text("a", "words", metadata={"deep": _deep(300)}), id="deeper than what is read"),
        _text("u\ud800", "words"),
        SourceDocument(source="a", data="words"),  # type: ignore[arg-type]
        Path("/tmp/\x00x"),
    ],
    ids=lambda document: repr(document)[:60].encode("ascii", "replace").decode(),
)
def test_ingest__refuses_a_document_that_cannot_be_stored(
    document: SourceDocument | Path, engine: Engine, tenant_name: str
) -> None:
    result: list[str] = []
    report = engine.tenant(tenant_name).ingest(
        [document, _text("good", "good words")], on_progress=lambda outcome, _total, source: result.append(source)
    )
    assert [failure.code for failure in report.failed] == ["unreadable"]
    assert report.new == 1


def test_metadata__of_many_levels_and_digits_can_be_read_again(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    metadata = {"deep": _deep(97), "long": 10**4000, "small": 5e-324}
    assert scope.ingest([_text("a", "words", metadata=metadata)]).new == 1
    assert scope.update_metadata("a", {"deeper": _deep(98)}) == 1
    with pytest.raises(RequestError, match="more than 100 levels"):
        scope.update_metadata("a", {"deeper": _deep(101)})
    (document,) = scope.documents()
    assert document.metadata["long"] == metadata["long"]
    assert scope.search("words").hits[0].metadata["deep"] == metadata["deep"]


@pytest.mark.own_database
def test_ingest__a_document_that_the_database_refuses_does_not_take_others_along(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("ALTER TABLE kosmos.documents ADD CHECK (source <> 'poison')")
    scope = engine.tenant(tenant_name)
    documents = [_text("before", "first words"), _text("poison", "words"), _text("after", "last words")]
    report = scope.ingest(documents)
    assert report.new == 2
    assert [(failure.source, failure.code) for failure in report.failed] == [("poison", "storage")]
    assert [document.source for document in scope.documents()] == ["after", "before"]


def test_ingest__new_metadata_or_readers_of_the_same_content_are_published(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([_text("a", "words")])
    assert scope.ingest([_text("a", "words", metadata={"year": 2026})]).changed == 1
    assert scope.documents()[0].metadata == {"year": 2026}
    assert scope.ingest([_text("a", "words", metadata={"year": 2026}, acl=("finance",))]).changed == 1
    assert scope.search("words").returned == 0
    assert engine.tenant(tenant_name, principals=["finance"]).search("words").returned == 1


def test_ingest__the_same_source_twice_is_published_twice_in_order(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    report = scope.ingest([_text("a", "early words"), _text("b", "words"), _text("a", "late words")])
    assert (report.new, report.changed, report.failed) == (2, 1, ())
    assert {document.source: document.version for document in scope.documents()} == {"a": 2, "b": 1}
    assert dict(scope.texts()) == {"a": "late words", "b": "words"}


def test_publishing__shows_the_old_version_until_the_new_one_is_complete(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    texts = [
        "\n\n".join(f"version {number} paragraph {part} " + "x" * 200 for part in range(30)) for number in range(6)
    ]
    scope.ingest([_text("a", texts[0])])
    states: list[set[str]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            outcome = scope.search("paragraph", 100)
            states.append({" ".join(hit.text.split()[:2]) for hit in outcome.hits})
            assert outcome.returned == 30

    reader = threading.Thread(target=read)
    reader.start()
    for text in texts[1:]:
        scope.ingest([_text("a", text)])
    stop.set()
    reader.join()
    assert all(len(versions) == 1 for versions in states)
    assert len(states) > 1


def test_versions__of_the_same_content_have_the_same_ids(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)

    def ids() -> list[object]:
        scope.ingest([_text("a", "alpha beta"), _text("b", "gamma")])
        return [(hit.chunk_id, hit.version_id, hit.score) for hit in scope.search("alpha gamma").hits]

    first = ids()
    scope.delete(["a", "b"])
    assert ids() == first


def test_other_model__is_refused_for_reading_and_writing(settings: Settings, tenant_name: str) -> None:
    with Engine(settings, embedder=HashingEmbedder(dimensions=64)) as engine:
        engine.tenant(tenant_name).ingest([_text("a", "words")])
    with Engine(settings, embedder=HashingEmbedder(dimensions=32)) as engine:
        with pytest.raises(EmbeddingSpaceMismatch, match="64 dimensions, the configured ones 32"):
            engine.tenant(tenant_name).search("words")
        with pytest.raises(EmbeddingSpaceMismatch, match="64 dimensions, the configured ones 32"):
            engine.tenant(tenant_name).ingest([_text("b", "words")])
        assert engine.tenant(f"{tenant_name}-other").ingest([_text("b", "words")]).new == 1


class _Shuffled(HashingEmbedder):
    """Another model of the same name and size."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        return super().embed_query(question)[::-1].copy()


def test_other_model__of_the_same_name_and_size_is_refused(settings: Settings, tenant_name: str) -> None:
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant(tenant_name).ingest([_text("a", "words")])
    with (
        Engine(settings, embedder=_Shuffled()) as engine,
        pytest.raises(EmbeddingSpaceMismatch, match="one sentence differently"),
    ):
        engine.tenant(tenant_name).search("words")


def test_ingest__takes_one_path_or_document_as_well_as_many(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    (tmp_path / "a.txt").write_text("words")
    scope = engine.tenant(tenant_name)
    assert scope.ingest(str(tmp_path)).new == 1
    assert scope.ingest(tmp_path).unchanged == 1
    assert scope.ingest(_text("b", "words")).new == 1


def test_principals__are_names_and_not_letters(engine: Engine, tenant_name: str) -> None:
    for wrong in ("finance", [1], ["a\x00"]):
        with pytest.raises(RequestError, match="give a list of names"):
            engine.tenant(tenant_name, principals=wrong)  # type: ignore[arg-type]


def test_sources__lists_what_the_reader_may_not_read(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name, principals=["guest"])
    scope.ingest(_text("board.md", "secret", acl=("board",)))
    assert scope.documents() == []
    assert scope.sources() == ["board.md"]
