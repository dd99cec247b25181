"""Parts of German compounds."""

import unicodedata

import pytest

from kosmos_rag.core.text.compounds import find_parts, split_compound


@pytest.mark.parametrize(
    ("compound", "parts"),
    [
        ("Krankenversicherung", "kranken versicherung"),
        ("Krankenversicherungsbeitrag", "kranken versicherung beitrag krankenversicherung versicherungsbeitrag"),
        ("Urlaubsantrag", "urlaub antrag"),
        ("Kündigungsfrist", "kündigung frist"),
        ("Kündigungsfristen", "kündigung fristen"),
        ("Arbeitszeitkonto", "arbeit zeit konto arbeitszeit zeitkonto"),
        ("Lohnsteuerbescheinigung", "lohn steuer bescheinigung lohnsteuer"),
        ("Haftpflichtversicherung", "haft pflicht versicherung haftpflicht pflichtversicherung"),
        ("Schweinehaltung", "schweine haltung"),
        ("Blumentopf", "blumen topf"),
        ("Preisliste", "preis liste"),
        ("Betriebsstätte", "betrieb stätte"),
        ("Vorstandsmitglied", "vorstand mitglied"),
        ("Weiterbildungswunsch", "weiterbildung wunsch"),
    ],
)
def test_split_compound__returns_parts_and_sequences_of_them(compound: str, parts: str) -> None:
    assert split_compound(compound.lower()) == tuple(parts.split())


@pytest.mark.parametrize(
    "word",
    [
        *("Versicherung", "Bezahlung", "Anstellung", "Computer", "Sonne", "Gesellschaft", "Wiederholung"),
        *("Bescheinigung", "Unternehmen", "Eigenschaft", "Regelungen", "Dienstag", "Bundestag", "Französisch"),
        *("Unterhaltung", "Verbraucher", "Interessen", "Xyzzyplugh", "", "a", "Donaudampfschifffahrt" * 4),
    ],
)
def test_split_compound__leaves_other_words(word: str) -> None:
    assert split_compound(word.lower()) == ()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ""),
        ("Die Krankenversicherung, KRANKENVERSICHERUNG und der Urlaubsantrag", "kranken versicherung urlaub antrag"),
        (unicodedata.normalize("NFD", "Kündigungsfrist"), "kündigung frist"),
        ("versicherungspflichtig, urlaubsantrag", ""),  # nouns begin with a capital letter
        ("get_Krankenversicherung KrankenversicherungId Krankenversicherung2", ""),
    ],
)
def test_find_parts__splits_the_nouns_of_a_text(text: str, parts: str) -> None:
    assert find_parts(text, "german") == parts


def test_find_parts__splits_german_texts_only() -> None:
    assert find_parts("Krankenversicherung", "english") == find_parts("Krankenversicherung", "simple") == ""
