"""Data, sums and goals of `make bench-scale`: a benchmark that measures the wrong thing is worse than none."""

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from benchmarks.scale.data import (
    NaturalData,
    ZipfData,
    embed_cached,
    list_sentences,
    nearest,
    normalise,
    split_sentences,
    windows,
)
from benchmarks.scale.load import Share, interleave, shares
from benchmarks.scale.measure import OURS, Prepared, Row, percentiles, recalls
from benchmarks.scale.peers import difference
from benchmarks.scale.plot import SEARCH, curves, label, plot
from benchmarks.scale.report import goal, show, to_dict
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.models.testing.hashing import HashingEmbedder

TOPICS, OF_TOPIC = 20, 30
SENTENCES = [f"sentence {number} of topic {number // OF_TOPIC}." for number in range(TOPICS * OF_TOPIC)]


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    """Sentences of one topic are near each other, and far from all others."""
    dice = np.random.default_rng(1)
    centres = np.eye(TOPICS, 32, dtype=np.float32).repeat(OF_TOPIC, axis=0)
    return normalise(centres + 0.05 * dice.standard_normal(centres.shape, dtype=np.float32))


@pytest.fixture(scope="module")
def natural(vectors: Vectors) -> NaturalData:
    return NaturalData(SENTENCES, vectors, {}, neighbours=OF_TOPIC)


@pytest.fixture(scope="module")
def zipf() -> ZipfData:
    return ZipfData(words=2_000, dimensions=64, clusters=20)


def _sentences(text: str) -> list[int]:
    """Numbers of the sentences that a chunk is made of."""
    return [int(part.split()[1]) for part in text.rstrip(".").split(". ")]


class TestNaturalData:
    def test_chunk__has_three_to_six_different_sentences_of_at_most_two_topics(self, natural: NaturalData) -> None:
        [(texts, _)] = natural.blocks(500, size=500, seed=1)
        topics = Counter[int]()
        for text in texts:
            numbers = _sentences(text)
            assert 3 <= len(numbers) <= 6
            of_topic = Counter(number // OF_TOPIC for number in numbers)
            topics[len(of_topic)] += 1
            if len(of_topic) == 1:
                assert len(set(numbers)) == len(numbers)
        assert set(topics) == {1, 2}

    def test_vector__is_the_normalised_mean_of_the_sentences(self, natural: NaturalData, vectors: Vectors) -> None:
        [(texts, result)] = natural.blocks(50, size=50, seed=1)
        assert result.dtype == np.float32
        for text, vector in zip(texts, result, strict=True):
            mean = vectors[_sentences(text)].mean(axis=0)
            np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


@pytest.mark.parametrize("kind", ["natural", "zipf"])
def test_blocks__follow_from_the_seed_and_add_up(kind: str, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(kind)
    blocks = list(data.blocks(130, size=50, seed=3))
    assert [len(texts) for texts, _ in blocks] == [50, 50, 30]
    for (texts, result), (again, same) in zip(blocks, data.blocks(130, size=50, seed=3), strict=True):
        assert result.shape == (len(texts), data.dimensions)
        assert texts == again
        np.testing.assert_array_equal(result, same)
    assert blocks[0][0] != next(data.blocks(130, size=50, seed=4))[0]
    assert blocks[0][0] != blocks[1][0]


class TestZipfData:
    def test_words__are_as_frequent_as_their_rank_says(self, zipf: ZipfData) -> None:
        [(texts, _)] = zipf.blocks(1_000, size=1_000, seed=1)
        assert {len(text.split()) for text in texts} == set(range(60, 101))
        counts = [count for _, count in Counter(word for text in texts for word in text.split()).most_common()]
        assert counts[0] / counts[50] == pytest.approx(53.7 / 2.7, rel=0.2)

    def test_vectors__have_near_neighbours(self, zipf: ZipfData) -> None:
        [(_, result)] = zipf.blocks(400, size=400, seed=1)
        np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1, atol=1e-5)
        closeness = result @ result.T
        np.fill_diagonal(closeness, -1)
        assert 0.5 < closeness.max(axis=1).mean() < 0.9
        assert abs(np.median(closeness)) < 0.1

    def test_questions__are_short_and_have_vectors(self, zipf: ZipfData) -> None:
        assert len(zipf.questions) == 250
        assert {len(question.split()) for question in zipf.questions} == set(range(8, 13))
        assert {vector.shape for vector in zipf.questions.values()} == {(64,)}


class TestSentences:
    def test_sentences__are_those_of_five_to_sixty_words_once(self, tmp_path: Path) -> None:
        (tmp_path / "qrels").mkdir()
        (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
        (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a question"}')
        text = "One is too short. The second has quite  enough words!\nThe second has quite enough words! " + "so " * 61
        documents = [{"_id": "1", "title": "A title of just five", "text": text}, {"_id": "2", "text": text}]
        (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
        assert list_sentences([tmp_path]) == ["A title of just five", "The second has quite enough words!"]

    def test_split__holds_one_of_twenty_out(self) -> None:
        tuned, held_out = split_sentences(SENTENCES)
        assert len(held_out) == len(SENTENCES) // 20
        assert sorted(tuned + held_out) == sorted(SENTENCES)

    def test_windows__are_neighbouring_words_of_one_sentence(self) -> None:
        sentences = [
            " ".join(f"w{number}x{place}" for place in range(length)) for number, length in enumerate([7, 8, 30])
        ]
        result = windows([*sentences, 'a , b . "c" ; -d : e ! f ( g ) h'], 10)
        assert len(result) == 3
        assert "a b c d e f g h" in result
        for question in result:
            assert 8 <= len(question.split()) <= 12
            assert any(question in sentence for sentence in sentences) or question == "a b c d e f g h"

    def test_embed_cached__asks_the_model_once_for_the_same_texts(self, tmp_path: Path) -> None:
        class Counting(HashingEmbedder):
            calls = 0

            def embed(self, texts: Sequence[str]) -> Vectors:
                self.calls += 1
                return super().embed(texts)

        model = Counting()
        first = embed_cached(["one", "two"], model, tmp_path)
        np.testing.assert_array_equal(embed_cached(["one", "two"], model, tmp_path), first)
        assert model.calls == 1
        embed_cached(["one", "three"], model, tmp_path)
        assert model.calls == 2

    def test_nearest__is_the_true_neighbourhood(self, vectors: Vectors) -> None:
        result = nearest(vectors, OF_TOPIC)
        assert all({number // OF_TOPIC for number in row} == {index // OF_TOPIC} for index, row in enumerate(result))


class TestTenants:
    @pytest.mark.parametrize("chunks", [2_000, 100_000, 1_000_000])
    def test_shares__add_up(self, chunks: int) -> None:
        tenants = shares(chunks)
        assert sum(share.chunks for share in tenants) == chunks
        assert [share.chunks / chunks for share in tenants] == [0.001, 0.01, 0.1, 0.5, 0.389]

    def test_interleave__spreads_each_tenant_over_the_whole(self, natural: NaturalData) -> None:
        tenants = [Share(tenant="small", chunks=100, percent=2), Share(tenant="large", chunks=5_005, percent=98)]
        order = [(share.tenant, len(texts)) for share, (texts, _) in interleave(natural, tenants)]
        assert {size for name, size in order if name == "small"} == {10}
        assert sum(size for name, size in order if name == "large") == 5_005
        places = [place / len(order) for place, (name, _) in enumerate(order) if name == "small"]
        assert min(places) < 0.2
        assert max(places) > 0.8


class TestFigures:
    def test_percentiles__of_a_hundred_and_one_times(self) -> None:
        assert percentiles([float(number) for number in range(101)]) == {"p50": 50, "p95": 95, "p99": 99}

    def test_recalls__count_what_both_have_among_the_first(self) -> None:
        keys = [uuid.uuid4() for _ in range(150)]
        exact = [keys[:100], keys[:100]]
        result = [keys[:100], [*keys[:9], *keys[100:150], *keys[9:50]]]
        assert recalls(result, exact) == {"recall_10": 0.95, "recall_100": 0.75}
        assert recalls([keys[:3]], [keys[:3]]) == {"recall_10": 1, "recall_100": 1}

    def test_difference__is_the_largest_relative_one(self) -> None:
        assert difference([[2.0, 1.0], []], [[2.0, 1.25], []]) == pytest.approx(0.2)
        assert difference([[2.0]], [[2.0, 1.0]]) == float("inf")

    def test_prepared__gives_its_vectors_and_refuses_other_texts(self) -> None:
        vector = np.full(16, 0.25, dtype=np.float32)
        embedder = Prepared({"known": vector}, 16)
        np.testing.assert_array_equal(embedder.embed(["known"]), vector[None])
        with pytest.raises(KeyError, match="other"):
            embedder.embed_query("other")


def _row(retriever: str, chunks: int, **changes: object) -> Row:
    share = Share(tenant="half", chunks=chunks, percent=50)
    values = {"way": OURS, "plan": "ivfflat", "p50": 3.0, "p95": 5.0, "p99": 9.0, **changes}
    return Row(retriever=retriever, share=share, **values)  # type: ignore[arg-type]


class TestGoals:
    @pytest.mark.parametrize(
        ("retriever", "chunks", "plan", "p50"),
        [
            ("lexical", 50_000, "", 4),
            ("lexical", 50_001, "", 12),
            ("lexical", 1_000_000, "", 25),
            ("dense", 100_000, "exact scan", 10),
            ("dense", 500_000, "ivfflat, probes 40", 40),
            ("dense", 500_000, "hnsw, ef 400", 8),
            ("both", 1_000_000, "", 40),
        ],
    )
    def test_goal__is_that_of_the_size(self, retriever: str, chunks: int, plan: str, p50: float) -> None:
        result = goal(_row(retriever, chunks, plan=plan))
        assert result is not None
        assert result.p50 == p50

    def test_goal__is_none_for_alternatives_and_beyond_the_sizes(self) -> None:
        assert goal(_row("lexical", 1_000, way="ts_rank_cd")) is None
        assert goal(_row("lexical", 1_000_001)) is None
        assert goal(_row("dense", 500_001)) is None

    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            (_row("lexical", 1_000, difference=1e-6), True),
            (_row("lexical", 1_000, difference=0.01), False),
            (_row("lexical", 1_000), False),
            (_row("lexical", 1_000, difference=0.0, p50=4.1), False),
            (_row("lexical", 1_000, difference=0.0, p50=9.0, in_retriever=3.9), True),
            (_row("lexical", 1_000, difference=0.0, p50=9.0, in_retriever=4.1), False),
            (_row("dense", 1_000, recall_10=0.99, recall_100=0.97), True),
            (_row("dense", 1_000, recall_10=0.99, recall_100=0.96), False),
            (_row("dense", 1_000, recall_10=0.98, recall_100=0.97), False),
            (_row("both", 1_000), True),
            (_row("both", 1_000, p99=151.0), False),
        ],
    )
    def test_met__asks_for_all_of_it(self, row: Row, *, expected: bool) -> None:
        assert to_dict(row)["met"] is expected


class TestTable:
    RESULT: ClassVar[dict[str, Any]] = {
        "chunks": 2_000,
        "data": "zipf",
        "questions": 40,
        "throughput": [
            {"clients": 8, "queries_per_s": 99.5, "p50": 80.0, "p95": 90.0, "p99": 95.0, "fairness": 0.9,
             "errors": {"StatementFailed": 3}},
        ],
        "load": {"chunks_per_s": 1_234},
        "indexes": [{"tenant": "half", "seconds": 4.5, "indexes": []}],
        "publishing": {"chunks": 1_000, "ratio": 1.19},
        "found": {"lexical": True, "dense": False},
        "maintenance": {
            "index_build": {"seconds": 2.0, "queries": 0, "ratio": None},
            "index_rebuild": {"seconds": 9.0, "queries": 300, "ratio": 1.31},
        },
        "storage": {"chunks": {"rows": 900.0, "indexes": 80.0}, "chunks.tsv": {"rows": 300.0}},
        "notes": ["pg_textsearch is not loaded on this server"],
    }  # fmt: skip

    def test_show__puts_every_figure_beside_its_goal(self) -> None:
        console = Console(width=190, record=True, file=StringIO())
        rows = [
            _row("both", 1_000, p99=151.0),
            _row("lexical", 1_000, way="ts_rank_cd", note="2 of 20 stopped at 30 s"),
            _row("lexical", 1_000, difference=1e-7, in_retriever=1.25),
        ]
        show(self.RESULT, rows, console)
        lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
        expected = [
            "lexical kosmos 50 % ivfflat 1,000 3.0 5.0 9.0 1.2 = bm25s p50 ≤ 4, exact yes",
            "lexical ts_rank_cd 50 % ivfflat; 2 of 20 stopped at 30 s 1,000 3.0 5.0 9.0",
            "both kosmos 50 % ivfflat 1,000 3.0 5.0 151.0 p50 ≤ 40, p99 ≤ 150 no",
            "8 99.5 80 90 95 0.9 3 StatementFailed",
            "indexes of tenant half built, s 4.5",
            "1,000 chunks into the largest tenant, by an empty one 1.19 ≤ 1.2 yes",
            "a new chunk is found by the dense retriever no at once no",
            "p50 during index_build, by quiet p50 (0 queries in 2 s) too quick to ask ≤ 1.3",
            "p50 during index_rebuild, by quiet p50 (300 queries in 9 s) 1.31 ≤ 1.3 no",
            "chunks 900 80 980",
            "chunks.tsv 300",
            "pg_textsearch is not loaded on this server",
        ]
        assert [line for line in lines if line in expected] == expected


class TestPlot:
    ROWS = (
        _row("dense", 1_000, way="shared ivfflat", recall_10=0.9),
        _row("dense", 2_000, p50=6.0, in_retriever=2.0),
        _row("dense", 100, way="shared ivfflat", recall_10=0.2),
        _row("dense", 1_000),
        _row("lexical", 1_000),
    )

    def test_curves__are_ordered_by_size_with_ours_first(self) -> None:
        result = curves(self.ROWS, "dense")
        assert list(result) == [OURS, SEARCH, "shared ivfflat"]
        assert result[SEARCH] == [(2_000, 2.0)]
        assert result[OURS] == [(1_000, 3.0), (2_000, 6.0)]
        assert [chunks for chunks, _ in result["shared ivfflat"]] == [100, 1_000]

    def test_label__names_the_recall_of_an_approximate_way(self) -> None:
        assert label(self.ROWS, "dense", "shared ivfflat") == "shared ivfflat (recall@10 0.20 to 0.90)"
        assert label(self.ROWS, "lexical", OURS) == OURS

    def test_plot__writes_an_image(self, tmp_path: Path) -> None:
        plot(self.ROWS, "two thousand chunks", tmp_path / "new" / "scale.png")
        assert (tmp_path / "new" / "scale.png").read_bytes().startswith(b"\x89PNG")
