"""Assemble the context of a prompt within the token budget.

Passages are selected, numbered, cited and rendered.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from kosmos_rag.answering.history import Conversation, passage_span
from kosmos_rag.answering.select import SelectedPassage, SpanReader, drop_near_duplicates, select, select_single
from kosmos_rag.core.config import ContextSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.freshness import content_date, outdated_reason
from kosmos_rag.core.protocols import Tokenizer
from kosmos_rag.core.source_links import build_link
from kosmos_rag.core.types import Citation, Context, ContextPassage, SearchResult, hash_text

_NO_CONVERSATION = Conversation()


def assemble(
    retrieval: SearchResult,
    *,
    tokenizer: Tokenizer,
    settings: ContextSettings,
    read_spans: SpanReader,
    max_tokens: int | None = None,
    conversation: Conversation = _NO_CONVERSATION,
) -> Context:
    """Build the context of a search result, best passages first.

    Where joined neighbours or a section exceed the budget, their members are tried one by one, best first. Hits that
    do not fit are counted in `omitted`. Tokens are counted on the rendered text, headers included.

    Args:
        settings: Format of citations, budget, and the threshold of near-duplicates.
        read_spans: Reads texts of documents.
        max_tokens: The budget in tokens; None is `settings.max_tokens`.
        conversation: Passages that it had keep their number; those that the prompt repeats follow, beyond the budget.

    Raises RequestError where the budget is below 1.
    """
    budget = settings.max_tokens if max_tokens is None else max_tokens
    if budget < 1:
        raise RequestError(f"max_tokens is {budget}; give the context a budget of at least 1 token")
    unique = drop_near_duplicates(retrieval.hits, settings.near_duplicate_threshold)
    omitted = Counter({"near_duplicate": len(retrieval.hits) - len(unique)})
    passages: list[ContextPassage] = []
    last_number, total_tokens = conversation.last_number, 0
    for selection in select(unique, read_spans):
        for attempt in _candidates(selection):
            span = attempt.best.version_id, attempt.start, attempt.start + len(attempt.excerpt.text)
            number = conversation.numbers.get(span, last_number + 1)
            passage = number_passage(attempt, number, tokenizer=tokenizer, settings=settings)
            if total_tokens + passage.tokens <= budget:
                passages.append(passage)
                last_number = max(last_number, number)
                total_tokens += passage.tokens
                if attempt is selection:
                    break
            elif attempt.is_one_chunk:
                omitted["budget"] += 1
    spans = {passage_span(passage) for passage in passages}
    passages += [passage for passage in conversation.passages if passage_span(passage) not in spans]
    return Context(
        question=retrieval.question,
        text=render_passages(passages, include_metadata=settings.include_metadata),
        passages=tuple(passages),
        tokens=sum(passage.tokens for passage in passages),
        max_tokens=budget,
        omitted={reason: count for reason, count in omitted.items() if count},
        retrieval=retrieval,
    )


def number_passage(
    selection: SelectedPassage, number: int, *, tokenizer: Tokenizer, settings: ContextSettings
) -> ContextPassage:
    """Return the passage of a selection, with its citation and its tokens.

    Args:
        number: The number of the passage in its context or conversation.
        tokenizer: Counts the tokens of the passage as it is rendered.
        settings: Format of citations.
    """
    citation = _citation(selection, number, settings.citation_format)
    passage = _passage(selection, citation)
    text = _render(passage, include_metadata=settings.include_metadata)
    return replace(passage, tokens=tokenizer.count([text])[0])


def render_passages(passages: Iterable[ContextPassage], *, include_metadata: bool) -> str:
    """Return passages as a prompt has them, each under its marker."""
    return "\n\n".join(_render(passage, include_metadata=include_metadata) for passage in passages)


def _candidates(selection: SelectedPassage) -> Iterator[SelectedPassage]:
    """Yield the selection, then each of its members, best first."""
    yield selection
    if not selection.is_one_chunk:
        for member in sorted(selection.members, key=lambda passage: passage.rank):
            yield select_single(member)


def _citation(selection: SelectedPassage, index: int, template: str) -> Citation:
    first, last, best = selection.cited[0], selection.cited[-1], selection.best
    return Citation(
        index=index,
        marker=template.format(index=index),
        document_id=best.document_id,
        version_id=best.version_id,
        version=best.version,
        title=best.title,
        source=best.source,
        section=best.section,
        start=first.start,
        end=last.end,
        line_start=first.line_start,
        line_end=last.line_end,
        page_start=first.page_start,
        page_end=last.page_end,
        quote_sha256=hash_text(selection.quote),
        date=content_date(best.metadata),
        outdated=outdated_reason(best.metadata, datetime.now(UTC).date()),
        link=build_link(best.metadata, first.line_start, last.line_end),
        table_context=first.table_context,
        place_spans=tuple(sorted({span for member in selection.cited for span in member.place_spans})),
    )


def _passage(selection: SelectedPassage, citation: Citation) -> ContextPassage:
    return ContextPassage(
        citation=citation,
        text=selection.excerpt.text,
        start=selection.start,
        page_start=selection.excerpt.page_start,
        page_end=selection.excerpt.page_end,
        page_breaks=selection.excerpt.page_breaks,
        score=selection.best.score,
        tokens=0,
        chunk_ids=tuple(member.chunk_id for member in selection.members),
    )


def _render(passage: ContextPassage, *, include_metadata: bool) -> str:
    citation = passage.citation
    # A section shows the beginning of the table itself.
    table = citation.table_context if passage.start == citation.start else ()
    text = "\n".join((*table, passage.text))
    if not include_metadata:
        return f"{citation.marker} {text}"
    freshness = "".join(f" | {part}" for part in (citation.date, citation.outdated) if part)
    return f"{citation.marker} {citation.title} | {citation.location} | {citation.source}{freshness}\n{text}"
