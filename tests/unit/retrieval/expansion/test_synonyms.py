"""Which synonyms a text leads to."""

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.retrieval.expansion.synonyms import Rule, Synonyms
from kosmos_rag.retrieval.expansion.words import normalize_words


def _same(*terms: str) -> Rule:
    return Rule(terms=terms, synonyms=terms)


CHURN = _same("churn", "attrition", "customer loss")
HOT_DOG = _same("hot dog", "frankfurter")
DOG = _same("dog", "hound")


@pytest.mark.parametrize(
    ("rules", "text", "result"),
    [
        ([CHURN], "How is CHURN calculated?", ("attrition", "customer loss")),
        ([CHURN], "attrition", ("churn", "customer loss")),
        ([CHURN], "the customer-loss of May", ("churn", "attrition")),
        ([CHURN], "a customer at a loss", ()),
        ([CHURN], "churning, customer losses", ()),
        ([CHURN], "churn and customer loss", ("attrition",)),
        ([CHURN], "churn churn churn", ("attrition", "customer loss")),
        ([CHURN], "", ()),
        ([], "churn", ()),
        ([Rule(terms=("kpi",), synonyms=("key performance indicator",))], "kpi", ("key performance indicator",)),
        ([Rule(terms=("kpi",), synonyms=("key performance indicator",))], "key performance indicator", ()),
        ([_same("C++", "cpp")], "vitamin C", ()),
        ([_same("C++", "cpp")], "C++?", ("cpp",)),
    ],
)
def test_expand__finds_words_and_phrases(rules: list[Rule], text: str, result: tuple[str, ...]) -> None:
    assert Synonyms(rules).expand(text) == result


def test_expand__takes_the_longest_phrase_and_not_its_words() -> None:
    synonyms = Synonyms([DOG, HOT_DOG, _same("dog show", "parade")])
    assert synonyms.expand("a hot dog") == ("frankfurter",)
    assert synonyms.expand("a hot dog and a dog") == ("hound", "frankfurter")
    assert synonyms.expand("hot dog show") == ("frankfurter",)
    assert synonyms.expand("hot, then a dog show") == ("parade",)


def test_expand__goes_one_step() -> None:
    synonyms = Synonyms([_same("river", "bank"), _same("bank", "money")])
    assert synonyms.expand("river") == ("bank",)
    assert synonyms.expand("bank") == ("river", "money")


def test_expand__ends_where_rules_go_in_a_circle() -> None:
    circle = [Rule(terms=(item,), synonyms=(other,)) for item, other in (("a", "b"), ("b", "c"), ("c", "a"))]
    assert Synonyms(circle).expand("a") == ("b",)


def test_expand__gives_each_once_in_the_order_of_the_file() -> None:
    synonyms = Synonyms([_same("z", "revenue"), _same("income", "Revenue", "z"), _same("a", "income")])
    assert synonyms.expand("Revenue a") == ("z", "income")
    assert synonyms.expand("z") == ("revenue", "income")


def test_load__reads_the_example() -> None:
    synonyms = Synonyms.load(Path(__file__).parents[4] / "examples" / "synonyms.yaml")
    assert synonyms.expand("how is churn calculated") == ("attrition", "customer loss")
    assert synonyms.expand("our KPI") == ("key performance indicator",)
    assert synonyms.expand("key performance indicator") == ()


def _measure_expansion_s(entries: int, question: str) -> float:
    """Return the least processor time of five expansions by that many entries."""
    synonyms = Synonyms(_same(f"word{i}", f"two words {i}", f"third{i}") for i in range(entries))
    times = []
    for _ in range(5):
        started = time.thread_time()
        result = synonyms.expand(question)
        times.append(time.thread_time() - started)
    assert len(result) > 700
    return min(times)


def test_expand__of_a_long_question_over_many_entries_is_fast() -> None:
    question = " ".join(f"plain{i} word{i} two words" for i in range(500))[:10_000]
    # A look at each entry would take twenty times as long.
    assert _measure_expansion_s(10_000, question) < 5 * _measure_expansion_s(500, question)


WORD = st.sampled_from(["a", "b", "c", "d", "é"])
PHRASE = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
PHRASES = st.lists(PHRASE, min_size=1, max_size=4).map(tuple)
RULES = st.lists(st.one_of(PHRASES.map(lambda terms: _same(*terms)), st.builds(Rule, terms=PHRASES, synonyms=PHRASES)))


@given(RULES, st.text(alphabet="abcdé -\n.+") | st.text())
def test_expand__of_any_text_adds_what_it_does_not_say(rules: list[Rule], text: str) -> None:
    result = Synonyms(rules).expand(text)
    message = normalize_words(text)
    for term in result:
        phrase = normalize_words(term)
        assert all(message[at : at + len(phrase)] != phrase for at in range(len(message)))
    assert len(result) == len({tuple(normalize_words(term)) for term in result})


@given(st.lists(PHRASES, min_size=1))
def test_expand__is_symmetrical_for_lists(entries: list[tuple[str, ...]]) -> None:
    synonyms = Synonyms(_same(*terms) for terms in entries)
    for terms in entries:
        for item, other in itertools.permutations(set(terms), 2):
            assert other in synonyms.expand(item) or f" {other} " in f" {item} "


@given(RULES, PHRASE)
def test_expand__of_a_phrase_is_what_its_rules_name(rules: list[Rule], phrase: str) -> None:
    synonyms = [term for rule in rules if phrase in rule.terms for term in rule.synonyms]
    if any(phrase in rule.terms for rule in rules):
        new = {term for term in synonyms if f" {term} " not in f" {phrase} "}
        assert set(Synonyms(rules).expand(phrase)) == new
