"""Notes of a parsed document."""

from kosmos_rag.core.types import Note
from kosmos_rag.parsing.limits import bound_notes


def test_bound_notes__says_how_many_are_left_out() -> None:
    notes = [Note(code="page_unreadable", message=f"page {number}") for number in range(1, 41)]
    bounded = bound_notes(notes)
    assert bounded[:19] == tuple(notes[:19])
    assert bounded[19:] == (Note(code="more", message="21 more notes"),)
    assert bound_notes(notes[:20]) == tuple(notes[:20])


def test_bound_notes__one_short_line_each_and_none_twice() -> None:
    note = Note(code="attachment_unreadable", message="a\n\x00" + "b" * 1_000)
    (bounded,) = bound_notes([note, note])
    assert bounded == Note(code=note.code, message=("a " + "b" * 1_000)[:300])
