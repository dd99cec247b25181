"""What a service of a later version tells is read as far as it is known."""

from collections.abc import Callable
from typing import Any

import pytest

from kosmos_rag.apps.client import decoding
from kosmos_rag.apps.http.examples import EXAMPLES
from kosmos_rag.core.types import Arm, ExperimentAssignment, SearchResult

READERS: dict[str, Callable[[Any], Any]] = {
    "SearchView": decoding.retrieval,
    "ContextView": decoding.context,
    "AnswerView": decoding.answer,
    "DocumentView": decoding.document,
    "JobView": decoding.job,
    "CollectionView": decoding.collection,
    "FeedbackView": decoding.feedback,
    "GroundingView": decoding.grounding,
    "StatsView": decoding.stats,
}


def _with_more(told: Any) -> Any:
    """Add a member to every object but those whose members are data."""
    if isinstance(told, list):
        return [_with_more(one) for one in told]
    if isinstance(told, dict):
        data = ("metadata", "departments", "entities", "parts", "tables", "schema_refs", "docs", "omitted")
        return {name: one if name in data else _with_more(one) for name, one in told.items()} | {"later": 1}
    return told


@pytest.mark.parametrize("view", READERS)
def test_answer__may_tell_more_than_is_known(view: str) -> None:
    read = READERS[view]
    assert repr(read(_with_more(EXAMPLES[view]))) == repr(read(EXAMPLES[view]))


RETRIEVALS: dict[str, Callable[[Any], SearchResult]] = {
    "SearchView": decoding.retrieval,
    "ContextView": lambda told: decoding.context(told).retrieval,
    "AnswerView": lambda told: decoding.answer(told).context.retrieval,
}


@pytest.mark.parametrize("view", RETRIEVALS)
def test_experiment__is_read_where_the_service_tells_of_it(view: str) -> None:
    read, told = RETRIEVALS[view], EXAMPLES[view]
    served = read({**told, "experiment": {"experiment": "deeper", "arm": "treatment"}})
    assert served.experiment == ExperimentAssignment(experiment="deeper", arm=Arm.TREATMENT)
    of_before = {name: value for name, value in told.items() if name != "experiment"}
    assert read(told).experiment is read(of_before).experiment is None
