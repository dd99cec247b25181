"""JSON and JSON Lines: each value with its path."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse


def parse_json(text: str, name: str = "a.json") -> ParsedDocument:
    return parse(SourceDocument(source=name, data=text.encode()))


def test_parse_json__a_value_a_line_with_its_path() -> None:
    parsed = parse_json(
        '{"team": "Core", "people": [{"name": "Ada", "address": {"city": "London"}},'
        ' {"name": "Bob", "tags": ["a", 2]}]}'
    )
    assert parsed.text == (
        "team: Core\npeople[0].name: Ada\npeople[0].address.city: London\npeople[1].name: Bob\npeople[1].tags: a, 2"
    )
    assert parsed.media_type == "application/json"


def test_parse_json__values_are_written_as_in_the_file() -> None:
    parsed = parse_json(
        '[{"a": 1.50, "b": 12345678901234567890, "c": null, "d": true, "e": "two\\nlines", "f": {}}, []]'
    )
    assert parsed.text == "[0].a: 1.50\n[0].b: 12345678901234567890\n[0].c: null\n[0].d: true\n[0].e: two lines"


@pytest.mark.parametrize("text", ["{'single': 1}", '{"a": 1} trailing', "[" * 100_000, "1" * 10 + "x"])
def test_parse_json__what_is_not_json_keeps_its_lines(text: str) -> None:
    assert parse_json(text).text == text


def test_parse_json__long_paths_are_cut_before_the_value() -> None:
    value: object = "deep"
    for _ in range(300):
        value = {"level": value}
    text = parse_json(json.dumps(value)).text
    assert text.endswith(".level: deep")
    assert len(text) < 300


def test_parse_json__stops_at_the_limit_of_text() -> None:
    data = json.dumps({"name" * 40: [{"x": n} for n in range(5000)]}).encode()
    with pytest.raises(ParseError) as caught:
        parse(SourceDocument(source="a.json", data=data), OutputLimits(text_bytes=2 * len(data)))
    assert caught.value.code == "too_large"


def test_parse_json_lines__a_record_stays_a_line() -> None:
    parsed = parse_json('{"name": "Ada", "at": {"city": "London"}}\n\nnot json\n["a", 1]\n', "a.jsonl")
    assert parsed.text == "name: Ada; at.city: London\n\nnot json\na, 1\n"
    assert parsed.media_type == "application/jsonl"


WORDS = st.text("abcß:;.", min_size=1, max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(WORDS, JSON, max_size=3).map(lambda value: {"key": "value", **value}))
def test_parse_json__keeps_every_word(value: dict[str, object]) -> None:
    def words(inner: object) -> list[str]:
        if isinstance(inner, dict | list):
            items = inner.values() if isinstance(inner, dict) else inner
            return [word for item in items for word in words(item)]
        return [inner] if isinstance(inner, str) else []

    text = parse_json(json.dumps(value)).text
    assert all(word in text for word in words(value))
