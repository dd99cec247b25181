"""Known items move the weights of the fusion where a retriever fails at the language of the texts."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import IngestInterrupted
from kosmos_rag.core.types import IndexInfo, RetrieverStats
from kosmos_rag.indexing.known_items import MIN_CHUNKS
from tests.integration.variants import opened

SUBJECTS = [
    "合同",
    "发票",
    "假期",
    "保险",
    "采购",
    "密码",
    "设备",
    "差旅",
    "培训",
    "仓库",
    "合规",
    "薪酬",
    "招聘",
    "审计",
]
RULES = ["提前申请", "书面批准", "每年复核", "妥善保存", "及时归还", "如实填写", "专人负责", "定期更新"]
PLACES = ["财务处", "人事处", "法务处", "技术处", "行政处"]


@pytest.fixture(scope="module")
def engine(shared_settings: Settings) -> Iterator[Engine]:
    with opened(shared_settings, {"rag.chunking.min_size": 1}) as opened_engine:
        yield opened_engine


def _documents(count: int) -> list[SourceDocument]:
    texts = [
        f"{place}规定，员工的{subject}必须{rule}，由主管在{number}个工作日内答复。"
        for number, (subject, rule, place) in enumerate(product(SUBJECTS, RULES, PLACES), start=3)
    ]
    return [SourceDocument(source=f"{at}", data=text.encode()) for at, text in enumerate(texts[:count])]


def _ingest_unmeasured(scope: Tenant, documents: list[SourceDocument]) -> None:
    """Ingest in batches that are too small for a measurement after each."""
    for start in range(0, len(documents), MIN_CHUNKS // 2):
        scope.ingest(documents[start : start + MIN_CHUNKS // 2])


def _status(scope: Tenant) -> list[IndexInfo]:
    return [info for info in scope.indexes.status() if info.kind == "known items"]


def _lexical(scope: Tenant) -> RetrieverStats:
    return scope.search("员工的发票如何保存", 5).retrievers["lexical"]


def test_measurement__moves_the_weights_to_the_retriever_that_finds_more(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(_documents(MIN_CHUNKS - 1))
    assert not _status(scope)
    before = _lexical(scope)
    assert before.known_items is None
    scope.ingest(_documents(2 * MIN_CHUNKS))
    [status] = _status(scope)
    assert (status.state, status.due, status.rows) == ("ready", None, 2 * MIN_CHUNKS)
    result = status.health["unspaced"]
    assert result["lexical"] > result["dense"]
    after = _lexical(scope)
    assert after.known_items is not None
    assert after.known_items.lexical == result["lexical"]
    assert before.weight is not None
    assert after.weight is not None
    assert after.weight > before.weight
    assert "known items found" in scope.search("员工的发票如何保存", 5).explain()


def test_measurement__is_made_by_maintenance_and_due_again_after_growth(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    _ingest_unmeasured(scope, _documents(MIN_CHUNKS))
    assert [info.due for info in _status(scope)] == ["known items were never measured"]
    scope.indexes.build()
    assert [info.due for info in _status(scope)] == [None]
    _ingest_unmeasured(scope, _documents(2 * MIN_CHUNKS))
    assert [info.due for info in _status(scope)] == ["known items were measured with 100 chunks"]


@pytest.mark.parametrize("weighting", ["fixed", "question"])
def test_measurement__is_off_with_other_weightings(settings: Settings, tenant_name: str, weighting: str) -> None:
    with opened(settings, {"rag.chunking.min_size": 1, "rag.retrieval.weighting": weighting}) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(_documents(MIN_CHUNKS))
        assert not _status(scope)
        lexical = _lexical(scope)
        assert lexical.known_items is None
        assert (lexical.weight == 0.5) is (weighting == "fixed")


def test_measurement__is_not_shown_to_who_may_not_read_all(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).ingest(
        [*_documents(MIN_CHUNKS), SourceDocument(source="secret", data="秘密的合同".encode(), acl=("user:ann",))]
    )
    assert _lexical(engine.tenant(tenant_name)).known_items is None
    assert _lexical(engine.tenant(tenant_name, principals=("everyone", "user:ann"))).known_items is not None


def test_ingestion__is_reported_although_its_known_items_cannot_be_measured(
    engine: Engine, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = engine.tenant(tenant_name)
    execute = psycopg.Cursor.execute
    failures: list[BaseException] = [psycopg.errors.QueryCanceled("too slow"), KeyboardInterrupt()]

    def fail(self: psycopg.Cursor, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor:
        if "chunks c" in str(query) and "'everyone' = ANY (c.acl)" in str(query):
            raise failures[0]
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", fail)
    documents = _documents(2 * MIN_CHUNKS)
    assert scope.ingest(documents[:MIN_CHUNKS]).new == MIN_CHUNKS
    del failures[0]
    with pytest.raises(IngestInterrupted) as interruption:
        scope.ingest(documents[MIN_CHUNKS:])
    assert interruption.value.report.new == MIN_CHUNKS
