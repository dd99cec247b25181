"""The context: what is shown, numbered, cited, joined and left out."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kosmos_rag.config import ContextSettings
from kosmos_rag.context.assemble import assemble
from kosmos_rag.context.duplicate import resemblance, shingles
from kosmos_rag.errors import RequestError
from kosmos_rag.records import Context, Expansion, Passage, Retrieval
from kosmos_rag.testing import HashingEmbedder

TEXT = (
    "Churn is the share of accounts that leave.\n\nIt is measured monthly.\n\n"
    "Revenue counts what was invoiced and paid."
)
TOKENIZER = HashingEmbedder().tokenizer


def _hit(start: int, end: int, *, rank: int = 1, ordinal: int = 0, document: int = 1, **changes: object) -> Passage:
    hit = Passage(
        rank=rank, score=1 / rank, chunk_id=uuid.UUID(int=100 * document + ordinal),
        document_id=uuid.UUID(int=document), version_id=uuid.UUID(int=10 + document), version=3,
        source=f"/docs/{document}.md", title=f"Title {document}", media_type="text/markdown", metadata={},
        ordinal=ordinal, section=("Metrics",), start=start, end=end,
        line_start=TEXT.count("\n", 0, start) + 1, line_end=TEXT.count("\n", 0, end) + 1,
        page_start=None, page_end=None, text=TEXT[start:end], splitter="paragraph", collection="default",
        dense_rank=None, dense_score=None, lexical_rank=None, lexical_score=None, fused_rank=rank,
        fused_score=1 / rank, shares={}, rerank_score=None,
    )  # fmt: skip
    return replace(hit, **changes)  # type: ignore[arg-type]


def _read(spans: Sequence[tuple[uuid.UUID, int, int]]) -> list[str | None]:
    return [TEXT[start:end] for _, start, end in spans]


def _context(hits: list[Passage], max_tokens: int | None = None, read: object = _read, **settings: object) -> Context:
    retrieval = Retrieval(
        question="what?", expansion=Expansion(), requested=9, hits=tuple(hits), stages=(), timings_ms={}, legs={},
        notes=(), skipped=(), cached=False, shortfall=None,
    )  # fmt: skip
    return assemble(
        retrieval,
        tokenizer=TOKENIZER,
        settings=ContextSettings(**settings),  # type: ignore[arg-type]
        read_spans=read,  # type: ignore[arg-type]
        max_tokens=max_tokens,
    )


FIRST, SECOND, THIRD = (0, 42), (44, 67), (69, 111)
assert TEXT[44:67] == "It is measured monthly."


def test_context__numbers_and_cites_each_passage() -> None:
    context = _context([_hit(*FIRST), _hit(*THIRD, rank=2, document=2)])
    assert context.text == (
        "[1] Title 1 | Metrics | L1 | /docs/1.md\nChurn is the share of accounts that leave.\n\n"
        "[2] Title 2 | Metrics | L5 | /docs/2.md\nRevenue counts what was invoiced and paid."
    )
    assert [citation.marker for citation in context.citations] == ["[1]", "[2]"]
    first = context.citations[0]
    assert (first.version, first.section, first.line_start, first.page_start) == (3, ("Metrics",), 1, None)
    assert first.quote_sha256 == hashlib.sha256(TEXT[first.start : first.end].encode()).hexdigest()
    assert context.tokens == sum(TOKENIZER.count(context.text.split("\n\n")))


def test_context__without_metadata_shows_markers_only() -> None:
    context = _context([_hit(*FIRST)], include_metadata=False, citation_format="({index})")
    assert context.text == "(1) Churn is the share of accounts that leave."


def test_context__cites_pages_where_there_are_any() -> None:
    context = _context([_hit(*FIRST, page_start=2, page_end=3)])
    assert context.text.startswith("[1] Title 1 | Metrics | p. 2 to 3 | ")


def test_neighbours__are_joined_as_the_document_has_them_at_the_better_rank() -> None:
    context = _context([_hit(*THIRD, rank=1, document=2), _hit(*SECOND, rank=2, ordinal=1), _hit(*FIRST, rank=3)])
    assert [passage.text for passage in context.passages] == [TEXT[slice(*THIRD)], TEXT[:67]]
    joined = context.citations[1]
    assert (joined.start, joined.end, joined.line_start, joined.line_end) == (0, 67, 1, 3)
    assert joined.quote_sha256 == hashlib.sha256(TEXT[:67].encode()).hexdigest()
    assert len(context.passages[1].chunk_ids) == 2


def test_neighbours__of_another_section_or_document_stay_apart() -> None:
    apart = [_hit(*FIRST), _hit(*SECOND, rank=2, ordinal=1, section=("Other",))]
    assert len(_context(apart).passages) == 2
    apart = [_hit(*FIRST), _hit(*SECOND, rank=2, ordinal=1, document=2)]
    assert len(_context(apart).passages) == 2


def test_neighbours__of_a_version_that_is_gone_stay_apart() -> None:
    hits = [_hit(*FIRST), _hit(*SECOND, rank=2, ordinal=1)]
    context = _context(hits, read=lambda spans: [None for _ in spans])
    assert [passage.text for passage in context.passages] == [TEXT[slice(*FIRST)], TEXT[slice(*SECOND)]]


def test_near_duplicates__are_left_out_and_counted() -> None:
    again = _hit(*FIRST, rank=2, document=2, text=TEXT[slice(*FIRST)].upper())
    context = _context([_hit(*FIRST), again, _hit(*THIRD, rank=3, document=3)])
    assert [citation.source for citation in context.citations] == ["/docs/1.md", "/docs/3.md"]
    assert context.omitted == {"near_duplicate": 1}


def test_budget__is_kept_and_what_does_not_fit_is_counted() -> None:
    hits = [_hit(*FIRST), _hit(*THIRD, rank=2, document=2)]
    whole = _context(hits)
    cut = _context(hits, max_tokens=whole.tokens - 1)
    assert len(cut.passages) == 1
    assert cut.omitted == {"budget": 1}
    assert cut.tokens <= cut.max_tokens
    nothing = _context(hits, max_tokens=1)
    assert (nothing.text, nothing.omitted) == ("", {"budget": 2})


def test_budget__tries_neighbours_alone_where_they_do_not_fit_together() -> None:
    hits = [_hit(*FIRST, rank=2), _hit(*SECOND, ordinal=1)]
    alone = _context([hits[1]])
    context = _context(hits, max_tokens=alone.tokens)
    assert [passage.text for passage in context.passages] == [TEXT[slice(*SECOND)]]
    assert context.omitted == {"budget": 1}


def test_budget__below_one_token_is_refused() -> None:
    with pytest.raises(RequestError, match="max_tokens is 0"):
        _context([], max_tokens=0)


def test_context__of_nothing_is_empty() -> None:
    assert _context([]).text == ""


def test_resemblance__is_the_share_of_common_runs() -> None:
    one, other = shingles("a b c d"), shingles("b c d e")
    assert resemblance(one, other) == pytest.approx(1 / 3)
    assert resemblance(shingles("A, b"), shingles("a b")) == 1
    assert resemblance(shingles(""), shingles("")) == 1
