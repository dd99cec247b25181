"""What a prompt repeats of earlier turns, and when passages and turns go."""

import itertools

import pytest

from kosmos_rag.answering.history import Conversation, EarlierTurn, recent_turns, repeat_turns
from kosmos_rag.core.types import Turn
from tests.unit.answering.passages import passage

WORDS = "word " * 80


def _turn(number: int, *indexes: int, cites: tuple[int, ...] = ()) -> EarlierTurn:
    """A turn of 20 tokens, with passages of 100 tokens each."""
    passages = tuple(passage(WORDS, index=index, start=index * 1000) for index in indexes)
    return EarlierTurn(
        question=f"question {number}", answer=f"answer {number}", passages=passages, cited=frozenset(cites), tokens=20
    )


def _history(turns: list[EarlierTurn]) -> list[Turn]:
    return [
        Turn(
            question=turn.question,
            answer=turn.answer,
            passages={entry.citation.index: entry.chunk_ids for entry in turn.passages},
        )
        for turn in turns
    ]


def _list_indexes(conversation: Conversation) -> list[tuple[int, ...]]:
    return [tuple(entry.citation.index for entry in turn.passages) for turn in conversation.turns]


@pytest.mark.parametrize(
    ("count", "limit", "remaining"),
    [(0, 3, 0), (3, 3, 3), (4, 3, 3), (10, 10, 10), (11, 10, 6), (15, 10, 10), (5, 1, 1)],
)
def test_recent_turns__go_in_groups(count: int, limit: int, remaining: int) -> None:
    history = [Turn(question=str(number), answer="") for number in range(count)]
    assert list(recent_turns(history, limit)) == history[count - remaining :]


def test_turns__show_each_passage_once_within_the_budget() -> None:
    turns = [_turn(1, 1, 2, cites=(1,)), _turn(2, 2, 3), _turn(3, 1, 4)]
    conversation = repeat_turns(_history(turns), turns, 10_000)
    assert _list_indexes(conversation) == [(1, 2), (3,), (4,)]
    assert (conversation.last_number, conversation.first_question) == (4, "question 1")


def test_uncited_passages__go_together_where_the_budget_is_exceeded() -> None:
    turns = [_turn(1, 1, 2, cites=(2,)), _turn(2, 3, 4, cites=(3,)), _turn(3, 5, 6, cites=(2,))]
    within, over = repeat_turns(_history(turns[:2]), turns[:2], 600), repeat_turns(_history(turns), turns, 600)
    assert _list_indexes(within) == [(1, 2), (3, 4)]
    assert _list_indexes(over) == [(2,), (3,), ()]
    assert (over.last_number, len(over.numbers)) == (6, 6)


def test_oldest_turns__go_where_cited_passages_exceed_half_of_the_budget() -> None:
    turns = [_turn(number, number, cites=(number,)) for number in range(1, 6)]
    conversation = repeat_turns(_history(turns), turns, 500)
    assert [turn.question for turn in conversation.turns] == ["question 4", "question 5"]
    assert conversation.first_question == "question 1"


def test_turns__begin_as_before_until_the_budget_is_exceeded() -> None:
    turns = [_turn(number, 2 * number, 2 * number + 1, cites=(2 * number,)) for number in range(1, 21)]
    messages = [_list_indexes(repeat_turns(_history(turns[:count]), turns[:count], 1500)) for count in range(1, 21)]
    remaining = [later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(messages)]
    assert remaining.count(False) <= 4  # each costs a prompt that begins differently


def test_numbers__continue_after_those_of_passages_that_cannot_be_read() -> None:
    history = [Turn(question="q", answer="As [9] says.", passages={7: ()})]
    turns = [EarlierTurn(question="q", answer="As [9] says.", passages=(), cited=frozenset({9}), tokens=5)]
    assert repeat_turns(history, turns, 100).last_number == 9
