"""The file of synonyms: what it may hold, and what is said where it holds something else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.retrieval.expansion.synonyms import Rule, read_rules


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "synonyms.yaml"


def test_read__a_list_goes_both_ways_and_a_mapping_one(file: Path) -> None:
    file.write_text('- [churn, "customer  loss"]\n- from: [kpi]\n  to:\n    - key performance indicator\n')
    both = ("churn", "customer loss")
    assert read_rules(file) == [
        Rule(terms=both, synonyms=both),
        Rule(terms=("kpi",), synonyms=("key performance indicator",)),
    ]


def test_read__takes_words_that_yaml_has_other_plans_for(file: Path) -> None:
    file.write_text("- [no, 2024, 1.50, 2024-01-01, null, 401k]\n")
    assert read_rules(file)[0].terms == ("no", "2024", "1.50", "2024-01-01", "null", "401k")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]", "---\n"])
def test_read__an_empty_file_has_no_rules(file: Path, text: str) -> None:
    file.write_text(text)
    assert read_rules(file) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("churn", 'line 1: "churn" is not a list of entries: begin each entry with a hyphen'),
        ("churn: [attrition]", "line 1: a mapping is not a list of entries: begin each entry with a hyphen"),
        ("- [a, b]\n- churn", 'line 2: "churn" is not an entry: write [one word, another], or {from: […], to: […]}'),
        ("- [a, b]\n-\n", 'line 2: "" is not an entry'),
        ("- [a, b]\n\n- [churn]", 'line 3: ["churn"] has no synonym: add one, or remove the entry'),
        ("- [e-mail, E mail]", 'line 1: ["e-mail", "E mail"] has no synonym'),
        ("- {from: [a], to: [A]}", 'line 1: ["a"] has no synonym'),
        ("- []", "line 1: this list is empty: write words into it, or remove the entry"),
        ("- [a, [b]]", "line 1: a list is not text: write a word or a phrase"),
        ("- [a, {b: c}]", "line 1: a mapping is not text"),
        ("- &all [a, *all]", "line 1: a list is not text"),
        ('- [a, "b\\0"]', 'line 1: "b\\u0000" is not text'),
        ("- [a,\n   '']", 'line 2: "" has no word: write one, or remove it'),
        ("- [a, '?!']", 'line 1: "?!" has no word'),
        ("- {from: a, to: [b]}", 'line 1: "a" is not a list of words: put it in brackets'),
        ("- {from: [a]}", "line 1: the keys of this entry are not from and to: write {from: […], to: […]}, each once"),
        ("- {from: [a], to: [b], to: [c]}", "line 1: the keys of this entry are not from and to"),
        ("- {from: [a], into: [b]}", "line 1: the keys of this entry are not from and to"),
        ("- {from: [a], to: [b], [x]: [c]}", "line 1: the keys of this entry are not from and to"),
        ("- [a, b\n- [c", "line 2 is not YAML: "),
        ("- [a, b]\n---\n- [c, d]", "line 2 is not YAML: but found another document: correct the YAML there"),
        ("- [a, *b]", "line 1 is not YAML: found undefined alias"),
        ("- [a\x00, b]", "is not YAML: unacceptable character"),
    ],
)
def test_read__names_file_line_and_remedy(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_rules(file)
    assert str(raised.value).startswith(f"synonyms file {file}")
    assert message in str(raised.value)
    assert str(raised.value).isprintable()


def test_read__names_a_file_that_is_missing(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file .*: correct rag\.expansion\.synonyms"):
        read_rules(file)


@pytest.mark.parametrize("path", [Path("/"), Path("a\x00b")])
def test_read__names_a_path_that_is_no_file(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"synonyms file .* cannot be read: .*: correct") as raised:
        read_rules(path)
    assert str(raised.value).isprintable()


def test_read__names_a_file_that_is_no_text(file: Path) -> None:
    file.write_bytes(b"- [caf\xe9, bar]")
    with pytest.raises(ConfigError, match=r"is not YAML: .*: write it as UTF-8 text"):
        read_rules(file)


@given(data=st.binary() | st.text(alphabet="-[]{},: abfromt\n'&*!").map(str.encode))
def test_read__of_any_bytes_gives_rules_or_says_why_not(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(data)
    message = ""
    try:
        rules = read_rules(file)
    except ConfigError as error:
        rules, message = [], str(error)
    assert message.isprintable()
    assert all(rule.terms and rule.synonyms for rule in rules)
