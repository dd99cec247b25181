"""Compare nDCG@10 of an embedding space with that of the live space, for `Tenant.spaces.cutover`.

Documents are ranked by their best chunk.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Space, SpaceQuality
from kosmos_rag.engine.spaces import MeasureSpaces
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline.questions import Question, read_questions

_DEPTH = 10


def compare_spaces(
    tenant: Tenant, questions: str | Path, on_progress: Callable[[int, int, str], None] | None = None
) -> MeasureSpaces:
    """Return a comparison of two spaces of a tenant, by questions with known answers.

    Raises RequestError where the question file has no answerable question. The comparison raises ModelError,
    DatabaseError.

    Args:
        questions: A question file with the sources of the answers.
        on_progress: Called before the comparison.
    """
    answerable = read_answerable(Path(questions))

    def measure(target: Space, live: Space) -> SpaceQuality:
        if on_progress is not None:
            on_progress(0, 0, f"searching both spaces with {len(answerable)} questions")
        texts = [question.text for question in answerable]
        target_ndcg, live_ndcg = (
            ndcg_at_10(tenant.spaces.rank_sources(space, texts), answerable) for space in (target, live)
        )
        return SpaceQuality(
            model=target.model,
            live_model=live.model,
            recall_at_10=None,
            recall_target=0.0,
            questions=len(answerable),
            ndcg_at_10=target_ndcg,
            live_ndcg_at_10=live_ndcg,
            forced=None,
        )

    return measure


def read_answerable(path: Path) -> list[Question]:
    """Read the answerable questions of a question file.

    Raises RequestError if there are none.
    """
    questions = [question for question in read_questions(path).questions if question.answerable]
    if not questions:
        raise RequestError(f"no question of the question file {str(path)!r} names the source of its answer")
    return questions


def ndcg_at_10(rankings: Sequence[Sequence[str]], questions: Sequence[Question]) -> float:
    """Return the mean nDCG@10 of documents.

    With one relevant document for each question, nDCG is 1 / log2(1 + rank).

    Args:
        rankings: Sources by question, the nearest first.
        questions: Answerable questions.

    Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002).
    """
    return statistics.fmean(_gain(sources, question) for sources, question in zip(rankings, questions, strict=True))


def _gain(sources: Sequence[str], question: Question) -> float:
    for rank, source in enumerate(sources[:_DEPTH], start=1):
        if any(location.grade > 0 and location.matches_source(source) for location in question.locations):
            return 1 / math.log2(1 + rank)
    return 0.0
