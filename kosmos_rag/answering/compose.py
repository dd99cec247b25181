"""Select the units of an extractive answer and render it.

Every word is quoted from the evidence.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from kosmos_rag.answering.evidence import Evidence, table_columns
from kosmos_rag.core.text.units import Unit, cells
from kosmos_rag.core.types import AnswerSentence, Citation, ContextPassage, hash_text

# Units that score less than this share of the best one are not relevant enough.
MIN_RELATIVE_SCORE = 0.6
# Share of the score that a unit of a document that is out of date keeps: a current one of equal score excludes it.
_OUTDATED_SHARE = 0.5


def select(evidence: Sequence[Evidence], limit: int, *, prefer_current: bool = True) -> list[Evidence]:
    """Select up to `limit` best units, grouped by passage.

    The passage of the best unit comes first; units of a passage are in document order.

    Args:
        evidence: The scored units.
        limit: Maximum number of units.
        prefer_current: Halve the scores of units of documents that are out of date.
    """

    def score_today(item: Evidence) -> float:
        is_outdated = prefer_current and item.passage.citation.outdated is not None
        return item.score * (_OUTDATED_SHARE if is_outdated else 1.0)

    lowest = MIN_RELATIVE_SCORE * max((item.score for item in evidence), default=0.0)
    ranking = sorted((item for item in evidence if item.score >= lowest), key=lambda item: -score_today(item))
    selected: list[Evidence] = []
    seen_texts: set[str] = set()
    for item in ranking:
        words = " ".join(item.unit.text.split())
        if len(selected) == limit or score_today(item) < MIN_RELATIVE_SCORE * score_today(ranking[0]):
            break
        if words not in seen_texts:  # chunks overlap, and documents repeat each other
            seen_texts.add(words)
            selected.append(item)
    order = list(dict.fromkeys(item.passage.citation.index for item in selected))
    return sorted(selected, key=lambda item: (order.index(item.passage.citation.index), item.unit.start))


def sentence(evidence: Evidence) -> AnswerSentence:
    """Convert a unit to an answer sentence that cites its span."""
    return cite_unit(evidence.passage, evidence.unit, evidence.score)


def cite_unit(passage: ContextPassage, unit: Unit, score: float) -> AnswerSentence:
    """Convert a unit of a passage to an answer sentence.

    The sentence cites exactly the unit's span.

    Args:
        passage: The passage of the unit.
        unit: The unit.
        score: Score of the sentence.
    """
    return AnswerSentence(
        text=unit.text,
        kind=unit.kind,
        score=score,
        citation=_citation(passage, unit),
        columns=unit.columns or _columns_above(passage, unit),
    )


def _columns_above(passage: ContextPassage, unit: Unit) -> tuple[str, ...]:
    """Return the columns of a row of Markdown, from above the passage."""
    names = table_columns(passage)
    is_row = unit.kind == "row" and unit.text.startswith("|")
    is_of_that_table = is_row and "\n\n" not in passage.text[: unit.start].lstrip("\n")
    return names if is_of_that_table and len(names) == len(cells(unit.text)) else ()


def _citation(passage: ContextPassage, unit: Unit) -> Citation:
    cited = passage.citation
    # The passage may show more than the cited chunk; its line numbers start at the citation.
    line = cited.line_start + passage.text.count("\n", 0, unit.start)
    line -= passage.text.count("\n", 0, cited.start - passage.start)
    start, end = passage.start + unit.start, passage.start + unit.end
    first, last = _pages(passage, start, end)
    return replace(
        cited,
        start=start,
        end=end,
        line_start=line,
        line_end=line + unit.text.count("\n"),
        page_start=first,
        page_end=last,
        quote_sha256=hash_text(unit.text),
    )


def _pages(passage: ContextPassage, start: int, end: int) -> tuple[int | None, int | None]:
    first, breaks = passage.page_start, passage.page_breaks
    if first is None or not breaks:
        return first, passage.page_end
    return first + bisect_right(breaks, start), first + bisect_right(breaks, end - 1)


def render(sentences: Sequence[AnswerSentence]) -> str:
    """Render sentences with their markers as Markdown.

    One paragraph for each passage. A table row is an item that names its columns, so that it can be read alone.
    """
    text = ""
    last: AnswerSentence | None = None
    for current in sentences:
        if last is not None:
            text += _separator(last, current)
        # A marker on the line of a closing fence would keep the code block open.
        text += _render_sentence(current) + ("\n\n" if current.kind == "code" else " ") + current.citation.marker
        last = current
    return text


def _render_sentence(sentence: AnswerSentence) -> str:
    if not sentence.columns:
        return sentence.text
    pairs = zip(sentence.columns, cells(sentence.text), strict=False)
    return "- " + "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _separator(last: AnswerSentence, following: AnswerSentence) -> str:
    if last.citation.index != following.citation.index or "code" in (last.kind, following.kind):
        return "\n\n"
    if last.kind == following.kind == "sentence":
        return " "
    return "\n" if last.kind == following.kind and bool(last.columns) == bool(following.columns) else "\n\n"
