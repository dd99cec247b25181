"""Expansion against a real database: synonyms of a file, and what a language model writes."""

import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import ConfigError, ModelError
from kosmos_rag.core.protocols import Message
from kosmos_rag.core.types import Expansion, SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import opened

# Of one length each, none holds a word of another: what the lexical retriever finds says which words it looked for.
TEXTS = {
    "d1": "churn grew monthly",
    "d2": "attrition fell yearly",
    "d3": "customer loss quarterly",
    "d4": "invoices paid late",
}
SYNONYMS = "- [churn, attrition, customer loss]\n"


def _ingest(engine: Engine, tenant_name: str, texts: Mapping[str, str] = TEXTS) -> None:
    engine.tenant(tenant_name).ingest(
        SourceDocument(source=source, title="-", data=text.encode()) for source, text in texts.items()
    )


Ask = Callable[..., SearchResult]


@pytest.fixture
def ask(settings: Settings, tmp_path: Path, tenant_name: str) -> Ask:
    """Ask an engine with a file of synonyms, and with these keys of `rag.expansion`."""

    def search(
        question: str, synonyms: str = SYNONYMS, texts: Mapping[str, str] = TEXTS, **keys: object
    ) -> SearchResult:
        file = tmp_path / "synonyms.yaml"
        file.write_text(synonyms)
        changes = {"synonyms": file, **keys}
        with opened(settings, {f"rag.expansion.{key}": value for key, value in changes.items()}) as engine:
            _ingest(engine, tenant_name, texts)
            return engine.tenant(tenant_name).search(question)

    return search


def _by_keywords(result: SearchResult) -> dict[str, float]:
    """Sources and scores of what the lexical retriever found, best first."""
    hits = sorted((hit for hit in result.hits if hit.lexical_rank), key=lambda hit: hit.lexical_rank or 0)
    return {hit.source: hit.lexical_score or 0.0 for hit in hits}


@pytest.mark.parametrize(
    ("question", "synonyms"),
    [
        ("churn", ("attrition", "customer loss")),
        ("Attrition?", ("churn", "customer loss")),
        ("the customer-loss", ("churn", "attrition")),
    ],
)
def test_synonyms__find_documents_that_say_it_in_other_words(
    question: str, synonyms: tuple[str, ...], ask: Ask
) -> None:
    result = ask(question)
    assert result.expansion == Expansion(synonyms=synonyms)
    assert set(_by_keywords(result)) == {"d1", "d2", "d3"}
    assert (result.stages[0], result.warnings, result.degraded_stages) == ("expand", (), ())
    assert set(result.retrievers) == {"dense", "lexical"}


def test_synonyms__of_a_phrase_need_all_of_it(ask: Ask) -> None:
    result = ask("customer")
    assert result.expansion == Expansion()
    assert set(_by_keywords(result)) == {"d3"}
    assert "expand" not in result.stages


def test_synonyms__of_a_mapping_go_one_way(ask: Ask) -> None:
    one_way = "- {from: [churn], to: [attrition]}\n"
    assert set(_by_keywords(ask("churn", one_way))) == {"d1", "d2"}
    assert set(_by_keywords(ask("attrition", one_way))) == {"d2"}


@pytest.mark.parametrize("question", ["+churn", '+"churn grew"', "churn +monthly"])
def test_synonyms__never_meet_what_is_required(question: str, ask: Ask) -> None:
    result = ask(question)
    assert "attrition" in result.expansion.synonyms
    assert {hit.source for hit in result.hits} == {"d1"}


def test_synonyms__come_after_a_phrase_in_quotes(ask: Ask) -> None:
    result = ask('"churn grew"')
    assert "attrition" in result.expansion.synonyms
    assert result.hits[0].source == "d1"
    assert set(_by_keywords(result)) == {"d1", "d2", "d3"}
    assert ["phrase" in hit.score_contributions for hit in result.hits] == [True, *[False] * (result.returned - 1)]


def test_synonyms__bring_nothing_that_is_excluded(ask: Ask) -> None:
    result = ask("churn -yearly")
    assert "attrition" in result.expansion.synonyms
    assert set(_by_keywords(result)) == {"d1", "d3"}
    assert "d2" not in {hit.source for hit in result.hits}


def test_synonyms__of_an_excluded_word_are_not_looked_for(ask: Ask) -> None:
    result = ask("invoices -churn")
    assert result.expansion == Expansion()
    assert set(_by_keywords(result)) == {"d4"}


@pytest.mark.parametrize("weight", [0.5, 0.2, 1.0])
def test_synonym__counts_for_its_weight_beside_the_word(weight: float, ask: Ask) -> None:
    """Both documents are of one length, and both words are in one of them: only the weight differs."""
    scores = _by_keywords(ask("churn", "- [churn, attrition]\n", synonym_weight=weight))
    assert scores["d2"] == pytest.approx(weight * scores["d1"], rel=1e-5)
    if weight < 1:
        assert list(scores) == ["d1", "d2"]


def test_synonym__of_no_weight_finds_nothing(ask: Ask) -> None:
    assert set(_by_keywords(ask("churn", synonym_weight=0.0))) == {"d1"}


@pytest.mark.parametrize(
    ("question", "synonyms"),
    [
        ("C++ templates", "- [C++, C]\n"),
        ("churns", "- [churns, churn, churning]\n"),
        ("churn invoice", "- [churn, invoices]\n"),
    ],
)
def test_synonym__that_the_question_says_in_another_form_is_not_counted_twice(
    question: str, synonyms: str, ask: Ask
) -> None:
    """The analysis knows no `++` and no endings: it makes one lexeme of both."""
    texts = {**TEXTS, "d5": "C templates everywhere"}
    plain = ask(question, "[]\n", texts)
    result = ask(question, synonyms, texts)
    assert result.expansion.synonyms
    assert _by_keywords(plain)
    assert _by_keywords(result) == _by_keywords(plain)


@pytest.mark.usefixtures("tenant_name")
@pytest.mark.parametrize("text", ["- [churn", "churn: attrition\n", "- [churn, '!']\n", None])
def test_synonyms_file__that_is_broken_is_refused_when_the_engine_is_built(
    text: str | None, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "synonyms.yaml"
    if text is not None:
        file.write_text(text)
    with (
        pytest.raises(ConfigError, match=r"synonyms file .*synonyms\.yaml"),
        opened(settings, {"rag.expansion.synonyms": file}),
    ):
        pytest.fail("an engine with a broken file was built")


class Writer:
    """A language model that writes what it was told to: for a passage, or other wordings."""

    name = "told"

    def __init__(self, *, wordings: str = "", passage: str = "") -> None:
        self.wordings = wordings
        self.passage = passage
        self.fails: set[str] = set()
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        kind = "passage" if messages[0].text.startswith("Write a passage") else "wordings"
        with self._lock:
            self.calls[kind] += 1
        if kind in self.fails:
            raise ModelError(f"the model has no {kind} today")
        yield self.passage if kind == "passage" else self.wordings


TWO = {"rag.expansion.queries": 2}
HYDE = {"rag.expansion.hyde": True}
WORDINGS = "attrition\ninvoices paid"


def test_a_retriever_of_no_weight__is_not_expanded_for(settings: Settings, tmp_path: Path, tenant_name: str) -> None:
    file = tmp_path / "synonyms.yaml"
    file.write_text(SYNONYMS)
    # No language model: none is needed.
    for keys in (
        {**HYDE, "rag.retrieval.semantic_weight": 0},
        {"rag.expansion.synonyms": file, "rag.retrieval.keyword_weight": 0},
    ):
        with opened(settings, keys) as engine:
            _ingest(engine, tenant_name)
            assert engine.tenant(tenant_name).search("churn").expansion == Expansion()


def _same_hits(result: SearchResult, other: SearchResult) -> bool:
    return (result.hits, result.retrievers) == (other.hits, other.retrievers)


def test_wordings__are_each_asked_as_well(settings: Settings, tenant_name: str) -> None:
    with opened(settings, TWO, language_model=Writer(wordings=WORDINGS)) as engine:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("churn")
    assert result.expansion == Expansion(wordings=("attrition", "invoices paid"))
    assert set(result.retrievers) == {"dense", "lexical", "dense 2", "lexical 2", "dense 3", "lexical 3"}
    assert (result.stages[0], result.degraded_stages) == ("expand", ())
    by_keywords = {
        hit.source: {name for name in hit.score_contributions if name.startswith("lexical")} for hit in result.hits
    }
    assert {source: names for source, names in by_keywords.items() if names} == {
        "d1": {"lexical"},
        "d2": {"lexical 2"},
        "d4": {"lexical 3"},
    }
    for hit in result.hits:
        assert hit.fused_score == pytest.approx(sum(hit.score_contributions.values()))
    # A hit of another wording says nothing of the question's own retrievers.
    assert {hit.source for hit in result.hits if hit.lexical_rank} == {"d1"}


def test_wordings__bring_in_what_the_question_does_not_find(settings: Settings, tenant_name: str) -> None:
    near = {"rag.retrieval.similarity_threshold": 0.3}
    with opened(settings, {**TWO, **near}, language_model=Writer(wordings=WORDINGS)) as engine:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("churn")
    with opened(settings, near) as plain:
        before = plain.tenant(tenant_name).search("churn")
    assert {hit.source for hit in before.hits} == {"d1"}
    assert {hit.source for hit in result.hits} == {"d1", "d2", "d4"}
    assert {name for hit in result.hits if hit.source == "d4" for name in hit.score_contributions} == {
        "dense 3",
        "lexical 3",
    }


def test_wordings__keep_to_what_the_question_requires_and_excludes(settings: Settings, tenant_name: str) -> None:
    with opened(settings, TWO, language_model=Writer(wordings=WORDINGS)) as engine:
        _ingest(engine, tenant_name)
        scope = engine.tenant(tenant_name)
        assert {hit.source for hit in scope.search("+churn").hits} == {"d1"}
        excluding = scope.search("churn -yearly -late")
    assert excluding.expansion.wordings == ("attrition", "invoices paid")
    assert {"d1"} <= {hit.source for hit in excluding.hits} <= {"d1", "d3"}


def test_passage__is_searched_like_with_the_mean_vector(settings: Settings, tenant_name: str) -> None:
    passage = "invoices that are paid late"
    with opened(settings, HYDE, language_model=Writer(passage=passage)) as engine:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("churn")
    with opened(settings, {}) as plain:
        before = plain.tenant(tenant_name).search("churn")
    assert result.expansion == Expansion(passage=passage)
    embedder = HashingEmbedder()
    mean = embedder.embed_query("churn") + embedder.embed_query(passage)
    mean /= np.linalg.norm(mean)
    scores = {hit.source: hit.dense_score for hit in result.hits if hit.dense_score is not None}
    assert scores["d4"] == pytest.approx(float(embedder.embed_query(f"-\n{TEXTS['d4']}") @ mean), abs=2e-3)
    assert scores["d4"] == max(scores.values())
    assert "d4" not in {hit.source for hit in before.hits if (hit.dense_score or 0) > 0.3}
    # Only the vectors are looked for: words that were made up find nothing.
    assert _by_keywords(result) == _by_keywords(before)


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        (TWO, "no other wordings: the model has no wordings today"),
        (HYDE, "no hypothetical passage: the model has no passage today"),
    ],
)
def test_language_model__that_fails_leaves_the_question_as_it_is(
    keys: Mapping[str, object], note: str, settings: Settings, tenant_name: str
) -> None:
    writer = Writer(wordings=WORDINGS, passage="x")
    writer.fails = {"wordings", "passage"}
    with opened(settings, keys, language_model=writer) as engine, opened(settings, {}) as plain:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("churn")
        assert _same_hits(result, plain.tenant(tenant_name).search("churn"))
    assert (result.expansion, result.warnings, result.degraded_stages) == (Expansion(), (note,), ("expand",))
    assert result.stages[0] == "expand"


def test_language_model__that_writes_nothing_of_use_is_named(settings: Settings, tenant_name: str) -> None:
    with opened(settings, TWO, language_model=Writer(wordings="1. Churn?\n")) as engine:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("churn")
    [note] = result.warnings
    assert note.startswith("no other wordings: language model 'told' wrote no other wording of the question")
    assert (result.expansion, result.degraded_stages) == (Expansion(), ("expand",))


def test_language_model__that_fails_at_one_thing_does_the_other(settings: Settings, tenant_name: str) -> None:
    writer = Writer(wordings=WORDINGS)
    writer.fails = {"passage"}
    with opened(settings, {**TWO, **HYDE}, language_model=writer) as engine:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("churn")
    assert result.expansion == Expansion(wordings=("attrition", "invoices paid"))
    assert result.warnings == ("no hypothetical passage: the model has no passage today",)
    assert result.degraded_stages == ("expand",)


@pytest.mark.usefixtures("tenant_name")
@pytest.mark.parametrize("keys", [TWO, HYDE])
def test_language_model__that_is_missing_is_said_when_the_engine_is_built(
    keys: Mapping[str, object], settings: Settings
) -> None:
    [key] = keys
    with (
        pytest.raises(ConfigError, match=f"{key} needs a language model; set language_model.url"),
        opened(settings, keys),
    ):
        pytest.fail("an engine without a language model was built")


def test_language_model__is_asked_once_a_question_and_again_after_an_error(
    settings: Settings, tenant_name: str
) -> None:
    writer = Writer(wordings=WORDINGS, passage="accounts that leave")
    writer.fails = {"wordings"}
    with opened(settings, {**TWO, **HYDE}, language_model=writer) as engine:
        scope = engine.tenant(tenant_name)
        assert scope.search("churn").degraded_stages == ("expand",)
        writer.fails = set()
        first = scope.search("churn")
        assert first.expansion == Expansion(wordings=("attrition", "invoices paid"), passage="accounts that leave")
        assert writer.calls == {"wordings": 2, "passage": 1}
        writer.fails = {"wordings", "passage"}
        assert scope.search("churn").expansion == first.expansion
        assert writer.calls == {"wordings": 2, "passage": 1}
        scope.search("churn rate")
        assert writer.calls == {"wordings": 3, "passage": 2}


@pytest.mark.parametrize(("cache_size", "calls"), [(0, 4), (1, 3), (2, 2)])
def test_language_model__what_it_wrote_is_kept_of_the_last_questions(
    cache_size: int, calls: int, settings: Settings, tenant_name: str
) -> None:
    writer = Writer(wordings=WORDINGS)
    with opened(settings, {**TWO, "rag.retrieval.query_embedding_cache": cache_size}, language_model=writer) as engine:
        for question in ("churn", "loss", "loss", "churn"):
            engine.tenant(tenant_name).search(question)
    assert writer.calls == {"wordings": calls}
