"""Moving a tenant from one embedding model to another: what each step leaves, what it refuses, what questions see."""

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import ConfigError, ModelError, RequestError, SpaceMismatch
from kosmos_rag.ports import Vectors
from kosmos_rag.records import SpaceInfo
from kosmos_rag.scope import TenantScope
from kosmos_rag.testing import HashingEmbedder
from tests.integration.two_models import NEW, OLD, OtherEmbedder, document, model_of
from tests.integration.variants import opened

CHUNKS = 40
QUESTION = "churn of account7"


@pytest.fixture
def moving(settings: Settings) -> Iterator[Engine]:
    """An engine with both models, and a tenant that was embedded by the first."""
    with opened(settings, {}, embedder=OLD, next_embedder=NEW) as engine:
        engine.tenant("acme").ingest(document(number) for number in range(CHUNKS))
        yield engine


@pytest.fixture
def acme(moving: Engine) -> TenantScope:
    return moving.tenant("acme")


def _by_model(spaces: Sequence[SpaceInfo]) -> dict[str, SpaceInfo]:
    return {info.model: info for info in spaces}


def _stored(database: DatabaseSettings, tenant_id: uuid.UUID) -> dict[str, int]:
    """How many vectors there are of each model."""
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT s.model, count(e.chunk_id) FROM kosmos.embedding_spaces s LEFT JOIN kosmos.embeddings e "
            "ON e.tenant_id = s.tenant_id AND e.space_id = s.id WHERE s.tenant_id = %s GROUP BY 1",
            (tenant_id,),
        ).fetchall()
    return dict(rows)


def test_move__from_start_to_drop(acme: TenantScope, database: DatabaseSettings) -> None:
    seen: list[tuple[int, int]] = []
    started = _by_model(acme.spaces.start(on_progress=lambda done, total, _: seen.append((done, total))))
    assert seen[-1] == (CHUNKS, CHUNKS)
    assert [(info.state, info.live, info.embedded, info.chunks) for info in started.values()] == [
        ("ready", True, CHUNKS, CHUNKS),
        ("building", False, CHUNKS, CHUNKS),
    ]
    assert model_of(acme.retrieve(QUESTION)) == OLD.name

    quality = acme.spaces.switch()
    assert (quality.model, quality.live_model, quality.forced) == (NEW.name, OLD.name, None)
    assert model_of(acme.retrieve(QUESTION)) == NEW.name
    switched = acme.spaces.status()
    assert [(info.model, info.state, info.live) for info in switched] == [
        (NEW.name, "ready", True),
        (OLD.name, "ready", False),
    ]
    assert switched[1].live_until is not None

    assert [info.model for info in acme.spaces.rollback() if info.live] == [OLD.name]
    assert model_of(acme.retrieve(QUESTION)) == OLD.name
    assert [info.model for info in acme.spaces.drop(NEW.name)] == [OLD.name]
    assert _stored(database, acme.id) == {OLD.name: CHUNKS}
    assert model_of(acme.retrieve(QUESTION)) == OLD.name


def test_move__and_drop_of_the_old_space(acme: TenantScope, database: DatabaseSettings) -> None:
    acme.spaces.start()
    acme.spaces.switch()
    [old] = [info for info in acme.spaces.status() if not info.live]
    acme.spaces.drop(str(old.id))
    assert _stored(database, acme.id) == {NEW.name: CHUNKS}
    assert model_of(acme.retrieve(QUESTION)) == NEW.name
    with pytest.raises(RequestError, match="no space that was live before"):
        acme.spaces.rollback()


def test_vectors__are_those_that_an_ingestion_makes(
    settings: Settings, database: DatabaseSettings, knowledge_base: Path
) -> None:
    titled = SourceDocument(source="/x/churn.txt", title="word " * 80, data=b"Accounts that leave. " * 40)
    named = SourceDocument(source="/x/named.txt", title="named", data=b"A title that is the file's name. " * 40)
    with opened(settings, {}, embedder=OLD, next_embedder=NEW) as engine:
        scope = engine.tenant("moved")
        scope.ingest([knowledge_base, titled, named])
        scope.spaces.start()
    with opened(settings, {}, embedder=NEW) as engine:
        engine.tenant("made").ingest([knowledge_base, titled, named])
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT t.name, d.source, c.ordinal, e.embedding::text, e.acl, e.collection "
            "FROM kosmos.embeddings e "
            "JOIN kosmos.embedding_spaces s ON s.tenant_id = e.tenant_id AND s.id = e.space_id "
            "JOIN kosmos.tenants t ON t.tenant_id = e.tenant_id "
            "JOIN kosmos.chunks c ON c.tenant_id = e.tenant_id AND c.id = e.chunk_id "
            "JOIN kosmos.documents d ON d.tenant_id = e.tenant_id AND d.id = c.document_id WHERE s.dimensions = 768"
        ).fetchall()
    vectors = {name: {row[1:3]: row[3:] for row in rows if row[0] == name} for name in ("moved", "made")}
    assert len(vectors["made"]) > 20
    assert vectors["moved"] == vectors["made"]


class FailingEmbedder(OtherEmbedder):
    """Fails after so many calls of `embed`, and counts the texts that it has embedded."""

    def __init__(self, calls: int) -> None:
        super().__init__(dimensions=768)
        self.left = calls
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.left == 0:
            raise ModelError("out of memory")
        self.left -= 1
        self.texts += len(texts)
        return super().embed(texts)


def test_start__goes_on_where_it_was_interrupted(moving: Engine, settings: Settings) -> None:
    failing = FailingEmbedder(3)
    with opened(settings, {}, embedder=OLD, next_embedder=failing) as engine:
        scope = engine.tenant("acme")
        with pytest.raises(ModelError, match="out of memory"):
            scope.spaces.start(chunks_per_second=10)  # and so ten at once
        assert _by_model(scope.spaces.status())[NEW.name].embedded == 30
        failing.left = -1
        assert _by_model(scope.spaces.start())[NEW.name].embedded == CHUNKS
        assert failing.texts == CHUNKS


def test_step__says_how_many_and_then_none(acme: TenantScope) -> None:
    assert acme.spaces.step(10) == 0  # before `start` only the live space is there, and it lacks nothing
    acme._parts.reembedding.begin(acme._tenant)
    assert [acme.spaces.step(15) for _ in range(4)] == [15, 15, 10, 0]


def test_start__keeps_to_the_rate(acme: TenantScope) -> None:
    begun = time.monotonic()
    acme.spaces.start(chunks_per_second=CHUNKS / 0.8)
    assert time.monotonic() - begun > 0.75


def test_start__counts_the_tokens_that_the_model_does_not_read(moving: Engine, settings: Settings) -> None:
    short = OtherEmbedder(dimensions=768, max_tokens=3)
    with opened(settings, {}, embedder=OLD, next_embedder=short) as engine:
        scope = engine.tenant("acme")
        space = _by_model(scope.spaces.start())[NEW.name]
        texts = [hit.text for hit in scope.retrieve("churn", 100).hits]
        assert len(texts) == CHUNKS
        assert space.truncated_tokens == sum(tokens - 3 for tokens in short.tokenizer.count(texts)) > 0


def test_documents__that_come_during_the_move_are_written_in_both_spaces(
    acme: TenantScope, database: DatabaseSettings
) -> None:
    acme._parts.reembedding.begin(acme._tenant)
    acme.ingest([document(100), document(3, title="changed")])
    assert _stored(database, acme.id) == {OLD.name: CHUNKS + 1, NEW.name: 2}
    acme.spaces.start()
    acme.spaces.switch()
    acme.ingest([document(101), document(4, title="changed")])
    acme.delete("d5")
    assert _stored(database, acme.id) == {OLD.name: CHUNKS + 1, NEW.name: CHUNKS + 1}
    acme.spaces.rollback()
    acme.spaces.switch()
    assert model_of(acme.retrieve("churn of account101")) == NEW.name


# --- what is refused -----------------------------------------------------------------------------------------------


def test_switch__is_refused_while_chunks_are_missing(acme: TenantScope) -> None:
    with pytest.raises(RequestError, match="no space to switch to; run kosmos-rag embed start"):
        acme.spaces.switch()
    acme._parts.reembedding.begin(acme._tenant)
    acme.spaces.step(30)
    with pytest.raises(RequestError, match=r"10 chunks have no vector by 'hashing-768' yet"):
        acme.spaces.switch(force="hurry")
    assert model_of(acme.retrieve(QUESTION)) == OLD.name
    acme.spaces.start()
    acme.spaces.switch()


def test_switch__is_refused_after_an_ingestion_without_the_new_model(
    acme: TenantScope, settings: Settings, database: DatabaseSettings
) -> None:
    acme.spaces.start()
    with opened(settings, {}, embedder=OLD) as other:
        other.tenant("acme").ingest([document(100), document(3, title="other")])
    with pytest.raises(RequestError, match=r"2 chunks have no vector"):
        acme.spaces.switch()
    acme.spaces.start()
    acme.spaces.switch()
    assert _stored(database, acme.id) == {OLD.name: CHUNKS + 1, NEW.name: CHUNKS + 1}


def test_rollback__is_refused_after_an_ingestion_without_the_old_model(acme: TenantScope, settings: Settings) -> None:
    acme.spaces.start()
    acme.spaces.switch()
    with opened(settings, {}, embedder=NEW) as other:
        other.tenant("acme").ingest(document(100))
        with pytest.raises(SpaceMismatch, match="hashing-384"):
            other.tenant("acme").spaces.rollback()
    with pytest.raises(RequestError, match=r"1 chunks have no vector by 'hashing-384'"):
        acme.spaces.rollback()
    acme.spaces.start()
    acme.spaces.rollback()
    assert model_of(acme.retrieve("churn of account100")) == OLD.name


def test_start__needs_two_models_and_documents(moving: Engine, settings: Settings) -> None:
    with pytest.raises(RequestError, match="has no documents"):
        moving.tenant("nobody").spaces.start()
    with pytest.raises(RequestError, match="chunks per second are 0; give a number above 0"):
        moving.tenant("acme").spaces.start(chunks_per_second=0)
    with opened(settings, {}, embedder=OLD) as one, pytest.raises(ConfigError, match=r"next_embedding\.model is null"):
        one.tenant("acme").spaces.start()
    with (
        opened(settings, {}, embedder=OLD, next_embedder=HashingEmbedder(dimensions=384)) as twice,
        pytest.raises(ConfigError, match="both name the model of tenant 'acme', 'hashing-384'"),
    ):
        twice.tenant("acme").spaces.start()
    with opened(settings, {}, embedder=NEW) as wrong, pytest.raises(SpaceMismatch, match="embed start"):
        wrong.tenant("acme").spaces.start()
    assert moving.tenant("nobody").spaces.status() == []
    assert moving.tenant("nobody").spaces.step(1) == 0


def test_drop__never_takes_the_live_space(acme: TenantScope) -> None:
    acme.spaces.start()
    with pytest.raises(RequestError, match="is live: questions are answered from it"):
        acme.spaces.drop(OLD.name)
    with pytest.raises(RequestError, match=r"has no space of 'nothing'; give an id"):
        acme.spaces.drop("nothing")
    assert len(acme.spaces.status()) == 2


def test_drop__that_was_interrupted_goes_on(acme: TenantScope, database: DatabaseSettings) -> None:
    acme.spaces.start()

    def stop(_done: int, _total: int, what: str) -> None:
        if what.startswith("deleting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        acme.spaces.drop(NEW.name, stop)
    assert _by_model(acme.spaces.status())[NEW.name].state == "dropping"
    for refused in (acme.spaces.start, acme.spaces.switch):
        with pytest.raises(RequestError, match=r"dropp"):
            refused()
    acme.ingest(document(100))
    acme.spaces.drop(NEW.name)
    assert _stored(database, acme.id) == {OLD.name: CHUNKS + 1}


# --- what is measured ----------------------------------------------------------------------------------------------


class WorseEmbedder(HashingEmbedder):
    """Finds nothing: vectors of questions have nothing to do with those of texts."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        return super().embed_query(question[::-1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([super(WorseEmbedder, self).embed_query(text) for text in texts], dtype=np.float32)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """An evaluation set, with a question that nothing answers."""
    file = tmp_path / "questions.yaml"
    lines = [f"- question: churn of account{number}\n  source: d{number}" for number in range(CHUNKS)]
    file.write_text("\n".join([*lines, "- question: Who?\n  answerable: false"]))
    return file


def test_switch__is_refused_where_the_evaluation_set_says_that_it_is_worse(
    moving: Engine, settings: Settings, questions: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worse = WorseEmbedder(dimensions=768)
    with opened(settings, {}, embedder=OLD, next_embedder=worse) as engine:
        scope = engine.tenant("acme")
        scope.spaces.start()
        with pytest.raises(RequestError, match=r"nDCG@10 is 0\.\d+ over 40 questions, that of 'hashing-384' 0\.9"):
            scope.spaces.switch(questions=questions)
        with pytest.raises(RequestError, match="in a word why"):
            scope.spaces.switch(questions=questions, force=" ")
        assert [info.model for info in scope.spaces.status() if info.live] == [OLD.name]
        quality = scope.spaces.switch(questions=str(questions), force="a drill")
        assert quality.forced == "a drill"
        assert "a drill" in caplog.text
        assert [info.model for info in scope.spaces.status() if info.live] == [NEW.name]


def test_switch__tells_what_the_evaluation_set_gives(acme: TenantScope, questions: Path) -> None:
    acme.spaces.start()
    quality = acme.spaces.switch(questions=questions)
    assert quality.questions == CHUNKS
    assert quality.ndcg_at_10 is not None
    assert quality.live_ndcg_at_10 is not None
    assert 0.95 < quality.ndcg_at_10 <= 1.0
    assert 0.95 < quality.live_ndcg_at_10 <= 1.0


# --- what questions see --------------------------------------------------------------------------------------------


def _counted(embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the questions that a model embeds from now on."""
    asked: list[str] = []
    embed_query = embedder.embed_query

    def counting(question: str) -> NDArray[np.float32]:
        asked.append(question)
        return embed_query(question)

    monkeypatch.setattr(embedder, "embed_query", counting)
    return asked


def test_question__is_embedded_once_and_twice_when_the_space_has_changed(
    acme: TenantScope, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.spaces.start()
    old, new = HashingEmbedder(dimensions=384), OtherEmbedder(dimensions=768)
    counts = [_counted(old, monkeypatch), _counted(new, monkeypatch)]

    def asked(scope: TenantScope, question: str) -> tuple[str, list[int]]:
        before = [len(count) for count in counts]
        found = model_of(scope.retrieve(question))
        return found, [len(count) - first for count, first in zip(counts, before, strict=True)]

    with opened(settings, {}, embedder=old, next_embedder=new) as other:
        other.warm_up()
        scope = other.tenant("acme")
        assert asked(scope, "churn of account1") == (OLD.name, [1, 0])
        acme.spaces.switch()
        assert asked(scope, "churn of account2") == (NEW.name, [1, 1])
        assert asked(scope, "churn of account3") == (NEW.name, [0, 1])
        assert asked(scope, "churn of account1") == (NEW.name, [0, 1])
        acme.spaces.rollback()
        assert asked(scope, "churn of account4") == (OLD.name, [1, 1])
        assert asked(scope, "churn of account1") == (OLD.name, [0, 0])  # its vectors are kept, of each model


@pytest.mark.parametrize(("current", "following"), [(OLD, NEW), (NEW, OLD)])
def test_sections__may_be_swapped_at_any_time(
    acme: TenantScope, settings: Settings, current: HashingEmbedder, following: HashingEmbedder
) -> None:
    acme.spaces.start()
    with opened(settings, {}, embedder=current, next_embedder=following) as engine:
        scope = engine.tenant("acme")
        assert model_of(scope.retrieve(QUESTION)) == OLD.name
        scope.spaces.switch()
        assert model_of(scope.retrieve(QUESTION)) == NEW.name
        scope.spaces.rollback()
        assert model_of(scope.retrieve(QUESTION)) == OLD.name
        engine.tenant("fresh").ingest(document(1))
        assert [info.model for info in engine.tenant("fresh").spaces.status()] == [current.name]


def test_kept_result__is_of_one_space(acme: TenantScope, settings: Settings) -> None:
    acme.spaces.start()
    with opened(settings, {"rag.retrieval.cached_results": 10}, embedder=OLD, next_embedder=NEW) as other:
        scope = other.tenant("acme")

        def asked() -> tuple[str, bool]:
            found = scope.retrieve(QUESTION)
            return model_of(found), found.cached

        assert [asked(), asked()] == [(OLD.name, False), (OLD.name, True)]
        acme.spaces.switch()
        assert [asked(), asked()] == [(NEW.name, False), (NEW.name, True)]
        acme.spaces.rollback()
        assert asked() == (OLD.name, True)


@pytest.mark.parametrize("variant", ["filter", "feedback", "phrase", "score fusion"])
def test_every_way_to_ask__uses_the_space_that_is_live(acme: TenantScope, settings: Settings, variant: str) -> None:
    changed: dict[str, Any] = {
        "feedback": {"rag.retrieval.feedback": 0.5},
        "score fusion": {"rag.retrieval.fusion": "score"},
    }.get(variant, {})
    acme.spaces.start()
    with opened(settings, changed, embedder=OLD, next_embedder=NEW) as other:
        for switch in (lambda: None, acme.spaces.switch, acme.spaces.rollback):
            switch()
            live = next(info.model for info in acme.spaces.status() if info.live)
            question = '"account7 in" churn' if variant == "phrase" else QUESTION
            wanted = Filter(sources=("d7", "d8")) if variant == "filter" else None
            assert model_of(other.tenant("acme").retrieve(question, 5, wanted)) == live


# Ray's own code, which is not ours to mend.
@pytest.mark.filterwarnings("ignore")
def test_ray__fills_the_space_by_its_workers(settings: Settings, database: DatabaseSettings) -> None:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        following = HashingEmbedder(dimensions=768)
        with opened(settings, {}, embedder=OLD, next_embedder=following) as engine:
            scope = engine.tenant("acme")
            scope.ingest(document(number) for number in range(CHUNKS))
            seen: list[int] = []
            spaces = _by_model(
                scope.spaces.start(engine="ray", on_progress=lambda done, _total, _step: seen.append(done))
            )
            assert spaces[following.name].embedded == CHUNKS
            assert len(seen) > 2  # parts, by workers: one process alone would have taken all at once
            scope.spaces.switch()
            assert _stored(database, scope.id) == {OLD.name: CHUNKS, following.name: CHUNKS}
    finally:
        ray.shutdown()


def test_ray__that_is_not_installed_is_named(acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'kosmos-rag\[ray\]'"):
        acme.spaces.start(engine="ray")
    assert _by_model(acme.spaces.status())[NEW.name].embedded == 0
