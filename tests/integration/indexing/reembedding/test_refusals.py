"""What is refused of a move between models, and what goes on after it."""

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, EmbeddingSpaceMismatch, RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.indexing.reembedding.moved import CHUNKS, QUESTION, by_model, stored
from tests.integration.two_models import NEW, OLD, document, find_model
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


def test_switch__is_refused_while_chunks_are_missing(acme: Tenant) -> None:
    with pytest.raises(RequestError, match="no space to cut over to; run kosmos-rag reembed start"):
        acme.spaces.cutover()
    acme._parts.reembedding.create_target_space(acme._tenant)
    acme.spaces.backfill(30)
    with pytest.raises(RequestError, match=r"10 chunks have no vector by 'hashing-768' yet"):
        acme.spaces.cutover(force="hurry")
    assert find_model(acme.search(QUESTION)) == OLD.name
    acme.spaces.start()
    acme.spaces.cutover()


def test_switch__is_refused_after_an_ingestion_without_the_new_model(
    acme: Tenant, settings: Settings, database: DatabaseSettings
) -> None:
    acme.spaces.start()
    with opened(settings, {}, embedder=OLD) as other:
        other.tenant("acme").ingest([document(100), document(3, title="other")])
    with pytest.raises(RequestError, match=r"2 chunks have no vector"):
        acme.spaces.cutover()
    acme.spaces.start()
    acme.spaces.cutover()
    assert stored(database, acme.id) == {OLD.name: CHUNKS + 1, NEW.name: CHUNKS + 1}


def test_rollback__is_refused_after_an_ingestion_without_the_old_model(acme: Tenant, settings: Settings) -> None:
    acme.spaces.start()
    acme.spaces.cutover()
    with opened(settings, {}, embedder=NEW) as other:
        other.tenant("acme").ingest(document(100))
        with pytest.raises(EmbeddingSpaceMismatch, match="hashing-384"):
            other.tenant("acme").spaces.rollback()
    with pytest.raises(RequestError, match=r"1 chunks have no vector by 'hashing-384'"):
        acme.spaces.rollback()
    acme.spaces.start()
    acme.spaces.rollback()
    assert find_model(acme.search("churn of account100")) == OLD.name


def test_start__needs_two_models_and_documents(moving: Engine, settings: Settings) -> None:
    with pytest.raises(RequestError, match="has no documents"):
        moving.tenant("nobody").spaces.start()
    with pytest.raises(RequestError, match="chunks per second are 0; give a number above 0"):
        moving.tenant("acme").spaces.start(chunks_per_second=0)
    with pytest.raises(RequestError, match="chunks per second are nan; give a number above 0"):
        moving.tenant("acme").spaces.start(chunks_per_second=float("nan"))
    with opened(settings, {}, embedder=OLD) as item, pytest.raises(ConfigError, match=r"next_embedding\.model is null"):
        item.tenant("acme").spaces.start()
    with (
        opened(settings, {}, embedder=OLD, next_embedder=HashingEmbedder(dimensions=384)) as twice,
        pytest.raises(ConfigError, match="both name the model of tenant 'acme', 'hashing-384'"),
    ):
        twice.tenant("acme").spaces.start()
    with opened(settings, {}, embedder=NEW) as wrong, pytest.raises(EmbeddingSpaceMismatch, match="reembed start"):
        wrong.tenant("acme").spaces.start()
    assert moving.tenant("nobody").spaces.status() == []
    assert moving.tenant("nobody").spaces.backfill(1) == 0


def test_drop__never_takes_the_live_space(acme: Tenant) -> None:
    acme.spaces.start()
    with pytest.raises(RequestError, match="is live: queries are answered from it"):
        acme.spaces.drop(OLD.name)
    with pytest.raises(RequestError, match=r"has no space of 'nothing'; give an id"):
        acme.spaces.drop("nothing")
    assert len(acme.spaces.status()) == 2


def test_drop__that_was_interrupted_goes_on(acme: Tenant, database: DatabaseSettings) -> None:
    acme.spaces.start()

    def stop(result: int, _total: int, step: str) -> None:
        if step.startswith("deleting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        acme.spaces.drop(NEW.name, stop)
    assert by_model(acme.spaces.status())[NEW.name].state == "dropping"
    for refused in (acme.spaces.start, acme.spaces.cutover):
        with pytest.raises(RequestError, match=r"dropp"):
            refused()
    acme.ingest(document(100))
    acme.spaces.drop(NEW.name)
    assert stored(database, acme.id) == {OLD.name: CHUNKS + 1}
