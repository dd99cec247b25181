"""What ingestion leaves behind: one live version of each document, right statistics, nothing of the removed."""

import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as settings_
from hypothesis import strategies as st
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import RequestError, SpaceMismatch
from kosmos_rag.storage.corpus import analysis_of
from kosmos_rag.storage.tenancy import tenant
from kosmos_rag.testing import HashingEmbedder

TABLES = ("documents", "document_versions", "chunks", "embeddings", "lexemes")


def _text(source: str, text: str, **options: object) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), **options)  # type: ignore[arg-type]


def _rows(database: DatabaseSettings, table: str) -> int:
    with psycopg.connect(database.admin_url or "") as connection:
        row = connection.execute(f"SELECT count(*) FROM kosmos.{table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def _assert_statistics(database: DatabaseSettings, name: str) -> None:
    """The kept statistics are what counting the chunks gives."""
    with psycopg.connect(database.admin_url or "") as connection:
        kept = connection.execute(
            "SELECT lexeme, chunks FROM kosmos.lexemes WHERE tenant_id = %s", (tenant(name).id,)
        ).fetchall()
        counted = connection.execute(
            "SELECT u.lexeme, count(*) FROM kosmos.chunks c, unnest(c.tsv) u WHERE c.tenant_id = %s GROUP BY 1",
            (tenant(name).id,),
        ).fetchall()
        assert Counter(dict(kept)) == Counter(dict(counted))
        size = connection.execute(
            "SELECT chunks, length FROM kosmos.corpus_statistics WHERE tenant_id = %s", (tenant(name).id,)
        ).fetchone()
        assert (
            size
            == connection.execute(
                "SELECT count(*), coalesce(sum(length), 0) FROM kosmos.chunks WHERE tenant_id = %s", (tenant(name).id,)
            ).fetchone()
        )


def test_ingest__counts_new_changed_unchanged_and_removed(engine: Engine, tmp_path: Path) -> None:
    scope = engine.tenant("acme")
    (tmp_path / "a.md").write_text("# A\n\nAbout churn.")
    (tmp_path / "b.txt").write_text("About revenue.")
    first = scope.ingest([tmp_path])
    assert (first.new, first.changed, first.unchanged, first.removed, first.failed) == (2, 0, 0, 0, ())
    second = scope.ingest([tmp_path])
    assert (second.new, second.changed, second.unchanged, second.chunks) == (0, 0, 2, 0)
    (tmp_path / "a.md").write_text("# A\n\nAbout cohorts.")
    (tmp_path / "b.txt").unlink()
    third = scope.ingest([tmp_path])
    assert (third.new, third.changed, third.unchanged, third.removed) == (0, 1, 0, 1)
    [document] = scope.documents()
    assert (document.source, document.version, document.title) == (str(tmp_path / "a.md"), 2, "A")
    assert not any("churn" in hit.text for hit in scope.retrieve("churn", 10).hits)


def test_ingest__keeps_missing_documents_when_told_to(engine: Engine, tmp_path: Path) -> None:
    scope = engine.tenant("acme")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"file {name}")
    scope.ingest([tmp_path])
    (tmp_path / "b.txt").unlink()
    assert scope.ingest([tmp_path], prune=False).removed == 0
    assert len(scope.documents()) == 2


def test_ingest__keeps_the_documents_of_a_folder_that_is_suddenly_empty(engine: Engine, tmp_path: Path) -> None:
    scope = engine.tenant("acme")
    (tmp_path / "a.txt").write_text("words")
    scope.ingest([tmp_path])
    (tmp_path / "a.txt").unlink()
    report = scope.ingest([tmp_path])
    assert report.removed == 0
    assert [failure.code for failure in report.failed] == ["empty_folder"]
    assert len(scope.documents()) == 1


def test_ingest__leaves_documents_outside_the_folder_alone(engine: Engine, tmp_path: Path) -> None:
    scope = engine.tenant("acme")
    for folder in ("docs", "docs-old"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    scope.ingest([tmp_path / "docs", tmp_path / "docs-old", _text("note", "kept elsewhere")])
    assert scope.ingest([tmp_path / "docs"]).removed == 0
    assert len(scope.documents()) == 3


def test_ingest__goes_on_past_what_fails(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("good words")
    (tmp_path / "empty.txt").write_text("  \n ")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nnot really")
    missing = tmp_path / "missing.txt"
    report = engine.tenant("acme").ingest([tmp_path, missing])
    assert report.new == 1
    assert {Path(failure.source).name: failure.code for failure in report.failed} == {
        "empty.txt": "empty",
        "binary.txt": "binary",
        "broken.pdf": "corrupt",
        "missing.txt": "not_found",
    }
    assert report.seen == 5


def test_ingest__a_changed_file_that_fails_keeps_its_old_version(engine: Engine, tmp_path: Path) -> None:
    scope = engine.tenant("acme")
    file = tmp_path / "a.txt"
    file.write_text("about churn")
    scope.ingest([tmp_path])
    file.write_bytes(b"\x00\x01\x02" * 500)
    report = scope.ingest([tmp_path])
    assert [failure.code for failure in report.failed] == ["binary"]
    assert [hit.text for hit in scope.retrieve("churn").hits] == ["about churn"]


def test_ingest__refuses_what_is_not_a_regular_file(engine: Engine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        report = engine.tenant("acme").ingest([tmp_path])
    assert [failure.code for failure in report.failed] == ["not_a_file", "not_a_file"]


def test_ingest__names_what_it_may_not_read(engine: Engine, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "a.txt").write_text("secret")
    (tmp_path / "b.txt").write_text("secret")
    (tmp_path / "b.txt").chmod(0)
    closed.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and os.geteuid() == 0:
            folder.chmod(folder.stat().st_mode | 0o055)
    root = os.geteuid() == 0
    engine.tenant("acme").ingest([_text("first", "words")])  # connections are open before rights are given up
    try:
        if root:
            os.seteuid(65534)
        report = engine.tenant("acme").ingest([tmp_path])
    finally:
        if root:
            os.seteuid(0)
        closed.chmod(0o700)
    assert {Path(failure.source).name: failure.code for failure in report.failed} == {
        "closed": "no_permission",
        "b.txt": "no_permission",
    }


def test_ingest__a_file_larger_than_allowed_is_named(settings: Settings, tmp_path: Path) -> None:
    limited = settings.model_copy(update={"ingestion": settings.ingestion.model_copy(update={"max_file_mb": 1})})
    (tmp_path / "big.txt").write_bytes(b"a" * (1024 * 1024 + 1))
    with Engine(limited, embedder=HashingEmbedder()) as engine:
        report = engine.tenant("acme").ingest([tmp_path, _text("big", "b" * (1024 * 1024 + 1))])
    assert [failure.code for failure in report.failed] == ["too_large", "too_large"]
    assert "max_file_mb" in report.failed[0].message


@pytest.mark.parametrize(
    "document",
    [
        _text("", "words"),
        _text("a\x00b", "words"),
        _text("x" * 3000, "words"),
        _text("a", "words", metadata={"at": object()}),
        _text("a", "words", metadata={"x": float("nan")}),
        _text("a", "words", title="lone \ud800 surrogate"),
        _text("a", "words", readers=()),
        _text("a", "words", readers="finance"),
        _text("a", "words", readers=(1,)),
        _text("a", "words", metadata={1: 2, "a": 3}),
        pytest.param(_text("a", "words", metadata={"deep": reduce(lambda one, _: [one], range(5000), [])}), id="deep"),
        _text("u\ud800", "words"),
        SourceDocument(source="a", data="words"),  # type: ignore[arg-type]
        Path("/tmp/\x00x"),
    ],
    ids=lambda document: repr(document)[:60].encode("ascii", "replace").decode(),
)
def test_ingest__refuses_a_document_that_cannot_be_stored(document: SourceDocument | Path, engine: Engine) -> None:
    told: list[str] = []
    report = engine.tenant("acme").ingest(
        [document, _text("good", "good words")], on_progress=lambda _done, _total, source: told.append(source)
    )
    assert [failure.code for failure in report.failed] == ["unreadable"]
    assert report.new == 1


def test_ingest__a_document_that_the_database_refuses_does_not_take_others_along(
    engine: Engine, database: DatabaseSettings
) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("ALTER TABLE kosmos.documents ADD CHECK (source <> 'poison')")
    scope = engine.tenant("acme")
    documents = [_text("before", "first words"), _text("poison", "words"), _text("after", "last words")]
    report = scope.ingest(documents)
    assert report.new == 2
    assert [(failure.source, failure.code) for failure in report.failed] == [("poison", "storage")]
    assert [document.source for document in scope.documents()] == ["after", "before"]


def test_ingest__the_same_source_twice_in_one_call_is_one_document(engine: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    report = scope.ingest([_text("a", "first words"), _text("a", "second words"), _text("a", "second words")])
    assert (report.new, report.changed, report.unchanged) == (1, 1, 1)
    assert [hit.text for hit in scope.retrieve("words").hits] == ["second words"]
    _assert_statistics(database, "acme")


def test_ingest__new_metadata_or_readers_of_the_same_content_are_published(engine: Engine) -> None:
    scope = engine.tenant("acme")
    scope.ingest([_text("a", "words")])
    assert scope.ingest([_text("a", "words", metadata={"year": 2026})]).changed == 1
    assert scope.documents()[0].metadata == {"year": 2026}
    assert scope.ingest([_text("a", "words", metadata={"year": 2026}, readers=("finance",))]).changed == 1
    assert scope.retrieve("words").returned == 0
    assert engine.tenant("acme", principals=["finance"]).retrieve("words").returned == 1


def test_statistics__are_right_after_any_sequence_of_changes(engine: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    dice = random.Random(7)
    words = [f"word{number}" for number in range(40)]
    for _ in range(25):
        if dice.random() < 0.3:
            scope.delete([f"doc{dice.randrange(12)}" for _ in range(3)])
        else:
            scope.ingest(
                _text(f"doc{dice.randrange(12)}", "\n\n".join(" ".join(dice.choices(words, k=30)) for _ in range(5)))
                for _ in range(4)
            )
        _assert_statistics(database, "acme")


def test_statistics__are_right_under_concurrent_writers(engine: Engine, database: DatabaseSettings) -> None:
    failures: list[BaseException] = []

    def write(seed: int) -> None:
        dice = random.Random(seed)
        scope = engine.tenant("acme")
        try:
            for _ in range(12):
                names = [f"doc{dice.randrange(6)}" for _ in range(3)]
                if dice.random() < 0.3:
                    scope.delete(names)
                else:
                    scope.ingest(_text(name, " ".join(dice.choices("abcdefghij", k=20))) for name in set(names))
        except Exception as error:  # noqa: BLE001 — handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    _assert_statistics(database, "acme")
    assert _rows(database, "documents") == _rows(database, "document_versions")


def test_the_same_document_from_many_threads_is_one_document(engine: Engine, database: DatabaseSettings) -> None:
    threads = [
        threading.Thread(target=lambda: engine.tenant("acme").ingest([_text("a", "the same words")])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [_rows(database, table) for table in TABLES[:4]] == [1, 1, 1, 1]
    _assert_statistics(database, "acme")


def test_delete__leaves_no_row(engine: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    scope.ingest([_text("a", "alpha beta"), _text("b", "beta gamma")])
    assert scope.delete(["a", "b", "never there"]) == 2
    assert [_rows(database, table) for table in TABLES] == [0, 0, 0, 0, 0]
    assert scope.delete("a") == 0
    assert engine.tenant("nobody").delete("a") == 0


def test_publishing__shows_the_old_version_until_the_new_one_is_complete(
    engine: Engine, database: DatabaseSettings
) -> None:
    scope = engine.tenant("acme")
    texts = [
        "\n\n".join(f"version {number} paragraph {part} " + "x" * 200 for part in range(30)) for number in range(6)
    ]
    scope.ingest([_text("a", texts[0])])
    seen: list[set[str]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            found = scope.retrieve("paragraph", 100)
            seen.append({" ".join(hit.text.split()[:2]) for hit in found.hits})
            assert found.returned == 30

    reader = threading.Thread(target=read)
    reader.start()
    for text in texts[1:]:
        scope.ingest([_text("a", text)])
    stop.set()
    reader.join()
    assert all(len(versions) == 1 for versions in seen)
    assert len(seen) > 1


def test_versions__of_the_same_content_have_the_same_ids(engine: Engine) -> None:
    scope = engine.tenant("acme")

    def ids() -> list[object]:
        scope.ingest([_text("a", "alpha beta"), _text("b", "gamma")])
        return [(hit.chunk_id, hit.version_id, hit.score) for hit in scope.retrieve("alpha gamma").hits]

    first = ids()
    scope.delete(["a", "b"])
    assert ids() == first


def test_another_model_is_refused_for_reading_and_for_writing(settings: Settings) -> None:
    with Engine(settings, embedder=HashingEmbedder(dimensions=64)) as engine:
        engine.tenant("acme").ingest([_text("a", "words")])
    with Engine(settings, embedder=HashingEmbedder(dimensions=32)) as engine:
        with pytest.raises(SpaceMismatch, match="64 dimensions, the configured ones 32"):
            engine.tenant("acme").retrieve("words")
        with pytest.raises(SpaceMismatch, match="64 dimensions, the configured ones 32"):
            engine.tenant("acme").ingest([_text("b", "words")])
        assert engine.tenant("other").ingest([_text("b", "words")]).new == 1


class _Shuffled(HashingEmbedder):
    """Another model of the same name and size."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        return super().embed_query(question)[::-1].copy()


def test_another_model_of_the_same_name_and_size_is_refused(settings: Settings) -> None:
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest([_text("a", "words")])
    with (
        Engine(settings, embedder=_Shuffled()) as engine,
        pytest.raises(SpaceMismatch, match="one sentence differently"),
    ):
        engine.tenant("acme").retrieve("words")


def test_progress__is_told_for_every_document(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    told: list[tuple[int, int, str]] = []
    engine.tenant("acme").ingest(
        [tmp_path, tmp_path / "missing.txt", _text("b", "more")], on_progress=lambda *state: told.append(state)
    )
    assert [(done, total) for done, total, _ in told] == [(1, 2), (2, 2)]


@settings_(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=100), max_size=4
    )
)
@example(texts=["it's o''clock at C:\\\\temp\\x 'quoted' http://a.b/c?d=e f-g 3.14 a@b.cd", "", "x " * 300 + "y x z"])
def test_analysis__is_what_postgres_says(texts: list[str], shared_connection: psycopg.Connection) -> None:
    query = (
        "SELECT t, ARRAY(SELECT u.lexeme FROM unnest(t) u), ARRAY(SELECT cardinality(u.positions) FROM unnest(t) u) "
        "FROM unnest(%s::text[]) WITH ORDINALITY AS given (text, n), to_tsvector('english', text) t ORDER BY n"
    )
    rows = shared_connection.cursor(binary=True).execute(query, (texts,)).fetchall()
    analysis = analysis_of([tsvector for tsvector, _, _ in rows])
    found: list[dict[str, int]] = [{} for _ in rows]
    for row, lexeme, frequency in zip(analysis.rows, analysis.lexemes, analysis.frequencies, strict=True):
        found[row][analysis.vocabulary[lexeme]] = frequency
    assert found == [dict(zip(lexemes, counts, strict=True)) for _, lexemes, counts in rows]
    assert analysis.lengths.tolist() == [sum(counts) for _, _, counts in rows]
    assert analysis.vocabulary == sorted({lexeme for _, lexemes, _ in rows for lexeme in lexemes})


@pytest.fixture(scope="module")
def shared_connection(server: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.admin, autocommit=True) as connection:
        yield connection


def test_ingest__takes_one_path_or_document_as_well_as_many(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    scope = engine.tenant("acme")
    assert scope.ingest(str(tmp_path)).new == 1
    assert scope.ingest(tmp_path).unchanged == 1
    assert scope.ingest(_text("b", "words")).new == 1


def test_prune__keeps_what_is_there_though_it_was_not_walked(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("behind a link")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "b.txt").write_text("a file")
    (docs / ".hidden").write_text("hidden words")
    (docs / "link").symlink_to(tmp_path / "elsewhere")
    scope = engine.tenant("acme")
    given = _text(str(docs / "virtual.md"), "made by a program")
    report = scope.ingest([docs, docs / "link", docs / ".hidden", given])
    assert (report.new, report.removed) == (4, 0)
    assert scope.ingest([docs, given]).removed == 0
    assert len(scope.sources()) == 4


def test_principals__are_names_and_not_letters(engine: Engine) -> None:
    for wrong in ("finance", [1], ["a\x00"]):
        with pytest.raises(RequestError, match="give a list of names"):
            engine.tenant("acme", principals=wrong)  # type: ignore[arg-type]


def test_sources__lists_what_the_reader_may_not_read(engine: Engine) -> None:
    scope = engine.tenant("acme", principals=["guest"])
    scope.ingest(_text("board.md", "secret", readers=("board",)))
    assert scope.documents() == []
    assert scope.sources() == ["board.md"]
