"""Moving a tenant from one embedding model to another: what each step leaves, and goes on from."""

import pickle
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, ModelError, RequestError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.indexing.reembedding.moved import CHUNKS, QUESTION, by_model, stored
from tests.integration.two_models import NEW, OLD, OtherEmbedder, document, find_model
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


def test_move__from_start_to_drop(acme: Tenant, database: DatabaseSettings) -> None:
    pairs: list[tuple[int, int]] = []
    started = by_model(acme.spaces.start(on_progress=lambda result, total, _: pairs.append((result, total))))
    assert pairs[-1] == (CHUNKS, CHUNKS)
    assert [(info.state, info.live, info.embedded, info.chunks) for info in started.values()] == [
        ("ready", True, CHUNKS, CHUNKS),
        ("building", False, CHUNKS, CHUNKS),
    ]
    assert find_model(acme.search(QUESTION)) == OLD.name

    quality = acme.spaces.cutover()
    assert (quality.model, quality.live_model, quality.forced) == (NEW.name, OLD.name, None)
    assert find_model(acme.search(QUESTION)) == NEW.name
    switched = acme.spaces.status()
    assert [(info.model, info.state, info.live) for info in switched] == [
        (NEW.name, "ready", True),
        (OLD.name, "ready", False),
    ]
    assert switched[1].live_until is not None

    assert [info.model for info in acme.spaces.rollback() if info.live] == [OLD.name]
    assert find_model(acme.search(QUESTION)) == OLD.name
    assert [info.model for info in acme.spaces.drop(NEW.name)] == [OLD.name]
    assert stored(database, acme.id) == {OLD.name: CHUNKS}
    assert find_model(acme.search(QUESTION)) == OLD.name


def test_move__and_drop_of_the_old_space(acme: Tenant, database: DatabaseSettings) -> None:
    acme.spaces.start()
    acme.spaces.cutover()
    [old] = [info for info in acme.spaces.status() if not info.live]
    acme.spaces.drop(str(old.id))
    assert stored(database, acme.id) == {NEW.name: CHUNKS}
    assert find_model(acme.search(QUESTION)) == NEW.name
    with pytest.raises(RequestError, match="no space that was live before"):
        acme.spaces.rollback()


def test_vectors__are_those_that_an_ingestion_makes(
    settings: Settings, database: DatabaseSettings, knowledge_base: Path
) -> None:
    titled = SourceDocument(source="/x/churn.txt", title="word " * 80, data=b"Accounts that leave. " * 40)
    untitled = SourceDocument(source="/x/named.txt", title="named", data=b"A title that is the file's name. " * 40)
    with opened(settings, {}, embedder=OLD, next_embedder=NEW) as engine:
        scope = engine.tenant("moved")
        scope.ingest([knowledge_base, titled, untitled])
        scope.spaces.start()
    with opened(settings, {}, embedder=NEW) as engine:
        engine.tenant("made").ingest([knowledge_base, titled, untitled])
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT t.name, d.source, c.chunk_index, e.embedding::text, e.acl, e.collection "
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
        assert by_model(scope.spaces.status())[NEW.name].embedded == 30
        failing.left = -1
        assert by_model(scope.spaces.start())[NEW.name].embedded == CHUNKS
        assert failing.texts == CHUNKS


def test_step__says_how_many_and_then_none(acme: Tenant) -> None:
    assert acme.spaces.backfill(10) == 0  # before `start` only the live space is there, and it lacks nothing
    acme._parts.reembedding.create_target_space(acme._tenant)
    assert [acme.spaces.backfill(15) for _ in range(4)] == [15, 15, 10, 0]


def test_start__keeps_to_the_rate(acme: Tenant) -> None:
    start = time.monotonic()
    acme.spaces.start(chunks_per_second=CHUNKS / 0.8)
    assert time.monotonic() - start > 0.75


def test_start__counts_the_tokens_that_the_model_does_not_read(moving: Engine, settings: Settings) -> None:
    short = OtherEmbedder(dimensions=768, max_tokens=3)
    with opened(settings, {}, embedder=OLD, next_embedder=short) as engine:
        scope = engine.tenant("acme")
        space = by_model(scope.spaces.start())[NEW.name]
        texts = [hit.text for hit in scope.search("churn", 100).hits]
        assert len(texts) == CHUNKS
        assert space.truncated_tokens == sum(tokens - 3 for tokens in short.tokenizer.count(texts)) > 0


def test_documents__that_come_during_the_move_are_written_in_both_spaces(
    acme: Tenant, database: DatabaseSettings
) -> None:
    acme._parts.reembedding.create_target_space(acme._tenant)
    acme.ingest([document(100), document(3, title="changed")])
    assert stored(database, acme.id) == {OLD.name: CHUNKS + 1, NEW.name: 2}
    acme.spaces.start()
    acme.spaces.cutover()
    acme.ingest([document(101), document(4, title="changed")])
    acme.delete("d5")
    assert stored(database, acme.id) == {OLD.name: CHUNKS + 1, NEW.name: CHUNKS + 1}
    acme.spaces.rollback()
    acme.spaces.cutover()
    assert find_model(acme.search("churn of account101")) == NEW.name


def test_another_process__backfills_partitions_without_an_engine(acme: Tenant) -> None:
    """As a worker of Ray does, which gets the factory pickled."""
    acme._parts.reembedding.create_target_space(acme._tenant)
    create = pickle.loads(pickle.dumps(acme._parts.reembedding_factory))
    reembedding = create()
    with closing(reembedding._database):
        assert sum(reembedding.backfill_partition(acme._tenant, number, 2, None) for number in range(2)) == CHUNKS
    assert by_model(acme.spaces.status())[NEW.name].embedded == CHUNKS


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
            numbers: list[int] = []
            spaces = by_model(
                scope.spaces.start(engine="ray", on_progress=lambda result, _total, _step: numbers.append(result))
            )
            assert spaces[following.name].embedded == CHUNKS
            assert len(numbers) > 2  # parts, by workers: one process alone would have taken all at once
            scope.spaces.cutover()
            assert stored(database, scope.id) == {OLD.name: CHUNKS, following.name: CHUNKS}
    finally:
        ray.shutdown()


def test_ray__that_is_not_installed_is_named(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'kosmos-rag\[ray\]'"):
        acme.spaces.start(engine="ray")
    assert by_model(acme.spaces.status())[NEW.name].embedded == 0
