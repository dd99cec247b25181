"""Phrases, required and excluded terms bind both retrievers, in the tail and in segments, in prose and in code."""

import random
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Operators, SearchResult
from kosmos_rag.core.types.serialize import from_dict
from tests.integration.variants import opened

LANGUAGES = {"prose": "english", "code": "simple"}


@pytest.fixture
def both(settings: Settings) -> Iterator[Engine]:
    """An engine whose retrievers give all that may be given, and that packs every chunk."""
    retrieval = {"rag.retrieval.candidates": 1000, "rag.retrieval.similarity_threshold": -1.0}
    with opened(settings, {**retrieval, "indexes.unsegmented_chunks": 1, "indexes.vector": "none"}) as engine:
        yield engine


def _document(collection: str, source: str, text: str) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), language=LANGUAGES[collection])


_OPERATORS = {'"{}"': True, "+{}": True, '+"{}"': True, "-{}": False, '-"{}"': False}
"""How a term is marked, and whether a chunk must hold it or must not."""


def _holding(
    connection: psycopg.Connection, documents: Sequence[SourceDocument], languages: Sequence[str], words: str
) -> set[str] | None:
    """Sources whose text holds the words as a phrase, read in any of the languages; None where they mean nothing."""
    (terms,) = connection.execute(
        "SELECT min(numnode(phraseto_tsquery(g::regconfig, %s))) FROM unnest(%s::text[]) g", (words, list(languages))
    ).fetchone() or (0,)
    rows = connection.execute(
        "SELECT d.source FROM unnest(%s::text[], %s::text[], %s::text[]) d (source, language, text) "
        "WHERE EXISTS (SELECT FROM unnest(%s::text[]) g "
        "WHERE to_tsvector(d.language::regconfig, d.text) @@ phraseto_tsquery(g::regconfig, %s))",
        (
            [document.source for document in documents],
            [document.language for document in documents],
            [document.data.decode() for document in documents],
            list(languages),
            words,
        ),
    ).fetchall()
    return {source for (source,) in rows} if terms else None


def _allowed(
    connection: psycopg.Connection,
    documents: Sequence[SourceDocument],
    languages: Sequence[str],
    conditions: Sequence[tuple[str, bool]],
) -> set[str]:
    """Sources that hold all that is required and nothing that is excluded."""
    allowed = {document.source for document in documents}
    for words, required in conditions:
        holding = _holding(connection, documents, languages, words)
        if holding is not None:
            allowed = allowed & holding if required else allowed - holding
    return allowed


Conditions = list[tuple[str, bool]]
"""What is required (True) or excluded (False)."""


def _marked_question(dice: random.Random, words: Sequence[str]) -> tuple[str, set[str], Conditions, Conditions]:
    """A question of a plain word and some marked terms, what it names, its conditions, and those beside bare quotes."""
    parts, conditions, without_quotes = [dice.choice(words)], Conditions(), Conditions()
    required_words = set(parts)
    for mark in dice.sample(sorted(_OPERATORS), dice.randint(1, 3)):
        term = " ".join(dice.choices(words, k=dice.randint(1, 3) if '"' in mark else 1))
        parts.append(mark.format(term))
        if mark != '"{}"':
            without_quotes.append((term, _OPERATORS[mark]))
        if mark != '"{}"' or " " in term:
            conditions.append((term, _OPERATORS[mark]))
        if _OPERATORS[mark]:
            required_words |= set(term.split())
    return " ".join(parts), required_words, conditions, without_quotes


def test_operators__bind_both_retrievers_before_and_after_packing(
    both: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    dice = random.Random(13)
    words = ("revenue", "revenues", "net", "the", "runs", "running", "car", "of")
    documents = {
        where: [
            # Equal texts would be one hit.
            _document(where, f"{where}{n}.txt", " ".join([*dice.choices(words, k=dice.randint(2, 8)), f"{where}{n}"]))
            for n in range(40)
        ]
        for where in LANGUAGES
    }
    questions = [_marked_question(dice, words) for _ in range(40)]
    count = relaxed = 0
    with psycopg.connect(database.admin_url or "") as admin:
        for name, group in documents.items():
            both.tenant(tenant_name, collection=name).ingest(group)
        with_word = {
            word: set[str]().union(
                *(_holding(admin, documents[where], [LANGUAGES[where]], word) or () for where in LANGUAGES)
            )
            for word in words
        }
        for _ in range(2):
            for question, required_words, conditions, without_quotes in questions:
                with_any = set[str]().union(*(with_word[word] for word in required_words))
                for where, names in (*((name, [name]) for name in LANGUAGES), (None, list(LANGUAGES))):
                    selected = [document for name in names for document in documents[name]]
                    languages = [LANGUAGES[name] for name in names]
                    expected = _allowed(admin, selected, languages, conditions)
                    result = both.tenant(tenant_name, collection=where).search(question, 1000, syntax="operators")
                    count += len(expected)
                    if conditions != without_quotes:
                        # Those that hold what is in quotes come first: all other hits after the last of them.
                        assert {hit.source for hit in result.hits[: len(expected)]} == expected, question
                        expected = _allowed(admin, selected, languages, without_quotes)
                        relaxed += bool(expected)
                    assert {hit.source for hit in result.hits if hit.dense_rank} == expected, question
                    assert {hit.source for hit in result.hits if hit.lexical_rank} == expected & with_any, question
            both.tenant(tenant_name).indexes.build()
    assert count
    assert relaxed


def test_phrase__is_matched_in_stems_where_the_document_is_english(both: Engine, tenant_name: str) -> None:
    """By hand, as a reader would expect it: `net revenue` stands in `net revenues`, in prose and not in code."""
    texts = {
        "prose": {"a.txt": "Net revenues grew.", "b.txt": "Revenue, net of refunds.", "c.txt": "A net and a revenue."},
        "code": {"d.py": "net revenue", "e.py": "net revenues", "f.py": "revenue net"},
    }
    for where, group in texts.items():
        both.tenant(tenant_name, collection=where).ingest(
            _document(where, source, text) for source, text in group.items()
        )
    for _ in range(2):
        scope = both.tenant(tenant_name)
        assert {hit.source for hit in scope.search('"net revenue"', 2).hits} == {"a.txt", "d.py"}
        assert {hit.source for hit in scope.search('net -"net revenue"', 10).hits} >= {"b.txt", "c.txt", "e.py"}
        assert {hit.source for hit in scope.search("net +refunds", 10).hits} == {"b.txt"}
        scope.indexes.build()


def test_quotes__that_few_hits_hold_put_those_first(both: Engine, tenant_name: str) -> None:
    scope = both.tenant(tenant_name, collection="prose")
    texts = {"a.txt": "Net gain, net gain.", "b.txt": "A gain that is fair, by net.", "c.txt": "Fair net of gain."}
    scope.ingest(_document("prose", source, text) for source, text in texts.items())
    result = scope.search('gain "fair, net" -trial', 3)
    assert result.hits[0].source == "c.txt"
    assert {hit.source for hit in result.hits} == set(texts)
    assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)
    assert [list(hit.score_contributions)[-1] == "phrase" for hit in result.hits] == [True, False, False]
    assert result.warnings == ('1 chunk with "fair, net" first; put + before the quotes to have no others',)
    assert result.operators == Operators(phrases=("fair, net",), excluded=("trial",))
    assert [hit.source for hit in scope.search('gain "fair, net"', 1).hits] == ["c.txt"]
    assert not scope.search('gain "fair, net"', 1).warnings
    assert [hit.source for hit in scope.search('gain +"fair, net"', 3).hits] == ["c.txt"]
    assert scope.search('the "fair gain"', 3).warnings[0].startswith('no chunk contains "fair gain"')
    assert not scope.search('"fair gain" +absent', 10).hits


def test_signs__in_a_sentence_exclude_nothing_unless_the_syntax_says_so(both: Engine, tenant_name: str) -> None:
    scope = both.tenant(tenant_name, collection="prose")
    texts = {"a.txt": "The flag -web.port sets the port.", "b.txt": "Ports are open."}
    scope.ingest(_document("prose", source, text) for source, text in texts.items())
    for question in ("What does -web.port set?", "server run -web.port 80:80"):
        result = scope.search(question, 2)
        assert result.hits[0].source == "a.txt"
        assert result.operators == Operators(signed_text=("-web.port",))
        assert "text      -web.port (" in result.explain()
        assert from_dict(SearchResult, result.to_dict()).operators == result.operators
        assert [hit.source for hit in scope.search(question, 2, syntax="operators").hits] == ["b.txt"]
    assert {hit.source for hit in scope.context('port -"web.port"', syntax="plain").retrieval.hits} == set(texts)
    with pytest.raises(RequestError, match="syntax is 'lucene'; give one of auto, operators, plain"):
        scope.search("port", syntax="lucene")  # type: ignore[arg-type]
