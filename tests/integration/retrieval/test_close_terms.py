"""Close terms replace words that no chunk contains, and only those, for each reader by what that one may read."""

import random
from collections.abc import Iterator

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import EVERYONE, SearchResult
from kosmos_rag.retrieval.edits import edit_distance, single_edits
from tests.integration.variants import opened

SUBJECTS = """
    accounting backup calendar certificate checkout container contract customer dashboard database deadline
    delivery department directory discount encryption equipment exchange gateway holiday identity insurance
    inventory invoice keyboard language laptop licence location machine manager manual marketing meeting
    monitor network notebook office overtime password payment pension permission planning platform printer
    procedure product project purchase quality reception refund registry repository retention salary schedule
    security server shipment signature software storage supplier telephone template transport vacation
    warehouse workshop
""".split()  # noqa: SIM905 — a list of these would be a page
"""Each the only subject of a document."""
SENTENCE = "The rules about {} are on the page of the team that works with it."


@pytest.fixture(scope="module")
def lexical(shared_settings: Settings) -> Iterator[Engine]:
    with opened(shared_settings, {"rag.retrieval.semantic_weight": 0.0, "rag.chunking.min_size": 1}) as engine:
        yield engine


def _documents(**acl: tuple[str, ...]) -> list[SourceDocument]:
    return [
        SourceDocument(source=subject, data=SENTENCE.format(subject).encode(), acl=acl.get(subject, ("everyone",)))
        for subject in SUBJECTS
    ]


def _sources(result: SearchResult) -> list[str]:
    return [hit.source for hit in result.hits]


def test_words_with_one_typo__find_their_document(lexical: Engine, tenant_name: str) -> None:
    scope, dice = lexical.tenant(tenant_name), random.Random(24)
    scope.ingest(_documents())
    with_typo = {subject: dice.choice(list(single_edits(subject))) for subject in SUBJECTS}
    for _ in range(2):
        results = {subject: scope.search(f"the rules about {typo}", 5) for subject, typo in with_typo.items()}
        share = sum(subject in _sources(result) for subject, result in results.items()) / len(SUBJECTS)
        assert share >= 0.95
        assert f"no chunk contains {with_typo['password']!r}; chunks with 'password'" in results["password"].warnings[0]
        scope.indexes.build()


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("certifcates", "certificate"),  # an edit before the ending
        ("reposiotries", "repository"),
        ("encyrptoin", "encryption"),  # two edits
        ("direc", "directory"),  # a fragment
        ("Überstundn", "Überstunden"),
        ("паролъ", "пароль"),
        ("XJ44", "XJ4471"),
    ],
)
def test_close_terms__are_found(lexical: Engine, tenant_name: str, question: str, expected: str) -> None:
    scope = lexical.tenant(tenant_name, collection="simple")
    more = [
        SourceDocument(source=word, data=f"A page on {word}.".encode()) for word in ("Überstunden", "пароль", "XJ4471")
    ]
    scope.ingest([*_documents(), *more])
    assert _sources(scope.search(question, 1)) == [expected]


@pytest.mark.parametrize(
    "question", ["how to bake a contact", "many offices", "a manuals of lisa", "chocolate cake recipe"]
)
def test_words_of_the_language__have_no_close_terms(lexical: Engine, tenant_name: str, question: str) -> None:
    scope = lexical.tenant(tenant_name)
    close = SourceDocument(
        source="other", data=b"You may take the list that you choose, or rake the leaves. A made recipient."
    )
    scope.ingest([*_documents(), close])
    assert not scope.search(question, 5).warnings


def test_words_that_all_are_absent__have_no_close_terms(lexical: Engine, tenant_name: str) -> None:
    scope = lexical.tenant(tenant_name)
    scope.ingest(_documents())
    assert not scope.search("pasword retenton", 5).hits
    assert _sources(scope.search("rules for a pasword", 1)) == ["password"]
    assert _sources(scope.search("the pasword", 1)) == ["password"]


def test_exact_terms__have_no_close_terms(settings: Settings, lexical: Engine, tenant_name: str) -> None:
    scope = lexical.tenant(tenant_name)
    scope.ingest([*_documents(), SourceDocument(source="server room", data=b"Servers, servers: the sever of a serve.")])
    with opened(settings, {"rag.retrieval.semantic_weight": 0.0, "rag.retrieval.fuzzy": False}) as exact:
        for question in ("servers of the team", "a server", "sever", "the +printer", "the of", "XJ4472", "ab"):
            hits = scope.search(question, 10)
            assert hits.hits == exact.tenant(tenant_name).search(question, 10).hits
            assert not hits.warnings
        assert not exact.tenant(tenant_name).search("pasword", 10).hits


def test_hidden_chunks__neither_keep_close_terms_away_nor_give_them(lexical: Engine, tenant_name: str) -> None:
    lexical.tenant(tenant_name).ingest(_documents(password=("user:ann",), pension=("user:ann",)))
    twin = lexical.tenant(f"{tenant_name}-twin")
    twin.ingest(document for document in _documents() if document.source not in ("password", "pension"))
    reader = lexical.tenant(tenant_name, principals=(EVERYONE, "user:jo"))
    for question in ("password", "pasword", "pension", "pensions planing", "passwort schedul"):
        outcome, expected = reader.search(question, 10), twin.search(question, 10)
        assert (_sources(outcome), outcome.warnings) == (_sources(expected), expected.warnings)
        assert [hit.lexical_score for hit in outcome.hits] == [hit.lexical_score for hit in expected.hits]
    assert _sources(lexical.tenant(tenant_name, principals=(EVERYONE, "user:ann")).search("pasword", 1)) == ["password"]


def test_close_terms__are_found_where_the_stem_has_lost_its_accents(lexical: Engine, tenant_name: str) -> None:
    scope = lexical.tenant(tenant_name)
    scope.ingest([SourceDocument(source="hours", data="Überstunden werden bezahlt.".encode(), language="german")])
    assert _sources(scope.search("Überstundn", 1)) == ["hours"]


def test_edits__have_accents_in_a_word_with_accents() -> None:
    assert "café" not in set(single_edits("cafe")), "a chunk with an accent has the word without it too"
    assert {"überrall", "überéall"} <= set(single_edits("überall"))


def test_close_terms__are_shown_as_variants_of_the_word(lexical: Engine, tenant_name: str) -> None:
    scope = lexical.tenant(tenant_name)
    scope.ingest([SourceDocument(source="deploy", data=b"Deployments are described here, and the budget too.")])
    assert scope.search("deploymetns of the budgit described", 1).warnings == (
        "no chunk contains 'budgit'; chunks with 'budget' were searched",
        "no chunk contains 'deploymetns'; chunks with 'deployments' were searched",
    )


def test_edits__are_at_distance_one() -> None:
    dice = random.Random(1)
    for word in ("churn", "ab", "überall", "пароль"):
        edits = set(single_edits(word))
        assert all(edit_distance(word, edit, 2) == 1 for edit in edits)
        assert {word[1:], word[1] + word[0] + word[2:], word + word[0]} <= edits
    for _ in range(200):
        first, second = ("".join(dice.choices("abc", k=dice.randint(0, 6))) for _ in range(2))
        assert edit_distance(first, second, 9) == edit_distance(second, first, 9)
        assert edit_distance(first, second, 1) == min(2, edit_distance(first, second, 9))
        assert (edit_distance(first, second, 9) == 1) == (second in set(single_edits(first)))
