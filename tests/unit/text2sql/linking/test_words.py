"""Words of questions and of names."""

import pytest

from kosmos_rag.text2sql.linking.words import question_words, stem, stem_name, unify_spelling


@pytest.mark.parametrize(
    ("item", "other"),
    [
        ("singers", "singer"),
        ("countries", "country"),
        ("titled", "title"),
        ("stopped", "stop"),
        ("hiring", "hire"),
        ("störung", "stoerung"),
        ("café", "cafe"),
    ],
)
def test_stem__is_the_same_for_forms_of_a_word(item: str, other: str) -> None:
    assert stem(item) == stem(other)


@pytest.mark.parametrize(("item", "other"), [("status", "state"), ("king", "k"), ("red", "r"), ("user", "usage")])
def test_stem__keeps_words_apart(item: str, other: str) -> None:
    assert stem(item) != stem(other)


@pytest.mark.parametrize("words", ["lender länder", "setze sätze", "felle fälle", "wende wände", "helfte hälfte"])
def test_unify_spelling__keeps_umlauts(words: str) -> None:
    word, other = map(stem, words.split())
    assert unify_spelling(word) == word
    assert unify_spelling(other) == other


def test_question_words__leave_out_quoted_values() -> None:
    assert question_words('Who wrote the song "Hey Jude"?') == ["who", "wrote", "the", "song"]
    assert question_words("the singer's age, not 'Smith'") == ["the", "singer", "s", "age", "not"]


def test_question_words__takes_names_of_columns_apart() -> None:
    assert question_words("show program_statistics.success_count") == [
        "show", "program", "statistics", "success", "count",
    ]  # fmt: skip


def test_stems_of_name__writes_short_forms_out() -> None:
    assert stem_name("avgExecTime") == tuple(map(stem, ("average", "execution", "time")))
