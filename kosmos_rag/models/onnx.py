"""Models on ONNX Runtime, exported on first use to the cache folder."""

import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.models.download import require_local_models

Precision = Literal["full", "int8"]
"""Precision of the weights: unchanged, or 8-bit integers."""

_PROVIDER = {"provider": "CPUExecutionProvider"}


def hub_options(models: ModelsSettings) -> dict[str, Any]:
    """Return the hub arguments of sentence-transformers classes."""
    return {
        "cache_folder": str(models.cache_dir) if models.cache_dir else None,
        "local_files_only": models.offline,
    }


def require_runtime(models: ModelsSettings) -> None:
    """Raise ModelUnavailable if the packages of local models are not installed."""
    require_local_models()
    if models.backend != "onnx":
        return
    # Read once, at its import. From version 1.31 on ONNX Runtime reports machine and sessions to Microsoft otherwise.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import optimum.onnxruntime  # noqa: F401
    except ImportError as error:
        raise ModelUnavailable(
            "models.backend = 'onnx' needs ONNX Runtime: pip install 'kosmos-rag[onnx]', or set it to 'torch'"
        ) from error


def load_onnx(kind: Callable[..., Any], location: str, models: ModelsSettings, precision: Precision = "full") -> Any:
    """Load a model.

    Export it to the cache folder first where that has none.

    Args:
        kind: class of sentence-transformers.
        location: folder of the model, or its name on the hub.
        models: cache folder and access to the hub.
        precision: of the weights.
    """
    folder = models.resolved_cache_dir / "onnx" / _export_key(kind, location, precision)
    if not folder.is_dir():
        _save(_export(kind, location, models), folder, precision)
    return kind(str(folder), backend="onnx", device="cpu", model_kwargs={**_PROVIDER, "file_name": "model.onnx"})


def _export(kind: Callable[..., Any], location: str, models: ModelsSettings) -> Any:
    with warnings.catch_warnings():
        # Tracing warns about each shape that it treats as constant; tests compare the exported model.
        warnings.simplefilter("ignore")
        return kind(
            location,
            backend="onnx",
            device="cpu",
            model_kwargs={**_PROVIDER, "export": True},
            **hub_options(models),
        )


def _export_key(kind: Callable[..., Any], location: str, precision: Precision) -> str:
    """Return a folder name that depends on the model's files.

    A replaced model is exported again.
    """
    digest = hashlib.sha256(f"{kind.__name__}:{precision}:{location}".encode())
    folder = Path(location)
    if folder.is_dir():
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                state = file.stat()
                digest.update(f"{file.relative_to(folder)}:{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _save(model: Any, folder: Path, precision: Precision) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Written to a scratch folder and renamed: neither a killed process nor a second export leaves half a model.
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        model.save_pretrained(str(scratch))
        if precision == "int8":
            _quantize(scratch / "onnx" / "model.onnx")
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _quantize(file: Path) -> None:
    """Quantise the weights of a model to 8 bits (dynamic quantisation).

    Signed weights in the range of seven bits: processors without VNNI add products of bytes in 16 bits, and the full
    range would overflow. Unsigned weights avoid that with a kernel that is a fifth slower.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(file, file, skip_symbolic_shape=True)
    quantize_dynamic(file, file, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
