"""Which questions take part: the same ones each time, about as many as are asked for, others for other readers."""

import uuid
from dataclasses import replace

from kosmos_rag import Settings
from kosmos_rag.core.types import EVERYONE, ExperimentMode, RunningExperiment
from kosmos_rag.engine.query_hooks import RoutedQuery
from kosmos_rag.evaluation.experiments.router import is_sampled
from kosmos_rag.retrieval.query import Query, QueryRequest, parse_query
from kosmos_rag.retrieval.snapshot import Routing
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.tenants import tenant

RUNNING = RunningExperiment(id=uuid.UUID(int=7), name="half", mode=ExperimentMode.SERVE, share=0.5, content="{}")
READER = AuditContext(tenant=tenant("acme"), principals=(EVERYONE,), subject="ada", collection=None)
ADA = parse_query(QueryRequest(text="any"), READER, max_chars=100)
QUESTIONS = [f"How is churn number {number} calculated?" for number in range(400)]


def _chosen(running: RunningExperiment, query: Query) -> list[bool]:
    routing = Routing(preset=None, audit=(), experiment=running)
    return [
        is_sampled(
            RoutedQuery(query=replace(query, text=question), routing=routing, experiment=running, settings=Settings())
        )
        for question in QUESTIONS
    ]


def test_share__of_many_questions_is_met_and_stays_the_same() -> None:
    chosen = _chosen(RUNNING, ADA)
    assert 160 <= sum(chosen) <= 240  # four standard deviations
    assert _chosen(RUNNING, ADA) == chosen
    assert 20 <= sum(_chosen(replace(RUNNING, share=0.1), ADA)) <= 64
    assert all(_chosen(replace(RUNNING, share=1.0), ADA))


def test_larger_share__takes_all_that_a_smaller_one_took() -> None:
    few, more = _chosen(replace(RUNNING, share=0.2), ADA), _chosen(replace(RUNNING, share=0.6), ADA)
    assert all(later for earlier, later in zip(few, more, strict=True) if earlier)


def test_choice__is_of_who_asks_what_in_which_experiment() -> None:
    chosen = _chosen(RUNNING, ADA)
    others = [
        _chosen(RUNNING, replace(ADA, subject="bob")),
        _chosen(RUNNING, replace(ADA, subject=None)),
        _chosen(replace(RUNNING, id=uuid.UUID(int=8)), ADA),
    ]
    for other in others:
        assert 140 <= sum(item == two for item, two in zip(chosen, other, strict=True)) <= 260
    nobody = replace(ADA, subject=None, principals=("b", "a"))
    assert _chosen(RUNNING, nobody) == _chosen(RUNNING, replace(nobody, principals=("a", "b")))
