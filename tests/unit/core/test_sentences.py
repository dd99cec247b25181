"""Sentence segmentation."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.text.sentences import sentences
from tests.property_examples import examples

fragments = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["Dr.", "e.g.", "...", "?!", '."', "。", "！」", "\n", "\n\n", " ", "1.", "U.S.", "no", "No", "…", "x" * 50]
    ),
)


def split(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in sentences(text, (0, len(text)))]


@examples(300)
@given(parts=st.lists(fragments, max_size=40), before=st.text(max_size=5), after=st.text(max_size=5))
def test_sentences__partition_the_span(parts: list[str], before: str, after: str) -> None:
    inner = "".join(parts)
    span = (len(before), len(before) + len(inner))
    result = list(sentences(before + inner + after, span))
    if not inner:
        assert result == []
        return
    assert (result[0][0], result[-1][1]) == span
    assert all(left[1] == right[0] for left, right in pairwise(result))
    assert all(start < end for start, end in result)
    assert inner.isspace() or not any((before + inner)[start:end].isspace() for start, end in result)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three! Four", ["One.", "Two?", "Three!", "Four"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Dr. Smith met Mr. Jones vs. Brown. They left.", ["Dr. Smith met Mr. Jones vs. Brown.", "They left."]),
        ("Use tools, e.g. Ruff, i.e. Rust. Done.", ["Use tools, e.g. Ruff, i.e. Rust.", "Done."]),
        ("See Fig. 3 and no. 5. Next.", ["See Fig. 3 and no. 5.", "Next."]),
        (
            "Beiträge bzw. Toots lt. Abs. 3 oder ggf. Art. 5. Ende.",
            ["Beiträge bzw. Toots lt. Abs. 3 oder ggf. Art. 5.", "Ende."],
        ),
        ("I said no. Then I left.", ["I said no.", "Then I left."]),
        ("Pi is 3.14 or so. Version 2.0.1 is out.", ["Pi is 3.14 or so.", "Version 2.0.1 is out."]),
        ("Wait... what? Yes... Now.", ["Wait... what?", "Yes...", "Now."]),
        ("J. K. Rowling wrote it. I read it.", ["J. K. Rowling wrote it.", "I read it."]),
        ("The U.S. Army grew. It did.", ["The U.S. Army grew.", "It did."]),
        ("1. Open the lid.\n2. Close it.", ["1. Open the lid.", "2. Close it."]),
        ("The answer is 42. Next.", ["The answer is 42.", "Next."]),
        (
            "Der Anspruch verfällt am 31. März. Der 2. Teil gilt ab 1. 4. 2026. Er beginnt.",
            ["Der Anspruch verfällt am 31. März.", "Der 2. Teil gilt ab 1. 4. 2026.", "Er beginnt."],
        ),
        ("Es gibt 30. Der Rest ist frei.", ["Es gibt 30.", "Der Rest ist frei."]),
        ("Fällig am 3. Werktag. Die 2. Auflage gilt.", ["Fällig am 3. Werktag.", "Die 2. Auflage gilt."]),
        ("Zahlung bis zum 15. Danach wird gemahnt.", ["Zahlung bis zum 15.", "Danach wird gemahnt."]),
        ("Er gilt ab dem 15. 20 Euro sind fällig.", ["Er gilt ab dem 15.", "20 Euro sind fällig."]),
        ("The limit is 10. 5 of them are reserved.", ["The limit is 10.", "5 of them are reserved."]),
        ("I am 30. Age is no limit.", ["I am 30.", "Age is no limit."]),
        ("The limit is 10. 2000 calls are free.", ["The limit is 10.", "2000 calls are free."]),
        ("The limit is 10. 5.5 are used. 1 is left.", ["The limit is 10.", "5.5 are used.", "1 is left."]),
        ("Vom 1. 4. 26 bis zum 3. 5. 2026. 7 Tage.", ["Vom 1. 4. 26 bis zum 3. 5. 2026.", "7 Tage."]),
        ("今日は晴れ。明日は雨！「本当？」そう。", ["今日は晴れ。", "明日は雨！", "「本当？」", "そう。"]),
        ("Title\nFirst line\n\nsecond part", ["Title", "First line", "second part"]),
        ("- apples\n- pears", ["- apples", "- pears"]),
        (
            "This line was broken by width and it goes on\nhere until its end. Next one.",
            ["This line was broken by width and it goes on\nhere until its end.", "Next one."],
        ),
        (
            "Read the whole page of the project before you\nInstall nothing else",
            ["Read the whole page of the project before you", "Install nothing else"],
        ),
        (
            "Use `f(x).` Then `g`. *So.* It is the signal's. End.",
            [
                "Use `f(x).`",
                "Then `g`.",
                "*So.*",
                "It is the signal's.",
                "End.",
            ],
        ),
        ("short line\nanother short line", ["short line", "another short line"]),
    ],
)
def test_sentences__of_known_text(text: str, expected: list[str]) -> None:
    assert split(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Die Frist endet am 15.|Anschließend wird gemahnt.",
        "Zahlung bis zum 15.|Andernfalls wird gemahnt.",
        "Das Büro schließt am 24.|Außerdem ist es am 31. geschlossen.",
        "Kunden zahlen bis zum 15.|Ab dem 16. wird gemahnt.",
        "Geöffnet bis zum 15.|Auf Anfrage länger.",
        "Wir zahlen am 15.|An Feiertagen früher.",
        "Wir liefern am 5.|Sollten Sie nichts erhalten, rufen Sie an.",
        "Es gilt vom 1.|Jedoch nicht am 2. Mai.",
        "Der Rat tagt am 3.|Weitere Termine folgen.",
        "Das sind die 10.|Ist das genug?",
        "Wir liefern am 5.|Manchmal früher.",
        "Wir liefern am 5.|Tagsüber ist geöffnet.",
        "Wir liefern am 5.|Kunden zahlen später.",
    ],
)
def test_a_sentence__ends_with_a_day_of_the_month(text: str) -> None:
    assert split(text.replace("|", " ")) == text.split("|")


OPENINGS = (
    "Ab An Andernfalls Anschließend Ansonsten Auf Aus Außerdem Beim Durch Erst Gegen Ist Jedoch Nun Sind Sollte "
    "Sollten Weitere Wird Zusätzlich"
)


@pytest.mark.parametrize("word", OPENINGS.split())
def test_a_sentence__begins_with_no_noun_after_a_number(word: str) -> None:
    assert split(f"Er gilt ab dem 15. {word} etwas folgt.") == ["Er gilt ab dem 15.", f"{word} etwas folgt."]


COUNTED = (
    "Tag Tage Geburtstag Monat Quartal Semester Geschäftsjahr Jahrzehnt Jahrhundert Jahrtausend Mittwoch Sonnabend "
    "Wochenende Advent Mal Platz Teil Kapitel Weltkrieg Vorsitzenden Oktober Jänner Jan. Feb. Mär. Apr. Jun. Jul. Aug. "
    "Sep. Sept. Okt. Nov. Dez."
)


@pytest.mark.parametrize("noun", COUNTED.split())
def test_a_sentence__goes_on_with_what_an_ordinal_number_counts(noun: str) -> None:
    for article in ("am", "zum", "vom"):
        text = f"Sie kam {article} 3. {noun} gern."
        assert split(text) == [text]


@pytest.mark.parametrize("text", [".", "!\"'", "\n ", "...)", " ", "a. ", "1. ", "。", ".x", "x"])
def test_sentences__take_linear_time(text: str) -> None:
    long = text * (150_000 // len(text))
    began = time.perf_counter()
    list(sentences(long, (0, len(long))))
    # Quadratic time would be minutes.
    assert time.perf_counter() - began < 8


def test_sentences__of_text_in_small_letters_and_of_tokenised_text() -> None:
    text = "the flow is laminar . the plate is hot. it bends, e.g. at the edge. done"
    texts = [text[start:end].strip() for start, end in sentences(text, (0, len(text)))]
    assert texts == ["the flow is laminar .", "the plate is hot.", "it bends, e.g. at the edge.", "done"]


def test_sentences__of_text_with_capitals_do_not_end_before_a_small_letter() -> None:
    text = "It took approx. half an hour, etc. and so on. Then it ended . and began again."
    texts = [text[start:end].strip() for start, end in sentences(text, (0, len(text)))]
    assert texts == ["It took approx. half an hour, etc. and so on.", "Then it ended .", "and began again."]


def test_sentences__with_lines_that_mean_nothing() -> None:
    text = "short line\nAnother line. Yes.\nand more. No.\n\nA paragraph"
    texts = [text[start:end].strip() for start, end in sentences(text, (0, len(text)), by_lines=False)]
    assert texts == ["short line\nAnother line.", "Yes.\nand more.", "No.", "A paragraph"]
