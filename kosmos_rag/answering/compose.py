"""Select the units of an extractive answer and render it.

Every word is quoted from the evidence.
"""

import re
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from kosmos_rag.answering.evidence import Evidence, heading, table_columns
from kosmos_rag.answering.scorers import MIN_RELATIVE_SCORE
from kosmos_rag.answering.units import Unit, cells, units
from kosmos_rag.answering.whole_lists import complete, introduces
from kosmos_rag.answering.words import find_language, stem, stems
from kosmos_rag.core.types import AnswerSentence, Citation, ContextPassage, ScoredUnit, hash_text

_REFERS_BACK = re.compile(
    r"(?:\w+(?:\s+\w+){0,2},\s+)?"
    r"(?:this|that|these|those|it|its|they|their|he|she|his|her|such|dies|diese[rsmn]?|es|sie|er|ihre?|seine?)\b",
    re.IGNORECASE,
)
"""A first word that refers to the sentence before, in English or German; it may be after "Additionally, "."""
_REPEATS = re.compile(r"\b(?:this|these|those|such|diese[rsmn]?)\s+(\w+)", re.IGNORECASE)
"""A word that refers to one before: members of this group."""
# A title names what is asked if the words of both are more similar than this. "Dormant Accounts" and "Paying Accounts"
# share half, and two words of three are shared by metrics that differ.
_SAME_TITLE = 2 / 3


def select(evidence: Sequence[Evidence], limit: int, *, prefer_current: bool = True) -> list[Evidence]:
    """Select up to `limit` best units, best first, and what belongs to them.

    A unit that begins with a word for what the sentence before it names, such as "This", comes with that sentence.
    `complete` adds what lists, tables, nested items and code need.

    Args:
        prefer_current: Leave out units of documents that are out of date, where one of a current document is as good.
    """
    candidates = _drop_other_code(evidence)
    lowest = MIN_RELATIVE_SCORE * max((item.score for item in candidates), default=0.0)
    ranking = rank([item for item in candidates if item.score >= lowest])
    current = [item for item in ranking if item.passage.citation.outdated is None]
    selected: list[Evidence] = []
    for item in current if prefer_current and current else ranking:
        if len(selected) == limit:
            break
        whole = _join_antecedent(item)
        # Chunks overlap, and documents repeat each other.
        if any(_words(whole.unit) in _words(other.unit) for other in selected):
            continue
        # A sentence that comes with the one before it replaces that one.
        within = [at for at, other in enumerate(selected) if _words(other.unit) in _words(whole.unit)]
        if within:
            selected[within[0]] = whole
        else:
            selected.append(whole)
    return complete(_with_code(selected, candidates, limit), evidence, candidates, lowest)


def _drop_other_code(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Drop code that answers another question.

    It names less of the question, in its text or heading, than another unit, and no sentence introduces it. Or it is
    the SQL that is asked for, but in a section that is not that of the best sentence, and whose title has other words
    than the question: statements share the names of tables, and titles such as "Revenue Churn" and "Churn" a word.
    """
    prose = [item for item in evidence if item.unit.kind != "code"]
    best_section = _section(max(prose, key=lambda item: item.score)) if prose else None
    least = MIN_RELATIVE_SCORE * max((item.words for item in evidence), default=0.0)

    def answers(before: Evidence | None, item: Evidence) -> bool:
        if item.unit.kind != "code":
            return True
        is_introduced = before is not None and introduces(before, item)
        if item.words < least and not is_introduced:
            return False
        is_named = not heading(item.passage) or item.title_similarity > _SAME_TITLE
        return is_named or not item.is_requested_sql or _section(item) == best_section

    return [item for before, item in zip((None, *evidence), evidence, strict=False) if answers(before, item)]


def _section(item: Evidence) -> tuple[uuid.UUID, tuple[str, ...]]:
    return item.passage.citation.document_id, item.passage.citation.section


def _with_code(selected: list[Evidence], evidence: Sequence[Evidence], limit: int) -> list[Evidence]:
    """Add the SQL that a question asks for, after the sentence that answers.

    Where there are as many units as the limit allows, it replaces the last.
    """
    if not selected or limit == 1 or any(item.unit.kind == "code" for item in selected):
        return selected
    least = MIN_RELATIVE_SCORE * selected[0].words
    code = [item for item in evidence if item.is_requested_sql and item.words >= least > 0]
    return [*selected[: limit - 1], max(code, key=lambda item: item.score)] if code else selected


def _words(unit: Unit) -> str:
    return " ".join(unit.text.split())


def _join_antecedent(item: Evidence) -> Evidence:
    """Return a unit together with the sentence before it where it refers to that."""
    unit, previous = item.unit, item.previous
    if previous is None or unit.kind != "sentence" or previous.kind != "sentence":
        return item
    if not _REFERS_BACK.match(unit.text) and not _repeats(unit.text, previous.text):
        return item
    if "\n\n" in item.passage.text[previous.end : unit.start]:
        return item
    text = item.passage.text[previous.start : unit.end]
    return replace(item, unit=replace(unit, text=text, start=previous.start))


def _repeats(text: str, previous: str) -> bool:
    """Return whether a sentence has "this group" after one that names a group."""
    language = find_language([previous, text])
    nouns = {stem(word.casefold(), language) for word in _REPEATS.findall(text)}
    return bool(nouns) and not nouns.isdisjoint(stems(previous, language))


def rank(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return units by score, best first."""
    return sorted(evidence, key=lambda item: -item.score)


def scored_unit(evidence: Evidence) -> ScoredUnit:
    """Convert a unit to the record that explains its score."""
    return ScoredUnit(
        marker=evidence.passage.citation.marker,
        text=evidence.unit.text,
        kind=evidence.unit.kind,
        score=evidence.score,
        parts=evidence.parts,
    )


def sentence(evidence: Evidence) -> AnswerSentence:
    """Convert a unit to an answer sentence that cites its span."""
    return cite_unit(evidence.passage, evidence.unit, evidence.score)


def cite_unit(passage: ContextPassage, unit: Unit, score: float) -> AnswerSentence:
    """Convert a unit of a passage to an answer sentence.

    The sentence cites exactly the unit's span.

    Args:
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
    if sentence.kind == "sentence":
        # A sentence may come with the one before it: each has its marker.
        return f" {sentence.citation.marker} ".join(unit.text for unit in units(sentence.text)) or sentence.text
    if not sentence.columns:
        return " ".join(sentence.text.split()) if sentence.kind == "row" else sentence.text
    pairs = zip(sentence.columns, cells(sentence.text), strict=False)
    return "- " + "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _separator(last: AnswerSentence, following: AnswerSentence) -> str:
    if last.citation.index != following.citation.index or "code" in (last.kind, following.kind):
        return "\n\n"
    if last.kind == following.kind == "sentence":
        return " "
    return "\n" if last.kind == following.kind and bool(last.columns) == bool(following.columns) else "\n\n"
