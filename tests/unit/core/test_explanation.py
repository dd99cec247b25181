"""A retrieval written out for reading."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.types import Expansion, Passage, RetrieverStats
from tests.results import build_passage, build_result


def _hit(rank: int, **fields: object) -> Passage:
    values = {"source": f"/kb/{rank}.md", "title": "Churn", "section": ("Metrics", "Churn"), "text": "the text"}
    return build_passage(rank, 0.5, **(values | fields))


FOUND = build_result(
    _hit(
        1, dense_rank=4, dense_score=0.71239, lexical_rank=1, lexical_score=7.125, fused_rank=2,
        fused_score=0.0576, score_contributions={"dense": 0.0263, "lexical": 0.0313}, rerank_score=0.98765,
    ),
    _hit(
        2, dense_rank=1, dense_score=-0.05, fused_rank=11, fused_score=0.03125,
        score_contributions={"dense": 0.03125}, rerank_score=0.4, line_end=3,
    ),
    question="churn rate",
    stages=("embed", "dense", "lexical", "rerank"),
    timings_ms={"embed": 12.345, "dense": 0.04, "rerank": 99.96, "total": 123.4},
    retrievers={
        "dense": RetrieverStats(
            requested=100, returned=100, plan="ivfflat", read={"lists": 3, "rows_about": 1234}, reason=None
        ),
        "lexical": RetrieverStats(requested=100, returned=1, plan="segments", read={}, reason="chunks found: 1"),
    },
    warnings=("6 of 8 reranked below the threshold 0.3",),
)  # fmt: skip


def test_explain__gives_the_weights() -> None:
    weighted = {
        "dense": replace(FOUND.retrievers["dense"], weight=0.1),
        "lexical": replace(FOUND.retrievers["lexical"], weight=0.9, coverage=1.512, terms=2),
    }
    lines = replace(FOUND, retrievers=weighted).explain().splitlines()
    assert lines[1].endswith("rows about 1,234); weight 0.10")
    assert lines[2].endswith("chunks found: 1; weight 0.90 for a coverage of 1.51 of 2 terms")
    by_words = {**weighted, "lexical": replace(weighted["lexical"], by_words=True)}
    lines = replace(FOUND, retrievers=by_words).explain().splitlines()
    assert lines[2].endswith("for a coverage of 1.51 of 2 terms: words decide")


def test_explain__writes_out_every_rank_score_share_and_plan() -> None:
    assert FOUND.explain() == (
        "question  churn rate\n"
        "dense     100 of 100 candidates by ivfflat (lists 3, rows about 1,234)\n"
        "lexical   1 of 100 candidates by segments; chunks found: 1\n"
        "\n"
        "rank  dense      lexical  fused       shares                         reranked  passage\n"
        "1     #4 0.712   #1 7.12  #2 0.0576   0.0263 dense + 0.0313 lexical  0.988     /kb/1.md | Churn | L3 to L7\n"
        "2     #1 -0.050  -        #11 0.0312  0.0312 dense                   0.400     /kb/2.md | Churn | L3\n"
        "\n"
        "note      6 of 8 reranked below the threshold 0.3\n"
        "ms        embed 12.3, dense 0.0, rerank 100.0, total 123.4\n"
    )


def test_explain__shows_what_was_looked_for_beside_the_question() -> None:
    expansion = Expansion(
        synonyms=("attrition", "customer loss"), wordings=("who leaves", "how many cancel"), passage="Accounts leave."
    )
    lines = replace(FOUND, expansion=expansion).explain().splitlines()
    assert lines[:5] == [
        "question  churn rate",
        "synonyms  attrition, customer loss",
        "wording 2 who leaves",
        "wording 3 how many cancel",
        "like      Accounts leave.",
    ]


def test_explain__names_the_lists_of_other_wordings() -> None:
    account = RetrieverStats(requested=10, returned=10, plan="exact scan", read={"rows": 10}, reason=None)
    result = replace(FOUND, retrievers={"dense 2": account, "lexical 2": account, "prf": account})
    assert result.explain().splitlines()[1:4] == [
        "dense 2   10 of 10 candidates by exact scan (rows 10)",
        "lexical 2 10 of 10 candidates by exact scan (rows 10)",
        "prf       10 of 10 candidates by exact scan (rows 10)",
    ]


def test_explain__without_hits_says_why() -> None:
    nothing = replace(FOUND, hits=(), retrievers={}, warnings=(), incomplete_reason="the tenant has no documents")
    assert nothing.explain() == (
        "question  churn rate\n"
        "\n"
        "rank  dense  lexical  fused  shares  reranked  passage\n"
        "\n"
        "short     0 of 2 passages: the tenant has no documents\n"
        "ms        embed 12.3, dense 0.0, rerank 100.0, total 123.4\n"
    )


def test_explain__of_a_kept_result_says_so() -> None:
    result = replace(FOUND, cached=True, timings_ms={"cache": 0.5, "total": 1.0})
    assert result.explain().splitlines()[-1] == "ms        from the cache; cache 0.5, total 1.0"
    assert "kept" not in FOUND.explain()


def test_explain__of_what_was_not_reranked_has_no_score_of_it() -> None:
    text = replace(FOUND, hits=(_hit(1, page_start=2, page_end=3),)).explain()
    assert "1     -      -        #1 0.5000          -         /kb/1.md | Churn | p. 2 to 3\n" in text


@pytest.mark.parametrize("sign", ["\x1b", "\x07", "\n", "\r", "\u202e", "\u2028", "\x00", "\x9b", "\ud800"])
def test_explain__prints_no_sign_that_a_terminal_obeys(sign: str) -> None:
    hostile = f"a{sign}[2Jb"
    retriever = replace(FOUND.retrievers["dense"], plan=hostile, reason=hostile)
    result = replace(
        FOUND,
        question=hostile,
        expansion=Expansion(synonyms=(hostile,), wordings=(hostile,), passage=hostile),
        hits=(_hit(1, source=hostile, section=(hostile,)),),
        retrievers={"dense": retriever},
        warnings=(hostile,),
        incomplete_reason=hostile,
    )
    text = result.explain()
    assert text.count("a�[2Jb") == 10
    assert sign not in text.replace("\n", "")
    assert len(text.splitlines()) == 12


@given(words=st.text(), number=st.floats(allow_nan=False))
def test_explain__of_anything_is_printable_lines(words: str, number: float) -> None:
    hit = _hit(1, source=words, section=(words,), dense_rank=1, dense_score=number, score_contributions={words: number})
    text = replace(FOUND, question=words, hits=(hit,), warnings=(words,)).explain()
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == 9
