"""Models on ONNX Runtime, exported on first use to the cache folder."""

import hashlib
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ModelUnavailable, first_line
from kosmos_rag.core.extras import is_installed, require_extra
from kosmos_rag.models.download import require_local_models
from kosmos_rag.models.onnx_session import (
    MODEL_FILE,
    TOKENIZER_FILE,
    OnnxDescription,
    disable_telemetry,
    load_exported,
    load_session,
)

Kind = Literal["SentenceTransformer", "CrossEncoder"]
"""Class of sentence-transformers that a model is loaded with."""
Precision = Literal["full", "int8"]
"""Precision of the weights: unchanged, or 8-bit integers."""

logger = logging.getLogger(__name__)
_SCRATCH = ".export-"
_FORMAT = 2
"""Of what an export writes: models of an earlier format are exported again."""
_OPTIONS: dict[str, Any] = {"backend": "onnx", "device": "cpu"}
_PROVIDER = {"provider": "CPUExecutionProvider"}
_SAMPLES = ("Ninety days of notice.", "Größe: 12 µm (§ 3)", "The plan renews every year. " * 400, "")
_PAIRS = tuple((_SAMPLES[0], text) for text in _SAMPLES)
_OUTPUT_RANKS: dict[Kind, int] = {"SentenceTransformer": 3, "CrossEncoder": 2}
_TOLERANCE = 1e-4
_PACKAGES = ("onnxruntime", "optimum.onnxruntime")


def hub_options(models: ModelsSettings) -> dict[str, Any]:
    """Return the hub arguments of sentence-transformers classes."""
    return {
        "cache_folder": str(models.cache_dir) if models.cache_dir else None,
        "local_files_only": models.offline,
    }


def choose_backend(models: ModelsSettings) -> Literal["torch", "onnx"]:
    """Return the runtime of local models.

    `auto` is ONNX Runtime on a CPU where it is installed, otherwise PyTorch (docs/decisions/0038).
    """
    if models.backend == "auto":
        is_exact = models.torch_dtype == "float32"
        return "onnx" if models.device == "cpu" and is_exact and _is_installed() else "torch"
    return models.backend


def require_runtime(models: ModelsSettings) -> None:
    """Raise ModelUnavailable if the packages of local models are not installed."""
    require_local_models()
    if choose_backend(models) == "torch":
        return
    disable_telemetry()
    require_extra(
        "onnx", "models.backend = onnx", *_PACKAGES, alternative="set models.backend to torch", error=ModelUnavailable
    )


def load_onnx(kind: Kind, location: str, models: ModelsSettings, precision: Precision = "full") -> Any | None:
    """Load a model, exported to the cache folder on first use.

    Returns an OnnxModel, or an object of sentence-transformers where the model has modules that OnnxModel does not
    know. The result is None where PyTorch is to load it: the backend is torch, or it is auto and the model cannot be
    exported.

    Args:
        kind: what the model is loaded with.
        location: folder of the model, or its name on the hub.
        models: backend, cache folder and access to the hub.
        precision: of the weights.
    """
    if choose_backend(models) == "torch":
        return None
    try:
        return _load(kind, location, models, precision)
    # The libraries raise whatever their parts raise; a model that they do not know must still load.
    except Exception as error:
        if models.backend != "auto":
            raise
        logger.warning(
            "model %s cannot run on ONNX Runtime (%s); PyTorch loads it, which is slower. Set models.backend to torch "
            "to skip the attempt",
            location,
            first_line(error)[:160],
            extra={"action": "model_not_exported"},
        )
        return None


def _load(kind: Kind, location: str, models: ModelsSettings, precision: Precision) -> Any:
    folder = models.resolved_cache_dir / "onnx" / _export_key(kind, location, precision)
    if not folder.is_dir():
        _export(kind, location, models, folder, precision)
    if (model := load_session(folder)) is not None:
        return model
    return _import(kind)(str(folder), **_OPTIONS, model_kwargs={**_PROVIDER, "file_name": "model.onnx"})


def _is_installed() -> bool:
    # Not imported: optimum imports PyTorch, and only an export needs it.
    return all(map(is_installed, _PACKAGES))


def _import(kind: Kind) -> Any:
    import sentence_transformers

    return getattr(sentence_transformers, kind)


def _export_key(kind: Kind, location: str, precision: Precision) -> str:
    """Return a folder name that depends on the model's files.

    A replaced model is exported again.
    """
    digest = hashlib.sha256(f"{_FORMAT}:{kind}:{precision}:{location}".encode())
    folder = Path(location)
    if folder.is_dir():
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                state = file.stat()
                digest.update(f"{file.relative_to(folder)}:{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _export(kind: Kind, location: str, models: ModelsSettings, folder: Path, precision: Precision) -> None:
    """Export a model to a folder, unless another process has done it."""
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    # An export takes seconds of all cores: processes that start together wait for the first.
    with FileLock(folder.parent.with_suffix(".lock")), _silence_export():
        if folder.is_dir():
            return
        logger.warning(
            "exporting %s for ONNX Runtime, once on this machine; it takes seconds to minutes",
            location,
            extra={"action": "model_exporting"},
        )
        model = _import(kind)(location, **_OPTIONS, model_kwargs={**_PROVIDER, "export": True}, **hub_options(models))
        # Written to a scratch folder and renamed: a killed process leaves no half model, and the next one removes it.
        for left_behind in folder.parent.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=folder.parent))
        try:
            model.save_pretrained(str(scratch))
            if (description := _describe(kind, model, scratch)) is not None:
                description.write(scratch)
            if precision == "int8":
                _quantize(scratch / MODEL_FILE)
            # Private while it is written; other users of the machine, such as a service's, may read it.
            scratch.chmod(0o755)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _silence_export() -> Iterator[None]:
    """Drop warnings of an export.

    Tracing warns about each shape that it treats as constant, and about an export that is not saved: the samples
    compare the exported model, and it is saved.
    """
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers", "optimum")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _describe(kind: Kind, model: Any, folder: Path) -> OnnxDescription | None:
    """Return the description by which OnnxModel reproduces a model's samples.

    The result is None where there is no such description: the model has other modules, or a prompt of its own.
    """
    tokens = model.max_seq_length if kind == "SentenceTransformer" else model.tokenizer.model_max_length
    if tokens is None or not (folder / TOKENIZER_FILE).is_file():
        return None
    pad_id = int(model.tokenizer.pad_token_id or 0)
    if kind == "CrossEncoder":
        candidates = [OnnxDescription(max_tokens=int(tokens), pad_id=pad_id, pooling=None, normalize=False)]
        expected = model.predict(list(_PAIRS), activation_fn=_identity, show_progress_bar=False, convert_to_numpy=True)
    else:
        candidates = [
            OnnxDescription(max_tokens=int(tokens), pad_id=pad_id, pooling=pooling, normalize=normalize)
            for pooling in ("mean", "cls")
            for normalize in (True, False)
        ]
        expected = model.encode(list(_SAMPLES), show_progress_bar=False)
    for candidate in candidates:
        exported = load_exported(folder, candidate)
        if exported.output_rank != _OUTPUT_RANKS[kind]:
            return None
        actual = (
            exported.score(_PAIRS, batch_size=2).reshape(expected.shape)
            if kind == "CrossEncoder"
            else exported.encode(_SAMPLES, batch_size=2, dimensions=None, normalize=False)[0]
        )
        if actual.shape == expected.shape and np.allclose(actual, expected, rtol=0, atol=_TOLERANCE):
            return candidate
    return None


def _identity(logits: Any) -> Any:
    return logits


def _quantize(file: Path) -> None:
    """Quantise the weights of a model to 8 bits (dynamic quantisation).

    Signed weights in the range of seven bits: processors without VNNI add products of bytes in 16 bits, and the full
    range would overflow. Unsigned weights avoid that with a kernel that is a fifth slower.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(file, file, skip_symbolic_shape=True)
    quantize_dynamic(file, file, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
