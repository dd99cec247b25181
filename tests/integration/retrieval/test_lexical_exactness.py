"""The lexical retriever is exact wherever the chunks lie: in the tail, in one segment or in several, at every step."""

import math
import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import cast

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from rank_bm25 import BM25Okapi

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.text.accents import accented_words, fold_accents
from kosmos_rag.core.text.analysis import index_text, query_text
from kosmos_rag.core.text.compounds import find_parts
from kosmos_rag.core.types import SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.retrieval.blocks import cache as block_cache
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import HAS_MEMORY_VIEW, changed

LANGUAGES = {"prose": "english", "code": "simple", "law": "german"}
WORDS = (
    *("running", "runs", "cars", "the", "o'neil", "x\\y", "a@b.example", "state-of-the-art", "ёлка", "3.14", "rate"),
    *("getUserById", "XJ-4471-B", "XJ4471", "训练数据", "テスト", "การทดสอบ", "café", "cafe", "Zürich"),
    *("Krankenversicherung", "Krankenversicherungsbeitrag", "Beitrag", "Versicherung", "Kündigungsfristen", "FRISTEN"),
)
EVERYWHERE = "ubiquitous"
DEPTHS = (1, 3, 100)
_CHUNK_COUNTS: dict[tuple[str, str], dict[str, int]] = {}
"""Lexemes of the chunks that an oracle counted, by language and text: most stay from step to step."""


def _changed(settings: Settings, *, tail: int = 1, in_memory: bool = True) -> Settings:
    """Settings for the lexical retriever alone, as deep as the answer is long; every paragraph of a text is a chunk."""
    values = {
        "rag.chunking.min_size": 1,
        "rag.chunking.max_size": 40_000,
        "rag.retrieval.semantic_weight": 0.0,
        "rag.retrieval.candidates": 1,
        "rag.retrieval.top_k": 1,
        "rag.retrieval.max_question_chars": 100_000,
        "rag.retrieval.fold_copies": False,
        "rag.retrieval.fuzzy": False,
        "indexes.unsegmented_chunks": tail,
        "indexes.vector": "none",
    }
    return changed(settings, values if in_memory else {**values, "indexes.vector_cache_mb": 0})


def _embedder() -> HashingEmbedder:
    return HashingEmbedder(max_tokens=20_000)


@pytest.fixture
def keywords(settings: Settings) -> Iterator[Engine]:
    """An engine that asks the lexical retriever alone, and packs every chunk."""
    with Engine(_changed(settings), embedder=_embedder()) as opened:
        yield opened


class Oracle:
    """BM25 over everything that is stored for a tenant, in double precision, by PostgreSQL's own analysis."""

    def __init__(self, connection: psycopg.Connection, name: str) -> None:
        self._connection = connection
        tenant_id = (tenant(name).id,)
        chunks = connection.execute(
            "SELECT c.id, c.collection, d.source, c.chunk_index, c.text, d.language FROM kosmos.chunks c "
            "JOIN kosmos.documents d ON d.tenant_id = c.tenant_id AND d.id = c.document_id WHERE c.tenant_id = %s",
            tenant_id,
        ).fetchall()
        rows = [(*chunk[:5], self._count_chunk(chunk[5], chunk[4])) for chunk in chunks]
        self.texts = sorted((collection, source, ordinal, text) for _, collection, source, ordinal, text, _ in rows)
        self._chunks = [(key, where, counts) for key, where, _, _, _, counts in rows]
        # Floating point sums differ by their order: this is the corpus' own.
        ids = connection.execute("SELECT collection, lexeme, id FROM kosmos.lexemes WHERE tenant_id = %s", tenant_id)
        self._order = {(where, lexeme): number for where, lexeme, number in ids.fetchall()}

    def best(self, question: str, k: int, collection: str | None) -> list[tuple[uuid.UUID, float]]:
        """The best chunks with their scores; equal ones by id."""
        scored: list[tuple[uuid.UUID, float]] = []
        for where in LANGUAGES if collection is None else (collection,):
            chunks = [(key, bag) for key, its, bag in self._chunks if its == where]
            average = max(sum(sum(bag.values()) for _, bag in chunks), 1) / max(len(chunks), 1)
            message = self._count_question(LANGUAGES[where], question, {term for _, bag in chunks for term in bag})
            terms = sorted(message, key=lambda term: self._order.get((where, term), 0))
            holding = {term: sum(term in bag for _, bag in chunks) for term in terms}
            idf = {
                term: math.log(1 + (len(chunks) - n + 0.5) / (n + 0.5)) * message[term] for term, n in holding.items()
            }
            for key, bag in chunks:
                norm = 1.5 * (1 - 0.5 + 0.5 * (sum(bag.values()) / average))
                if norms := [bag[term] * 2.5 / (bag[term] + norm) * idf[term] for term in terms if term in bag]:
                    scored.append((key, sum(norms)))
        return sorted(scored, key=lambda entry: (-entry[1], entry[0]))[:k]

    def _count_chunk(self, language: str, text: str) -> dict[str, int]:
        """Return the lexemes of a chunk; forms without accents and parts are added where it has no such lexeme."""
        if (language, text) not in _CHUNK_COUNTS:
            added = f"{accented_words(text)} {find_parts(text, language)}"
            _CHUNK_COUNTS[language, text] = self._count(language, added) | self._count(language, index_text(text))
        return _CHUNK_COUNTS[language, text]

    def _count_question(self, language: str, question: str, vocabulary: set[str]) -> dict[str, float]:
        """Return the lexemes of a question; both forms of a word with accents count half where chunks have both."""
        message: dict[str, float] = dict(self._count(language, query_text(question).text))
        for form, times in self._count(language, accented_words(question)).items():
            message[form] = max(message.get(form, 0), times / 2)
        for word, weight in list(message.items()):
            folded = fold_accents(word)
            # The German stemmer cuts the e of `cafe`, and not that of `café`.
            forms = [form for form in (folded, folded.removesuffix("e")) if form in message and form != word]
            if folded == word or not forms:
                continue
            form = forms[0]
            if form not in vocabulary:
                del message[form]
            elif word in vocabulary:
                message[word] = weight / 2
            else:
                message[form] = max(weight, message[form])
                del message[word]
        return message

    def _count(self, language: str, text: str) -> dict[str, int]:
        """Return the lexemes of a text with their frequencies."""
        statement = "SELECT lexeme, cardinality(positions) FROM unnest(to_tsvector(%s::regconfig, %s))"
        return dict(self._connection.execute(statement, (language, text)).fetchall())


def _answer(result: SearchResult) -> list[tuple[uuid.UUID, float | None]]:
    return [(hit.chunk_id, hit.lexical_score) for hit in result.hits]


def _document(collection: str, source: str, paragraphs: Sequence[str], **changes: object) -> SourceDocument:
    data = "\n\n".join(paragraphs).encode()
    return SourceDocument(source=source, data=data, language=LANGUAGES[collection], **changes)  # type: ignore[arg-type]


def _paragraph(words: list[tuple[str, int]]) -> str:
    return " ".join([EVERYWHERE, *(word for word, count in words for _ in range(count))])


_WORD = st.tuples(st.sampled_from(WORDS), st.sampled_from([1, 1, 1, 2, 7, 254, 255, 300]))
_NO_TERMS = st.sampled_from(["!!!", "— …"])
_PARAGRAPHS = st.lists(st.lists(_WORD, max_size=4).map(_paragraph) | _NO_TERMS, min_size=1, max_size=5)
_COLLECTION = st.sampled_from(sorted(LANGUAGES))
_NAMES = ("a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt")


class Corpora(RuleBasedStateMachine):
    """Two collections of a tenant that change in every way there is; after each step the answers are the oracle's."""

    def __init__(self, engines: Sequence[Engine], admin: psycopg.Connection, *, in_memory: bool) -> None:
        super().__init__()
        self._engines = engines
        self._in_memory = in_memory
        self._admin = admin
        self._tenant = f"t{uuid.uuid4().hex}"
        self._stored: dict[tuple[str, str], list[str]] = {}

    @initialize(seed=st.integers(0, 2**32), packed=st.booleans())
    def begin(self, seed: int, *, packed: bool) -> None:
        self._dice = random.Random(seed)
        for collection in LANGUAGES:
            for names in (_NAMES[:3], _NAMES[3:5], _NAMES[5:]):
                words = [[(self._dice.choice(WORDS), self._dice.randint(1, 3)) for _ in range(4)] for _ in range(4)]
                self.publish(collection=collection, names=set(names), paragraphs=[_paragraph(line) for line in words])
                if packed:
                    self.pack(engine_number=0)

    @rule(collection=_COLLECTION, names=st.sets(st.sampled_from(_NAMES), min_size=1), paragraphs=_PARAGRAPHS)
    def publish(self, collection: str, names: set[str], paragraphs: list[str]) -> None:
        """New documents, and others that are replaced or published again unchanged."""
        scope = self._engines[0].tenant(self._tenant, collection=collection)
        texts = {name: [*paragraphs[number:], *paragraphs[:number]] for number, name in enumerate(sorted(names))}
        report = scope.ingest(_document(collection, name, text) for name, text in texts.items())
        assert report.failed == ()
        self._stored |= {(collection, name): text for name, text in texts.items()}

    @precondition(lambda self: self._stored)
    @rule(data=st.data(), count=st.integers(1, 3))
    def delete(self, data: st.DataObject, count: int) -> None:
        collection, _ = data.draw(st.sampled_from(sorted(self._stored)))
        names = sorted(name for where, name in self._stored if where == collection)[:count]
        assert self._engines[0].tenant(self._tenant, collection=collection).delete(names) == len(names)
        for name in names:
            del self._stored[collection, name]

    @rule(engine_number=st.integers(0, 2))
    def pack(self, engine_number: int) -> None:
        self._engines[engine_number].tenant(self._tenant).indexes.build()

    @rule()
    def merge(self) -> None:
        self._engines[2].tenant(self._tenant).indexes.rebuild()

    @invariant()
    def answers_are_the_oracles(self) -> None:
        oracle = Oracle(self._admin, self._tenant)
        self._assert_stored(oracle)
        for k in DEPTHS:
            question = " ".join(self._dice.sample([EVERYWHERE, *WORDS], self._dice.randint(1, 4)))
            collection = self._dice.choice([None, *LANGUAGES])
            expected = oracle.best(question, k, collection)
            for engine in self._engines[:2]:  # each keeps postings of its own
                scope = engine.tenant(self._tenant, collection=collection)
                if self._in_memory:
                    scope.search("load")
                    assert scope._parts.background.drain(10)
                result = scope.search(question, k)
                if self._in_memory and expected:
                    assert result.retrievers["lexical"].plan == "exact, in memory"
                assert [hit.chunk_id for hit in result.hits] == [key for key, _ in expected]
                scores = [hit.lexical_score for hit in result.hits]
                assert scores == pytest.approx([score for _, score in expected], rel=1e-9)

    def _assert_stored(self, oracle: Oracle) -> None:
        expected = sorted(
            (collection, name, number, text)
            for (collection, name), paragraphs in self._stored.items()
            for number, text in enumerate(paragraphs)
        )
        assert oracle.texts == expected


@pytest.mark.emptied_database
@pytest.mark.timeout(600)
@pytest.mark.parametrize("worlds", [pytest.param(3, id="quick"), pytest.param(20, marks=pytest.mark.slow, id="long")])
@pytest.mark.parametrize("in_memory", [False, *[True] * HAS_MEMORY_VIEW])
def test_answers__are_the_oracles_after_every_step(
    settings: Settings,
    database: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
    worlds: int,
    *,
    in_memory: bool,
) -> None:
    monkeypatch.setattr(block_cache, "MISSES", 1)
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(_changed(settings, tail=tail, in_memory=in_memory), embedder=_embedder()))
            for tail in (1, 3, 8)
        ]
        admin = stack.enter_context(psycopg.connect(database.admin_url or "", autocommit=True))
        run_state_machine_as_test(
            cast("type[RuleBasedStateMachine]", partial(Corpora, engines, admin, in_memory=in_memory)),
            settings=hypothesis_settings(
                max_examples=worlds,
                stateful_step_count=14,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )


def _answers(engine: Engine, name: str, questions: Sequence[str]) -> list[list[tuple[uuid.UUID, float | None]]]:
    scopes = [engine.tenant(name, collection=collection) for collection in (None, *LANGUAGES)]
    return [_answer(scope.search(question, k)) for scope in scopes for question in questions for k in (1, 10, 1000)]


def _segments(engine: Engine, name: str) -> list[int]:
    """How many chunks each segment of the prose holds, oldest first."""
    status = engine.tenant(name).indexes.status()
    return [entry.rows for entry in status if entry.kind == "segment" and entry.collection == "prose"]


@pytest.mark.slow
def test_scores__are_the_same_to_the_last_bit_wherever_the_chunks_lie(keywords: Engine, tenant_name: str) -> None:
    dice = random.Random(5)
    words = [f"w{number}" for number in range(40)]
    batches = [
        [
            _document(where, f"{where}{size}-{n}.txt", [" ".join(dice.choices(words, k=dice.randint(1, 60)))])
            for where in LANGUAGES
            for n in range(size)
        ]
        for size in (80, 30, 10, 3)
    ]
    questions = [" ".join(dice.choices(words, k=dice.randint(1, 12))) for _ in range(12)]

    def publish(*, packed: bool) -> None:
        """Equal content gets equal ids, and in equal batches equal places of its words in every sum."""
        for batch in batches:
            for where in LANGUAGES:
                documents = [document for document in batch if document.source.startswith(where)]
                assert keywords.tenant(tenant_name, collection=where).ingest(documents).new == len(documents)
            if packed:
                keywords.tenant(tenant_name).indexes.build()

    publish(packed=False)
    in_the_tail = _answers(keywords, tenant_name, questions)
    assert any(in_the_tail)
    for where in LANGUAGES:
        scope = keywords.tenant(tenant_name, collection=where)
        scope.delete(scope.sources())
    keywords.tenant(tenant_name).indexes.rebuild()

    publish(packed=True)
    assert _segments(keywords, tenant_name)[-4:] == [80, 30, 10, 3]
    assert _answers(keywords, tenant_name, questions) == in_the_tail
    keywords.tenant(tenant_name).indexes.rebuild()
    assert _segments(keywords, tenant_name) == [123]
    assert _answers(keywords, tenant_name, questions) == in_the_tail


class _RankBM25(BM25Okapi):
    """rank-bm25 with our parameters and Lucene's inverse document frequency."""

    def __init__(self, corpus: Sequence[list[str]]) -> None:
        super().__init__(corpus, k1=1.5, b=0.5)

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {word: float(np.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5))) for word, n in nd.items()}


def test_packed_scores__are_those_of_rank_bm25(keywords: Engine, tenant_name: str) -> None:
    """Words that no stemmer changes, so that the words of a text are its terms."""
    dice = random.Random(8)
    words = [f"w{number}x" for number in range(3_000)]
    weights = [1 / (number + 1) for number in range(3_000)]
    texts = [
        " ".join([EVERYWHERE, *dice.choices(words, weights, k=dice.randint(0, 50)), *["tally"] * dice.randint(0, 4)])
        for _ in range(1_100)
    ]
    scope = keywords.tenant(tenant_name)
    scope.ingest(
        SourceDocument(source=f"{n}.txt", data=text.encode(), language="simple") for n, text in enumerate(texts)
    )
    scope.indexes.build()
    oracle = _RankBM25([text.split() for text in texts])
    for question in (EVERYWHERE, f"tally {EVERYWHERE}", " ".join(dice.sample(words, 2_000)), "w7x w900x w2999x"):
        result = scope.search(question, 1000)
        assert result.retrievers["lexical"].plan == "segments"
        scores = oracle.get_scores(question.split())
        expected = sorted((float(score) for score in scores if score > 0), reverse=True)[:1000]
        assert [hit.lexical_score for hit in result.hits] == pytest.approx(expected, abs=1e-3)
        for hit in result.hits:
            assert hit.lexical_score == pytest.approx(scores[int(hit.source.removesuffix(".txt"))], abs=1e-3)


def test_tail__is_read_on_where_the_average_has_risen_since_its_chunks_were_written(
    keywords: Engine, tenant_name: str
) -> None:
    """What is stored of the middle chunks bounds their scores no longer: .62 idf when written, 1.22 idf today.

    The long ones score .97 idf, .82 when written: so all the best are of middle length, and by the stored weights none.
    """
    scope = keywords.tenant(tenant_name)
    scope.ingest(_document("code", f"short{n}.txt", [f"gamma x{n}"]) for n in range(300))
    scope.ingest(_document("code", f"middle{n}.txt", [" ".join(["alpha"] + ["zz"] * 39)]) for n in range(100))
    words = " ".join(["alpha"] * 2 + ["zz"] * 318)
    scope.ingest(_document("code", f"long{n}.txt", [words]) for n in range(160))
    result = scope.search("alpha", 100)
    assert len(result.hits) == 100
    assert all(hit.source.startswith("middle") for hit in result.hits)
    assert [hit.chunk_id for hit in result.hits] == sorted(hit.chunk_id for hit in result.hits)
