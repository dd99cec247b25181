"""The syntax of questions: what is an operator, and what stays a word."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag.core.types import Operators
from kosmos_rag.retrieval.query import ParsedQuery, parse_operators
from tests.property_examples import examples


def _question(text: str, **terms: tuple[str, ...]) -> ParsedQuery:
    return ParsedQuery(text=text, operators=Operators(**terms))


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
    assert parse_operators(question, "operators") == parsed


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("jaguar -car, -engine", {"excluded": ("car", "engine")}),
        ("-trial churn", {"excluded": ("trial",)}),
        ('+churn by region -"free trial"', {"required": ("churn",), "excluded": ("free trial",)}),
        ("C# +async", {"required": ("async",)}),
        ("-ёж белка", {"excluded": ("ёж",)}),
        ("-car", {"excluded": ("car",)}),
        ("docker run -p 9090:9090", {"signed_text": ("-p",)}),
        ("Why does docker run -p 9090:9090 fail?", {"signed_text": ("-p",)}),
        ("what does -storage.local.retention do", {"signed_text": ("-storage.local.retention",)}),
        ("-storage.local.retention", {"signed_text": ("-storage.local.retention",)}),
        ("tar -xzf file.tar.gz -C /tmp", {"signed_text": ("-xzf", "-C")}),
        ("python --verbose -car", {"signed_text": ("-car",)}),
        ("How is churn defined -trial", {"signed_text": ("-trial",)}),
        ("Wie rechnet man ohne -trial", {"signed_text": ("-trial",)}),
        ("explain the report -trial", {"signed_text": ("-trial",)}),
        ("churn -trial.", {"signed_text": ("-trial.",)}),
        ('git commit -m "first try"', {"signed_text": ("-m",), "phrases": ("first try",)}),
        ('show the report -"free trial"', {"signed_text": ('-"free trial"',)}),
        ("set a=b -c1", {"signed_text": ("-c1",)}),
        ("one two three four five six seven -eight", {"signed_text": ("-eight",)}),
    ],
)
def test_parse__takes_signs_as_operators_among_terms_alone(question: str, terms: dict[str, tuple[str, ...]]) -> None:
    parsed = parse_operators(question)
    assert parsed.operators == Operators(**terms)
    if "signed_text" in terms and "phrases" not in terms:
        assert parsed.text == question
    assert parse_operators(question, "plain") == _question(question)


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
    assert parse_operators(question) == parse_operators(question, "operators") == _question(question)


@pytest.mark.parametrize("question", ['""', "“ ”", '-"" +""', '"?!"'])
def test_parse__ignores_phrases_without_a_word(question: str) -> None:
    assert parse_operators(question, "operators").operators == Operators()


_NO_QUOTES = str.maketrans("", "", '"“”')
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
    text = parse_operators(question, "operators").text
    assert parse_operators(text, "operators") == _question(text)


@examples(300)
@given(TRICKY, st.sampled_from(["the", "what", "a=b", "--x", "/tmp", "80:80"]), TRICKY)
def test_parse__excludes_nothing_in_a_sentence_or_a_command_line(before: str, word: str, after: str) -> None:
    # Quotes of the two parts could make a phrase of the word.
    text = " ".join((before.translate(_NO_QUOTES), word, after))
    operators = parse_operators(text).operators
    assert (operators.required, operators.excluded) == ((), ())


@given(st.lists(st.text(alphabet="abéz59'.,?", min_size=1), max_size=6))
def test_parse__of_plain_words_is_the_words(words: list[str]) -> None:
    assert parse_operators("  ".join(words)) == _question(" ".join(words))


TERM = st.text(alphabet="abéz", min_size=1, max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["", "+", "-"]), st.lists(TERM, min_size=1, max_size=3)), max_size=8))
def test_parse__finds_what_was_written(parts: list[tuple[str, list[str]]]) -> None:
    parsed = parse_operators(" ".join(f'{operator}"{" ".join(words)}"' for operator, words in parts), "operators")
    terms = parsed.operators
    for operator, result in (("", terms.phrases), ("+", terms.required), ("-", terms.excluded)):
        # One word in bare quotes is a word like others.
        groups = (words for sign, words in parts if sign == operator and (sign or len(words) > 1))
        assert result == tuple(dict.fromkeys(" ".join(words) for words in groups))
    assert parsed.text == " ".join(" ".join(words) for operator, words in parts if operator != "-")
