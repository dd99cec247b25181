"""Questions made of documents."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import pytest

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import LanguageModel, Message
from kosmos_rag.evaluation.offline.synthetic import SampledChunk, generate_questions, generate_with_model


def _piece(source: str, section: str, text: str, line: int = 1) -> SampledChunk:
    return SampledChunk(source=source, section=("Handbook", section), line_start=line, line_end=line + 3, text=text)


PIECES = [
    _piece(
        "a.md", "Parental Leave", "Parental leave is the time off after a birth. It is paid by the state insurance."
    ),
    _piece("a.md", "Parental Leave", "It is a long time. Requests arrive before twelve weeks.", 5),
    _piece("b.md", "Overview", "An invoice is a demand for payment. Send invoices every month to customers.", 2),
    _piece("c.md", "Overview", "The invoice is the end of a sale. Customers receive every month a statement.", 3),
    _piece("c.md", "Overview", "A waiver is a promise in writing. No rows are the result of a query without data.", 4),
    _piece("c.md", "Sick Days", "This is a note from the doctor.", 9),
    _piece("c.md", "Sick  days", "It is the other place of that heading.", 15),
]


def test_make__asks_by_headings_definitions_and_phrases_that_stand_in_one_place() -> None:
    kinds = {question.text: (kind, question.locations[0]) for question, kind in generate_questions(PIECES, 100)}
    kind, place = kinds["What is there to know about Parental Leave?"]
    assert (kind, place.source, place.lines) == ("heading", "a.md", (1, 8))
    assert kinds["What is Parental leave?"][0] == "definition"
    texts = " ".join(kinds)
    assert "invoice?" not in texts  # defined twice
    assert "Overview" not in texts  # one word, and in two documents
    assert "What is a waiver?" in kinds
    assert {"What is It?", "What are No rows?"}.isdisjoint(kinds)
    assert {kind for kind, _ in kinds.values()} == {"heading", "definition", "phrases"}
    assert generate_questions(PIECES, 100) == generate_questions(PIECES, 100)
    assert len(generate_questions(PIECES, 2)) == 2


def test_make__leaves_near_duplicates_out() -> None:
    pieces = [
        _piece("a.md", f"Rules of travel expenses in the northern sales office part {letter}", "x", line)
        for line, letter in enumerate("ABC", start=1)
    ]
    assert len(generate_questions(pieces, 100)) == 1


@dataclass
class Writer(LanguageModel):
    """A model that writes the same each time."""

    answers: Sequence[str]
    name: str = "writer"
    calls: int = 0

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        assert "````" in messages[0].text
        self.calls += 1
        yield from self.answers[(self.calls - 1) % len(self.answers)]


LONG = [
    _piece("a.md", "S", f"Passage number {n} has ``` in it. " + "More words follow here. " * 12, n) for n in range(6)
]


def test_make_by_model__takes_questions_only_and_each_once() -> None:
    writer = Writer(
        [
            '<think>What?</think>\nSure.\n"How long is parental leave at home?"',
            "What does the passage say about leave?",
            "No.",
            "How long is  parental leave at home?",
            "Who pays when a flight is cancelled?",
        ]
    )
    result = generate_with_model(writer, LONG, 5)
    assert [question.text for question, _ in result] == [
        "How long is parental leave at home?",
        "Who pays when a flight is cancelled?",
    ]
    assert {kind for _, kind in result} == {"model"}


def test_make_by_model__without_any_question_is_an_error() -> None:
    with pytest.raises(ModelError, match="wrote no question about any of 6 passages"):
        generate_with_model(Writer(["I cannot."]), LONG, 5)
