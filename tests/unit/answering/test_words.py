"""Words in one form, and their weights."""

import pytest

from kosmos_rag.answering.words import coverage, find_language, inverse_document_frequencies, stem, stems, words


@pytest.mark.parametrize(
    "words",
    ["calculate calculated calculation calculating", "refund refunds refunded", "retry retries"],
)
def test_stem__is_one_for_the_forms_of_a_word(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_stem__leaves_short_words_and_numbers() -> None:
    assert [stem(word) for word in ("is", "bus", "2025", "class")] == ["is", "bus", "2025", "class"]


def test_stem__is_of_the_language() -> None:
    assert len({stem(word, "german") for word in ("versicherung", "versicherungen")}) == 1
    assert stem("versicherungen") != stem("versicherung")
    assert len({stem(word, "spanish") for word in ("región", "regiones")}) == 1
    assert stem("versicherungen", "simple") == "versicherungen"


def test_words__leave_out_question_words_of_the_language() -> None:
    assert words("Wie viele Versicherungen gibt es in der Schweiz?", "german") == ["versicherungen", "schweiz"]
    assert words("¿Cuántas ciudades hay en la región?", "spanish") == ["ciudades", "región"]
    assert words("Где он и кто?", "russian") == ["где", "кто"], "the function words alone"


def test_find_language__is_that_of_most_passages() -> None:
    german = "Die Versicherung wird von der Firma für alle Angestellten bezahlt, und sie ist nach dem ersten Monat zu "
    german += "kündigen, wenn ein Angestellter nicht mehr bei der Firma ist."
    english = "The insurance is paid by the firm for all of its staff, and it can be cancelled after the first month."
    assert find_language([german, german, english]) == "german"
    assert find_language([english, german, english]) == "english"
    assert find_language([german, "Preis: 5; Stand: 2024", "Preis: 6"]) == "german"
    rows = "Umzug: 2 Tage; Hochzeit: 3 Tage; Geburt: 2 Tage; Todesfall: 3 Tage"
    assert find_language([rows, "Ein Brückentag wird nicht bezahlt."]) == "german", "rows are in no language"
    assert find_language(["Preis: 5; Stand: 2024"]) == find_language([]) == "english"


def test_stems__leave_out_words_that_name_nothing_and_open_identifiers() -> None:
    assert stems("What is the `ended_at` of silver.refunds?") == ["end", "silver", "refund"]


def test_inverse_document_frequencies__is_higher_for_what_fewer_passages_have() -> None:
    pool = [frozenset("ab"), frozenset("a"), frozenset("a")]
    weights = inverse_document_frequencies(["a", "b", "c"], pool)
    assert weights["c"] > weights["b"] > weights["a"] > 0


def test_coverage__is_a_share_of_the_weights() -> None:
    assert coverage({"a": 1.0, "b": 3.0}, ["b", "b", "x"]) == 0.75
    assert coverage({}, ["a"]) == 0.0
