"""The language of a chunk, by function words."""

import pytest

from kosmos_rag.core.text.languages import LANGUAGES, choose_text_language

TEXTS = {
    "english": "The machine must be switched off before it is opened, and the plug has to be pulled. Parts that have "
    "been damaged should not be used again; they can be ordered from the supplier.",
    "german": "Die Maschine ist vor dem Öffnen auszuschalten, und der Stecker wird gezogen. Teile, die beschädigt "
    "sind, dürfen nicht wieder verwendet werden; sie sind bei dem Hersteller zu bestellen, wenn sie "
    "fehlen.",
    "french": "La machine doit être arrêtée avant d'être ouverte, et la prise est retirée. Les pièces qui sont "
    "abîmées ne peuvent pas être utilisées de nouveau ; elles sont commandées par le service pour le "
    "client.",
    "spanish": "La máquina se apaga antes de abrirla, y el enchufe se retira de la pared. Las piezas que están "
    "dañadas no se pueden usar de nuevo; los clientes las piden por correo, o con una llamada al "
    "servicio.",
    "russian": "Машина должна быть выключена, и только после этого она может быть открыта. Если части повреждены, то "
    "их не используют, так как это опасно для людей; они заказываются у поставщика или на складе.",
}
CODE = """
$ tool --output-dir /var/lib/die --den dem --no-der --level 3 --color auto
def load(path, mode="r"): return {"des": auf, "in": path, "types": [int, str, list]}
for row in rows: con.execute("INSERT INTO sales VALUES (?, ?, ?)", (row.id, row.el, row.price))
| `--das` | `null` | SELECT a, e, o FROM de WHERE la IN (no, os, un) ORDER BY total LIMIT ten |
"""


@pytest.mark.parametrize("language", list(TEXTS))
@pytest.mark.parametrize("expected", list(TEXTS))
def test_choose_text_language__is_that_of_the_prose(language: str, expected: str) -> None:
    assert choose_text_language(TEXTS[expected], language, LANGUAGES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Die Maschine ist auszuschalten.",  # too short
        "der " * 300,  # a repeated word
        CODE,
        CODE * 5,
        f"{TEXTS['english']} {TEXTS['german']}",  # no language is clear
    ],
)
def test_choose_text_language__keeps_that_of_the_document(text: str) -> None:
    assert choose_text_language(text, "english", LANGUAGES) == "english"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Der Urlaub ist bis zum Ende des Jahres zu nehmen.", "german"),
        ("La machine est arrêtée avant que la porte ne soit ouverte par le client.", "french"),
        ("The leave is to be taken by the end of the year.", "english"),
    ],
)
def test_choose_text_language__of_a_sentence(text: str, expected: str) -> None:
    assert choose_text_language(text, "english", LANGUAGES) == expected


def test_choose_text_language__replaces_languages_by_languages_of_the_server_only() -> None:
    assert choose_text_language(TEXTS["german"], "simple", LANGUAGES) == "simple"
    assert choose_text_language(TEXTS["german"], "my_english", LANGUAGES) == "my_english"
    assert choose_text_language(TEXTS["german"], "english", {"english", "french"}) == "english"
