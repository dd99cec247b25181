"""Retrieval against a real database: the retrievers against oracles, the account, and questions meant to break it."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import psycopg
import pytest
from rank_bm25 import BM25Okapi

from kosmos_rag import Engine, Filter, KosmosError, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text import bm25
from kosmos_rag.core.text.analysis import index_text, query_text
from kosmos_rag.core.types import SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened


class Oracle(BM25Okapi):
    """rank-bm25 with our parameters and Lucene's inverse document frequency."""

    def __init__(self, corpus: Sequence[list[str]]) -> None:
        super().__init__(corpus, k1=bm25.K1, b=bm25.B)

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {word: float(np.log(1 + (self.corpus_size - n + 0.5) / (n + 0.5))) for word, n in nd.items()}


def _analysed(url: str, texts: Sequence[str]) -> list[list[str]]:
    """Each text's lexemes with repetitions, by PostgreSQL's own analysis."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT t.n, u.lexeme, cardinality(u.positions) FROM unnest(%s::text[]) WITH ORDINALITY t (text, n), "
            "unnest(to_tsvector('english', t.text)) u",
            (list(texts),),
        ).fetchall()
    bags: list[list[str]] = [[] for _ in texts]
    for number, lexeme, count in rows:
        bags[number - 1] += [lexeme] * count
    return bags


def _assert_equals_oracle(engine: Engine, url: str, name: str, texts: Sequence[str], questions: Sequence[str]) -> None:
    """Every lexical score and rank is the oracle's, to 1e-3. `texts` are the chunks in the order of their sources."""
    oracle = Oracle(_analysed(url, texts))
    scope = engine.tenant(name)
    for question, terms in zip(questions, _analysed(url, questions), strict=True):
        expected = oracle.get_scores(terms)
        result = scope.search(question, 1000)
        lexical = {hit.title: hit.lexical_score for hit in result.hits if hit.lexical_score is not None}
        expected_scores = {f"d{number:05}": score for number, score in enumerate(expected) if score > 0}
        assert set(lexical) <= set(expected_scores)
        assert len(lexical) == min(result.retrievers["lexical"].requested, len(expected_scores))
        for title, score in lexical.items():
            assert score == pytest.approx(expected_scores[title], abs=1e-3)
        cut = min(lexical.values(), default=0)
        assert all(score <= cut + 1e-3 for title, score in expected_scores.items() if title not in lexical)


def _texts(texts: Sequence[str]) -> list[SourceDocument]:
    return [SourceDocument(source=f"d{n:05}", title=f"d{n:05}", data=text.encode()) for n, text in enumerate(texts)]


def test_lexical_retriever__equals_the_oracle_while_documents_of_other_lengths_come_and_go(
    engine: Engine, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, tenant_name: str
) -> None:
    """The chunks were saturated with many averages: the two steps must still give exact scores and a complete top."""
    monkeypatch.setattr("kosmos_rag.ingestion.document.ChunkText.header", "")
    dice = random.Random(11)
    words = [f"w{number}x" for number in range(300)]
    weights = [1 / (number + 1) for number in range(300)]
    scope = engine.tenant(tenant_name)
    texts: list[str] = []
    for length in (4, 60, 10, 90, 40):
        texts += [" ".join(dice.choices(words, weights, k=dice.randint(length, length * 2))) for _ in range(120)]
        scope.ingest(_texts(texts))
        questions = [" ".join(dice.choices(words, k=dice.randint(1, 6))) for _ in range(8)]
        _assert_equals_oracle(engine, database.admin_url or "", tenant_name, texts, questions)


def test_lexical_retriever__asks_again_until_the_top_is_complete(
    engine: Engine, settings: Settings, tenant_name: str
) -> None:
    """A corpus whose early chunks were saturated for another length: the first pool cannot be trusted."""
    scope = engine.tenant(tenant_name)
    scope.ingest(_texts([f"alpha short{n}" for n in range(600)]))
    scope.ingest(
        SourceDocument(source=f"long{n}", data=("alpha " + " ".join(f"x{n}y{m}" for m in range(300))).encode())
        for n in range(40)
    )
    result = scope.search("alpha", 100)
    assert result.retrievers["lexical"].returned == 100


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_lexical_retriever__equals_the_oracle_on_every_cranfield_query(
    engine: Engine, database: DatabaseSettings, datasets: Path, monkeypatch: pytest.MonkeyPatch, tenant_name: str
) -> None:
    monkeypatch.setattr("kosmos_rag.ingestion.document.ChunkText.header", "")
    folder = datasets / "cranfield"
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    questions = [json.loads(line)["text"] for line in (folder / "queries.jsonl").read_text().splitlines()]
    engine.tenant(tenant_name).ingest(
        _texts([text for entry in corpus if (text := f"{entry['title']} {entry['text']}".strip())])
    )
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT c.id, c.text FROM kosmos.chunks c WHERE tenant_id = %s ORDER BY c.id", [tenant(tenant_name).id]
        ).fetchall()
    oracle = Oracle(_analysed(database.admin_url or "", [index_text(text) for _, text in rows]))
    place = {key: number for number, (key, _) in enumerate(rows)}
    analysed = _analysed(database.admin_url or "", [query_text(question).text for question in questions])
    for question, terms in zip(questions, analysed, strict=True):
        expected = oracle.get_scores(terms)
        result = engine.tenant(tenant_name).search(question, 100)
        if any(warning.startswith("no chunk contains") for warning in result.warnings):
            continue  # close terms have scores, and the oracle does not know them
        lexical = [hit for hit in result.hits if hit.lexical_rank is not None]
        assert lexical
        for hit in lexical:
            assert hit.lexical_score == pytest.approx(expected[place[hit.chunk_id]], abs=1e-3)
        # The retriever's own cut: nothing better was left out.
        best = np.sort(expected)[::-1][: result.retrievers["lexical"].returned]
        assert max(hit.lexical_score or 0 for hit in lexical) == pytest.approx(best[0], abs=1e-3)


def test_dense_retriever__equals_a_scan_in_numpy(engine: Engine, tenant_name: str) -> None:
    dice = random.Random(3)
    texts = [" ".join(dice.choices("abcdefghijklmnopqrst", k=6)) + f" n{n}" for n in range(300)]
    scope = engine.tenant(tenant_name)
    scope.ingest(_texts(texts))
    embedder = HashingEmbedder()
    vectors = embedder.embed(texts)  # the titles are the sources' names, and say nothing
    for question in ("a b c", "q", "t s r q p"):
        cosine = vectors @ embedder.embed_query(question)
        result = scope.search(question, 100)
        dense = sorted((h for h in result.hits if h.dense_rank), key=lambda hit: hit.dense_rank or 0)
        for hit in dense:
            assert hit.dense_score == pytest.approx(cosine[int(hit.title[1:])], abs=2e-3)  # half precision
        assert [hit.dense_rank for hit in dense] == sorted(hit.dense_rank or 0 for hit in dense)


@pytest.fixture
def library(engine: Engine, tenant_name: str) -> Engine:
    """A tenant with five documents about different things."""
    engine.tenant(tenant_name).ingest(
        [
            SourceDocument(source="/kb/churn.md", data=b"# Churn\n\nAccounts that cancel.", metadata={"year": 2025}),
            SourceDocument(source="/kb/revenue.md", data=b"# Revenue\n\nMoney from invoices.", metadata={"year": 2026}),
            SourceDocument(source="/kb/deep/trial.md", data=b"# Trial\n\nFourteen days for free."),
            SourceDocument(source="/kb2/outage.md", data=b"# Outage\n\nThe pipeline is late."),
            SourceDocument(source="/kb_x/quota.md", data=b"# Quota\n\nHow much may be used."),
        ]
    )
    return engine


def _sources(result: SearchResult) -> set[str]:
    return {hit.source for hit in result.hits}


def test_retrieve__accounts_for_itself(library: Engine, tenant_name: str) -> None:
    result = library.tenant(tenant_name).search("Which accounts cancel?", 3)
    assert (result.question, result.requested, result.returned) == ("Which accounts cancel?", 3, 3)
    assert result.hits[0].source == "/kb/churn.md"
    assert result.hits[0].section == ("Churn",)
    assert [hit.rank for hit in result.hits] == [1, 2, 3]
    assert result.stages == ("embed", "plan", "dense", "lexical", "fuse", "fetch")
    assert set(result.timings_ms) == {*result.stages, "total"}
    assert sum(v for k, v in result.timings_ms.items() if k != "total") <= result.timings_ms["total"] + 0.1
    assert result.incomplete_reason is None
    assert result.retrievers["lexical"].requested == 100


def test_retrieve__says_why_fewer_came(library: Engine, tenant_name: str) -> None:
    result = library.tenant(tenant_name).search("accounts", 20)
    assert result.returned < 20
    assert result.incomplete_reason == "no other passage that the reader may read matches the question and the filter"
    assert library.tenant(f"{tenant_name}-nobody").search("accounts").incomplete_reason == "the tenant has no documents"


@pytest.mark.parametrize(
    ("where", "sources"),
    [
        (Filter(where={"metadata.year": 2025}), {"/kb/churn.md"}),
        (Filter(where={"metadata.year": "2025"}), set()),
        (Filter(sources=("/kb",)), {"/kb/churn.md", "/kb/revenue.md", "/kb/deep/trial.md"}),
        (Filter(sources=("/kb/",)), {"/kb/churn.md", "/kb/revenue.md", "/kb/deep/trial.md"}),
        (Filter(sources=("/kb_x",)), {"/kb_x/quota.md"}),
        (Filter(sources=("/kb/churn.md", "/kb2")), {"/kb/churn.md", "/kb2/outage.md"}),
        (Filter(sources=("/kb",), where={"metadata.year": 2026}), {"/kb/revenue.md"}),
        (Filter(sources=("/%",)), set()),
        (Filter(sources=("/kb%",)), set()),
    ],
)
def test_filter__lets_through(
    where: Filter, sources: set[str], settings: Settings, library: Engine, tenant_name: str
) -> None:
    assert _sources(library.tenant(tenant_name).search("churn revenue trial pipeline quota", 10, where)) <= sources
    lexical = library.tenant(tenant_name).search("cancel invoices fourteen pipeline used", 10, where)
    assert {hit.source for hit in lexical.hits if hit.lexical_rank} == sources


@pytest.mark.parametrize("question", ["what is it that we do?", "?! -- 💥 …", "§", "+ - * /"])
def test_question__of_stop_words_or_signs_only_is_answered_by_the_dense_leg(
    question: str, library: Engine, tenant_name: str
) -> None:
    result = library.tenant(tenant_name).search(question, 3)
    assert result.returned == min(3, result.retrievers["dense"].returned) > 0
    assert all(hit.dense_rank == hit.fused_rank and hit.score_contributions.keys() == {"dense"} for hit in result.hits)
    assert result.retrievers["lexical"].returned == 0
    assert result.retrievers["lexical"].reason == "the question has no term to look up: stop words and signs only"


@pytest.mark.parametrize("question", ["Сколько клиентов ушло?", "収益はいくらですか", "Wieviel Umsatz gab es?"])
def test_question__in_another_language_is_answered_by_the_dense_leg(
    question: str, library: Engine, tenant_name: str
) -> None:
    result = library.tenant(tenant_name).search(question, 3)
    assert result.returned == min(3, result.retrievers["dense"].returned) > 0
    assert result.retrievers["lexical"].returned == 0
    assert result.retrievers["lexical"].reason == "visible chunks with a term of the question: 0"


def test_word__counts_as_often_as_the_question_says_it(engine: Engine, tenant_name: str) -> None:
    """Of three documents of one length, two hold one word each and the third both."""
    scope = engine.tenant(tenant_name)
    texts = {"rate": "rate alpha beta", "churn": "churn alpha beta", "both": "churn rate beta"}
    scope.ingest(SourceDocument(source=name, title="-", data=text.encode()) for name, text in texts.items())

    def scores(question: str) -> dict[str, float | None]:
        return {hit.source: hit.lexical_score for hit in scope.search(question).hits}

    once, twice = scores("rate churn"), scores("rate rates churn")
    assert once["rate"] == pytest.approx(once["churn"])
    assert twice["churn"] == pytest.approx(once["churn"])
    assert twice["rate"] == pytest.approx(2 * (once["rate"] or 0))
    assert twice["both"] == pytest.approx((twice["rate"] or 0) + (twice["churn"] or 0))


@pytest.mark.parametrize(
    "question",
    [
        "'; DROP TABLE kosmos.chunks; --",
        "churn & !revenue | (trial <-> outage)",
        "churn:* & 'un''closed",
        "%(tenant_id)s %s %% \\ \" '",
        "{1:1}/2",
        "\u202echurn\u0000",
        "churn 💥 收入 ёж",
        "a" * 9999,
        "churn " * 1500,
        "--/* churn */",
    ],
)
def test_question__is_data_and_never_syntax(question: str, library: Engine, tenant_name: str) -> None:
    library.tenant(tenant_name).search(question, 3)
    assert len(library.tenant(tenant_name).documents()) == 5


@pytest.mark.parametrize("question", ["", "x" * 102_400])
def test_question__that_cannot_be_asked_is_refused(question: str, library: Engine, tenant_name: str) -> None:
    with pytest.raises(RequestError):
        library.tenant(tenant_name).search(question)


@pytest.mark.usefixtures("tenant_name")
@pytest.mark.parametrize("name", ["", "Acme", "a b", "a" * 64, "-a", "../a", "ä"])
def test_tenant__with_a_malformed_name_is_refused(name: str, engine: Engine) -> None:
    """Malformed names of tenants are refused."""
    with pytest.raises(RequestError, match="is malformed"):
        engine.tenant(name)


def test_retrieve__gives_the_same_order_every_time(library: Engine, tenant_name: str) -> None:
    scope = library.tenant(tenant_name)
    first = [(hit.chunk_id, hit.score) for hit in scope.search("accounts and invoices").hits]
    for _ in range(5):
        assert [(hit.chunk_id, hit.score) for hit in scope.search("accounts and invoices").hits] == first


def test_equal_chunks__are_a_hit_of_the_first_source_and_its_copies(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source=f"s{n:02}", title="same", data=b"the same words") for n in range(20))
    (hit,) = scope.search("words", 20).hits
    assert hit.source == "s00"
    assert {place.source for place in hit.also_in} == {f"s{n:02}" for n in range(1, 20)}


def test_chunks__that_differ_after_their_first_words_are_no_copies(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    opening = b"the notice period of an employment contract in the trade is "
    scope.ingest(
        SourceDocument(source=name, title="same", data=opening + end)
        for name, end in [("one", b"four weeks"), ("other", b"two months"), ("copy", b"four  weeks")]
    )
    result = {hit.source: [place.source for place in hit.also_in] for hit in scope.search("notice period", 20).hits}
    assert result == {"copy": ["one"], "other": []}


def test_similarity_threshold__drops_dense_candidates(settings: Settings, engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).ingest(
        [SourceDocument(source="a", data=b"alpha"), SourceDocument(source="b", data=b"beta")]
    )
    with opened(settings, {"rag.retrieval.similarity_threshold": 0.99}) as strict:
        result = strict.tenant(tenant_name).search("something else")
    assert result.returned == 0
    assert result.retrievers["dense"].reason == "chunks found: 2, 2 of them below similarity_threshold 0.99"


def test_context__joins_neighbours_and_its_quotes_are_the_documents_own(
    engine: Engine, settings: Settings, tenant_name: str
) -> None:
    text = "# Churn\n\n" + "\n\n\n".join(f"Paragraph {n} about churn. " + "word " * 30 for n in range(6))
    scope = engine.tenant(tenant_name)
    scope.ingest([SourceDocument(source="/kb/a.md", data=text.encode())])
    context = scope.context("churn", 6)
    assert len(context.passages) < len(context.retrieval.hits)
    for passage in context.passages:
        assert text[passage.citation.start : passage.citation.end] == passage.text


def test_retrieve__plans_index_scans_of_the_tenant_as_the_app_role(engine: Engine, database: DatabaseSettings) -> None:
    """With many tenants in a table no retriever may read the rows of others."""
    for number in range(30):
        engine.tenant(f"t{number}").ingest(
            SourceDocument(source=f"s{n}", data=f"words {n} of {number}".encode()) for n in range(40)
        )
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute("ANALYZE")
    plans: Counter[str] = Counter()
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant("t1").id, ["everyone"]))
        for table in ("chunks", "embeddings"):
            rows = connection.execute(
                f"EXPLAIN SELECT * FROM kosmos.{table} WHERE tenant_id = %s".encode(), (tenant("t1").id,)
            ).fetchall()
            plans.update(line for (text,) in rows for line in [text.strip()] if "Scan" in line)
    assert plans
    assert not any(line.startswith(("Seq Scan", "->  Seq Scan")) for line in plans), plans


@pytest.mark.own_database
def test_closed_engine__says_so(settings: Settings, tenant_name: str) -> None:
    engine = Engine(settings, embedder=HashingEmbedder())
    engine.tenant(tenant_name).search("x")
    engine.close()
    with pytest.raises(KosmosError, match="the engine is closed"):
        engine.tenant(tenant_name).search("x")


def test_code__that_one_chunk_has_is_the_first_hit(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    codes = [" ".join(f"code{number}" for number in range(start, start + 60)) for start in range(0, 12_000, 60)]
    scope.ingest(SourceDocument(source=f"s{n}", data=text.encode()) for n, text in enumerate(codes))
    assert scope.search("code7321", 5).hits[0].source == "s122"


def test_copies__the_valid_one_is_the_hit_on_the_reference_date(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    text = b"The notice period is three months."
    scope.ingest(
        [
            SourceDocument(source="a", title="same", data=text, metadata={"valid_until": "2998-12-31"}),
            SourceDocument(source="b", title="same", data=text),
        ]
    )
    hits = {year: scope.search("notice period", today=date(year, 1, 1)).hits for year in (2998, 2999)}
    assert {year: [hit.source for hit in hits[year]] for year in hits} == {2998: ["a"], 2999: ["b"]}
