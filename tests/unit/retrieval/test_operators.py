"""The syntax of questions: what is an operator, and what stays a word."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag.retrieval.query import ParsedQuery, parse_operators
from tests.property_examples import examples


def _question(text: str, **terms: tuple[str, ...]) -> ParsedQuery:
    return ParsedQuery(**{"text": text, "phrases": (), "required": (), "excluded": (), **terms})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "parsed"),
    [
        ('how is "churn rate" defined', _question("how is churn rate defined", phrases=("churn rate",))),
        ("“churn  rate” of whom", _question("churn rate of whom", phrases=("churn rate",))),
        ('“churn rate" of whom', _question("churn rate of whom", phrases=("churn rate",))),
        ('("churn rate")?', _question("(churn rate)?", phrases=("churn rate",))),
        ("+churn by region", _question("churn by region", required=("churn",))),
        ("what is +churn?", _question("what is churn?", required=("churn",))),
        ("+C++ or rust", _question("C++ or rust", required=("C++",))),
        ('by +"net revenue" only', _question("by net revenue only", required=("net revenue",))),
        ("jaguar -car, -engine", _question("jaguar", excluded=("car", "engine"))),
        ('jaguar -"sports car" speed', _question("jaguar speed", excluded=("sports car",))),
        ("-ёж белка", _question("белка", excluded=("ёж",))),
        ("-car", _question("", excluded=("car",))),
        ("+a +a -b -b c", _question("a a c", required=("a",), excluded=("b",))),
        ('"a e" +"b" -"c" d', _question("a e b d", phrases=("a e",), required=("b",), excluded=("c",))),
        ('what "churn" means', _question("what churn means")),
        ('"net +revenue"', _question("net revenue", phrases=("net +revenue",))),
        ('+a."b c"', _question("a.b c", phrases=("b c",), required=("a",))),
        ('"a d""b e"c', _question("a d b e c", phrases=("a d", "b e"))),
    ],
)
def test_parse__finds_the_operators(question: str, parsed: ParsedQuery) -> None:
    assert parse_operators(question) == parsed


@pytest.mark.parametrize(
    "question",
    [
        "-5 degrees",
        "+5 or -½",
        "a - b + c",
        "text-to-SQL in C++",
        "e-mail and A+B",
        'the 5" disk and the 3" disk',
        'an "unclosed quote',
        '-"unclosed',
        "--verbose",
        "(-term)",
        "it's 'single' quotes",
        "",
    ],
)
def test_parse__leaves_text_alone(question: str) -> None:
    assert parse_operators(question) == _question(question)


@pytest.mark.parametrize("question", ['""', "“ ”", '-"" +""', '"?!"'])
def test_parse__ignores_phrases_without_a_word(question: str) -> None:
    parsed = parse_operators(question)
    assert (parsed.phrases, parsed.required, parsed.excluded) == ((), (), ())


TRICKY = st.text(alphabet='+-"“” \t\na5é½_(.', max_size=24) | st.text(max_size=24)


@examples(500)
@given(TRICKY)
@example('-"foo"-"bar"')
@example('x ""-b "')
@example('a" -b "c')
@example('-b"c d"')
@example('"-a +b"')
@example('+a.""')
def test_parse__leaves_no_operator_in_the_text(question: str) -> None:
    text = parse_operators(question).text
    assert parse_operators(text) == _question(text)


@given(st.lists(st.text(alphabet="abéz59'.,?", min_size=1), max_size=6))
def test_parse__of_plain_words_is_the_words(words: list[str]) -> None:
    assert parse_operators("  ".join(words)) == _question(" ".join(words))


TERM = st.text(alphabet="abéz", min_size=1, max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["", "+", "-"]), st.lists(TERM, min_size=1, max_size=3)), max_size=8))
def test_parse__finds_what_was_written(parts: list[tuple[str, list[str]]]) -> None:
    parsed = parse_operators(" ".join(f'{operator}"{" ".join(words)}"' for operator, words in parts))
    for operator, found in (("", parsed.phrases), ("+", parsed.required), ("-", parsed.excluded)):
        # One word in bare quotes is a word like others.
        terms = (words for sign, words in parts if sign == operator and (sign or len(words) > 1))
        assert found == tuple(dict.fromkeys(" ".join(words) for words in terms))
    assert parsed.text == " ".join(" ".join(words) for operator, words in parts if operator != "-")
