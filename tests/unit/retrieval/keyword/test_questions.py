"""The figures of docs/keyword.md: which ranking finds the right paragraph, and how often."""

from pathlib import Path

import pytest

from benchmarks.keyword import find_rank, read_questions
from kosmos_rag.retrieval.keyword.context import KeywordContext, Ranking


@pytest.mark.parametrize(("ranking", "first", "among_five"), [("bm25", 17, 20), ("classic", 14, 19)])
def test_rankings__find_the_right_paragraph(schema_docs: Path, ranking: Ranking, first: int, among_five: int) -> None:
    context = KeywordContext.from_file(schema_docs, ranking=ranking)
    ranks = [find_rank(context, question) for question in read_questions()]
    assert len(ranks) == 20
    assert sum(rank == 1 for rank in ranks) == first
    assert sum(rank is not None and rank <= 5 for rank in ranks) == among_five
