"""Experiments and who may see what: tenants, collections and departments stay apart in both configurations."""

import uuid

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.storage.tenants import tenant
from tests.integration.evaluation.experiments.asking import WORDS, document, drained, load_outcomes
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


def test_other_tenants_and_collections__take_no_part_and_see_nothing(
    engine: Engine, acme: Tenant, database: DatabaseSettings
) -> None:
    other = _filled_other(engine)
    wiki = engine.tenant("acme", collection="wiki")
    wiki.ingest(document(1))
    Experiments(acme).start("words", WORDS, share=1.0, mode="serve")
    for scope in (other, wiki):
        assert scope.search("churn account1", 5).experiment is None
    acme.search("churn account1", 5)
    drained(engine)
    assert Experiments(other).infos() == []
    for call in (Experiments(other).status, Experiments(other).stop):
        with pytest.raises(RequestError, match="tenant other has no experiment 'words'"):
            call("words")
    assert Experiments(acme).status("words").results == 1
    for table in ("experiments", "experiment_results"):
        count = f"SELECT count(*), count(DISTINCT tenant_id) FROM kosmos.{table}".encode()
        with psycopg.connect(database.worker_url or "") as worker:
            assert worker.execute(count).fetchone() == (0, 0)
            for name, rows in (("acme", 1), ("other", 0)):
                worker.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant(name).id, [EVERYONE]))
                assert worker.execute(count).fetchone() == (rows, rows)
    with psycopg.connect(database.url) as app:
        app.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant("acme").id, [EVERYONE]))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("SELECT FROM kosmos.experiment_results")


def _filled_other(engine: Engine) -> Tenant:
    other = engine.tenant("other")
    other.ingest(document(1))
    return other


def test_departments__hold_for_the_second_configuration(settings: Settings, database: DatabaseSettings) -> None:
    """What only the board may read is nearest to the question; the shadow finds it for the board alone."""
    with opened(settings, {}) as engine:
        writer = engine.tenant("acme")
        writer.ingest(document(number, acl=("department:hr",)) for number in range(4))
        writer.ingest(document(9, "secret merger", acl=("department:board",)))
        for mode in ("shadow", "serve"):
            Experiments(writer).start(mode, WORDS, share=1.0, mode=mode)
            for department, hits in (("hr", 4), ("board", 1)):
                reader = engine.tenant("acme", principals=[f"department:{department}"])
                outcome = reader.search("churn secret merger", 10)
                assert {hit.source for hit in outcome.hits} == ({"d9"} if hits == 1 else {"d0", "d1", "d2", "d3"})
                assert outcome.returned == hits
            nobody = engine.tenant("acme", principals=["department:sales"]).search("churn secret merger", 10)
            assert nobody.returned == 0
            drained(engine)
            column = "treatment_hits" if mode == "serve" else "control_hits, treatment_hits"
            counts = load_outcomes(database, column)
            assert counts == ([(4,), (1,), (0,)] if mode == "serve" else [(4, 4), (1, 1), (0, 0)])
            Experiments(writer).stop(mode)
            with psycopg.connect(database.admin_url or "", autocommit=True) as admin:
                admin.execute("TRUNCATE kosmos.experiment_results")


def test_results__hold_no_text_and_no_reader(engine: Engine, acme: Tenant, database: DatabaseSettings) -> None:
    Experiments(acme).start("words", WORDS, share=1.0)
    grace = engine.tenant("acme", subject="grace@acme.example")
    grace.search("churn secretword", 5)
    drained(engine)
    [(row,)] = load_outcomes(database, "to_jsonb(experiment_results)::text")
    # No name of hexadecimal digits: the ids of the row are random.
    for result in ("secretword", "grace", EVERYONE):
        assert result not in row
    assert uuid.UUID(tenant("acme").id.hex).hex in row.replace("-", "")
