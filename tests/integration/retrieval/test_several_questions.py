"""Several questions in one search."""

from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed

LEAVE = "Employees receive 20 days of paid annual leave."
TRAVEL = "Travel expenses are paid back within two weeks."
DOCUMENTS = [
    SourceDocument(source="leave.md", data=LEAVE.encode()),
    SourceDocument(source="travel.md", data=TRAVEL.encode()),
    SourceDocument(source="board.md", data=f"{LEAVE} The board has 90 days.".encode(), acl=("department:hr",)),
]


def test_search__of_several_questions_fuses_their_hits(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(DOCUMENTS)
    leave, travel = "paid annual leave", "travel expenses paid back"
    result = scope.search([leave, travel, leave])
    alone = [scope.search(question) for question in (leave, travel)]
    assert {hit.source for hit in result.hits} == {"leave.md", "travel.md"}
    assert len({hit.chunk_id for hit in result.hits}) == len(result.hits)
    assert [activity.question for activity in result.activity] == [leave, travel], "the same question is asked once"
    assert [activity.returned for activity in result.activity] == [len(item.hits) for item in alone]
    by_rank = {hit.rank: hit for hit in result.hits}
    for activity, item in zip(result.activity, alone, strict=True):
        assert {by_rank[rank].chunk_id for rank in activity.ranks} == {hit.chunk_id for hit in item.hits}
    assert len(scope.search([leave, travel], k=1).hits) == 1
    hr = engine.tenant(tenant_name, principals=("everyone", "department:hr"))
    assert "board.md" in {hit.source for hit in hr.search([leave, travel]).hits}


@pytest.mark.parametrize("questions", [[], ["a question"] * 3 + [" "], [f"question {n}" for n in range(11)]])
def test_search__refuses_none_too_many_and_blank_questions(
    engine: Engine, tenant_name: str, questions: list[str]
) -> None:
    with pytest.raises(RequestError, match=r"questions are asked; ask 1 to 10|the question is empty"):
        engine.tenant(tenant_name).search(questions)
    with pytest.raises(RequestError, match="of one search"):
        engine.tenant(tenant_name).search(["one", "two"], cursor="*")


def test_audit_log__has_one_event_with_all_questions_and_the_returned_passages(
    settings: Settings, tenant_name: str
) -> None:
    with Engine(changed(settings, {"rag.audit.enabled": True}), embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name, subject="ada")
        scope.ingest(DOCUMENTS)
        result = scope.search(["paid annual leave", "travel expenses"], k=1)
        (event,) = scope.audit.find()
        assert event.id == result.id
        assert event.question == "paid annual leave\ntravel expenses"
        assert [passage.chunk_ids for passage in event.passages] == [(result.hits[0].chunk_id,)]
        scope.feedback("up", retrieval_id=result.id, chunk_id=result.hits[0].chunk_id)


def test_search__names_what_is_no_question(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    values: list[Any] = [None, 5, [None], [["nested"]]]
    for value in values:
        with pytest.raises(RequestError, match=r"the question is .*; give a text"):
            scope.search(value)
        with pytest.raises(RequestError, match=r"the question is .*; give a text"):
            scope.answer(value)


def test_ingest__names_what_is_no_document(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    values: list[Any] = [None, 5, [None], [5]]
    for value in values:
        with pytest.raises(RequestError, match="is nothing to ingest; give files, folders or SourceDocuments"):
            scope.ingest(value)
