"""The context: what is shown, numbered, cited, joined and left out."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kosmos_rag.answering.context import assemble
from kosmos_rag.answering.select import resemblance, shingles
from kosmos_rag.core.config import ContextSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Context, Excerpt, Passage
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.results import build_passage, build_result

TEXT = (
    "Churn is the share of accounts that leave.\n\nIt is measured monthly.\n\n"
    "Revenue counts what was invoiced and paid."
)
TOKENIZER = HashingEmbedder().tokenizer


def _hit(start: int, end: int, *, rank: int = 1, chunk_index: int = 0, document: int = 1, **fields: Any) -> Passage:
    values = {
        "chunk_id": uuid.UUID(int=100 * document + chunk_index), "document_id": uuid.UUID(int=document),
        "version_id": uuid.UUID(int=10 + document), "version": 3, "source": f"/docs/{document}.md",
        "title": f"Title {document}", "chunk_index": chunk_index, "section": ("Metrics",), "start": start, "end": end,
        "line_start": TEXT.count("\n", 0, start) + 1, "line_end": TEXT.count("\n", 0, end) + 1,
        "text": TEXT[start:end],
    }  # fmt: skip
    return build_passage(rank, 1 / rank, **(values | fields))


def _read(spans: Sequence[tuple[uuid.UUID, int, int]]) -> list[Excerpt | None]:
    return [Excerpt(text=TEXT[start:end], page_start=4, page_end=5) for _, start, end in spans]


def _context(hits: list[Passage], max_tokens: int | None = None, read: object = _read, **settings: object) -> Context:
    return assemble(
        build_result(*hits, question="what?"),
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
    context = _context([_hit(*THIRD, rank=1, document=2), _hit(*SECOND, rank=2, chunk_index=1), _hit(*FIRST, rank=3)])
    assert [passage.text for passage in context.passages] == [TEXT[slice(*THIRD)], TEXT[:67]]
    joined = context.citations[1]
    assert (joined.start, joined.end, joined.line_start, joined.line_end) == (0, 67, 1, 3)
    assert joined.quote_sha256 == hashlib.sha256(TEXT[:67].encode()).hexdigest()
    assert len(context.passages[1].chunk_ids) == 2


def test_neighbours__of_another_section_or_document_stay_apart() -> None:
    apart = [_hit(*FIRST), _hit(*SECOND, rank=2, chunk_index=1, section=("Other",))]
    assert len(_context(apart).passages) == 2
    apart = [_hit(*FIRST), _hit(*SECOND, rank=2, chunk_index=1, document=2)]
    assert len(_context(apart).passages) == 2


def test_neighbours__of_a_version_that_is_gone_stay_apart() -> None:
    hits = [_hit(*FIRST), _hit(*SECOND, rank=2, chunk_index=1, line_start=2)]
    context = _context(hits, read=lambda spans: [None for _ in spans])
    assert [passage.text for passage in context.passages] == [TEXT[slice(*FIRST)], TEXT[slice(*SECOND)]]


@pytest.mark.parametrize(
    ("first", "second", "changes", "is_read"),
    [
        (FIRST, SECOND, {}, False),  # two characters and two lines
        (FIRST, SECOND, {"line_start": 2}, True),  # a space and a line break, say
        ((0, 20), (20, 42), {}, False),  # they touch
        ((0, 30), (20, 42), {}, False),  # they overlap
        ((0, 20), (21, 42), {}, True),  # one character of a line
        ((0, 43), (44, 67), {}, True),  # the first ends with a line break
        (FIRST, SECOND, {"page_start": 3, "page_end": 3}, True),  # a page begins between
        (FIRST, SECOND, {"text": "Shorter."}, True),
    ],
)
def test_neighbours__are_read_where_their_texts_do_not_determine_it(
    first: tuple[int, int], second: tuple[int, int], changes: dict[str, object], is_read: bool
) -> None:
    requests: list[Sequence[tuple[uuid.UUID, int, int]]] = []

    def read(spans: Sequence[tuple[uuid.UUID, int, int]]) -> list[Excerpt | None]:
        requests.append(spans)
        return _read(spans)

    neighbour = replace(_hit(*second, rank=2, chunk_index=1), **changes)  # type: ignore[arg-type]
    context = _context([_hit(*first), neighbour], read=read)
    assert [passage.text for passage in context.passages] == [TEXT[first[0] : second[1]]]
    assert len(requests) == is_read


def test_section__is_shown_once_and_the_best_piece_is_cited() -> None:
    around = (0, len(TEXT))
    hits = [_hit(*SECOND, chunk_index=1, parent_span=around), _hit(*THIRD, rank=2, document=2, text="Other words.")]
    hits += [_hit(*FIRST, rank=3, parent_span=around), _hit(*THIRD, rank=4, chunk_index=2, parent_span=around)]
    context = _context(hits)
    section, other = context.passages
    assert (section.text, section.start, section.end) == (TEXT, 0, len(TEXT))
    assert (section.page_start, section.page_end) == (4, 5)
    assert section.chunk_ids == tuple(uuid.UUID(int=100 + ordinal) for ordinal in range(3))
    cited = section.citation
    assert (cited.start, cited.end, cited.line_start, cited.line_end, cited.page_start) == (*SECOND, 3, 3, None)
    assert section.quote == TEXT[slice(*SECOND)]
    assert cited.quote_sha256 == hashlib.sha256(section.quote.encode()).hexdigest()
    assert context.text.startswith(f"[1] Title 1 | Metrics | L3 | /docs/1.md\n{TEXT}\n\n[2]")
    assert (other.quote, other.start) == (other.text, other.citation.start)


def test_section__of_another_version_or_document_is_shown_itself() -> None:
    hits = [
        _hit(*SECOND, parent_span=(0, 67)),
        _hit(*SECOND, rank=2, document=2, parent_span=(0, 67), text="Other words."),
    ]
    assert [passage.text for passage in _context(hits).passages] == [TEXT[:67]] * 2


def test_sections__that_overlap_show_nothing_twice() -> None:
    hits = [
        _hit(*SECOND, chunk_index=1, parent_span=(0, 67)),
        _hit(*THIRD, rank=2, chunk_index=2, parent_span=(44, 111)),
    ]
    assert [passage.text for passage in _context(hits).passages] == [TEXT[:67], TEXT[69:]]
    assert [passage.start for passage in _context(hits).passages] == [0, 69]
    hits = [_hit(*THIRD, chunk_index=2, parent_span=(44, 111)), _hit(*FIRST, rank=2, parent_span=(0, 67))]
    assert [passage.text for passage in _context(hits).passages] == [TEXT[44:], TEXT[slice(*FIRST)]]


def test_section__is_not_joined_with_neighbours() -> None:
    hits = [_hit(*FIRST, parent_span=FIRST), _hit(*SECOND, rank=2, chunk_index=1, parent_span=SECOND)]
    context = _context([*hits, _hit(*THIRD, rank=3, chunk_index=2)])
    assert [passage.text for passage in context.passages] == [TEXT[slice(*span)] for span in (FIRST, SECOND, THIRD)]


def test_section__of_a_version_that_is_gone_leaves_the_pieces() -> None:
    hits = [_hit(*FIRST, parent_span=(0, 67)), _hit(*SECOND, rank=2, chunk_index=1, parent_span=(0, 67))]
    context = _context(hits, read=lambda spans: [None for _ in spans])
    assert [passage.text for passage in context.passages] == [TEXT[slice(*FIRST)], TEXT[slice(*SECOND)]]


def test_sections_and_neighbours__are_read_at_once() -> None:
    reads: list[Sequence[tuple[uuid.UUID, int, int]]] = []

    def read(spans: Sequence[tuple[uuid.UUID, int, int]]) -> list[Excerpt | None]:
        reads.append(spans)
        return _read(spans)

    hits = [_hit(*FIRST, parent_span=(0, 67)), _hit(*FIRST, rank=2, document=2, text="One thing.")]
    hits += [_hit(*SECOND, rank=3, chunk_index=1, document=2, text="Another thing.")]
    assert [passage.text for passage in _context(hits, read=read).passages] == [TEXT[:67], TEXT[:67]]
    assert [len(spans) for spans in reads] == [2]


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
    hits = [_hit(*FIRST, rank=2), _hit(*SECOND, chunk_index=1)]
    alone = _context([hits[1]])
    context = _context(hits, max_tokens=alone.tokens)
    assert [passage.text for passage in context.passages] == [TEXT[slice(*SECOND)]]
    assert context.omitted == {"budget": 1}


def test_budget__tries_the_piece_alone_where_its_section_does_not_fit() -> None:
    hit = _hit(*SECOND, chunk_index=1)
    alone = _context([hit])
    context = _context([replace(hit, parent_span=(0, len(TEXT)))], max_tokens=alone.tokens)
    assert context.text == alone.text
    assert context.passages == alone.passages
    assert context.omitted == {}
    assert _context([replace(hit, parent_span=(0, len(TEXT)))], max_tokens=1).omitted == {"budget": 1}


def test_budget__below_one_token_is_refused() -> None:
    with pytest.raises(RequestError, match="max_tokens is 0"):
        _context([], max_tokens=0)


def test_context__of_nothing_is_empty() -> None:
    assert _context([]).text == ""


def test_resemblance__is_the_share_of_common_runs() -> None:
    item, other = shingles("a b c d"), shingles("b c d e")
    assert resemblance(item, other) == pytest.approx(1 / 3)
    assert resemblance(shingles("A, b"), shingles("a b")) == 1
    assert resemblance(shingles(""), shingles("")) == 1
