"""Words without their accents."""

import pytest

from kosmos_rag.core.text.accents import accented_words, fold_accents


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("plain", "plain"),
        ("Café à Zürich", "Cafe a Zurich"),
        ("cafe\u0301", "cafe"),
        ("Straße, Ødegård, Œuvre, łódź", "Strasse, Odegard, OEuvre, lodz"),
        ("Hà Nội", "Ha Noi"),
        ("Ναυτικό μίλι", "Ναυτικο μιλι"),
        ("ёлка и йод", "елка и йод"),
        ("训练 “データ” 데이터", "训练 “データ” 데이터"),
    ],
)
def test_fold_accents__leaves_base_letters(text: str, folded: str) -> None:
    assert fold_accents(text) == folded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("plain “words” – only 训练", ""),
        ("Le café d'été à côté, café", "cafe cote cafe"),
        ("Regeln für Überstunden über das Jahr", "Uberstunden"),
        ("ИОННЫЙ йод и ёлка", "елка"),
        ("re\u0301sume\u0301", "resume"),
    ],
)
def test_accented_words__have_neither_accents_nor_stop_words(text: str, words: str) -> None:
    assert accented_words(text) == words
