"""Embeddings by sentence-transformers, on torch or ONNX Runtime."""

import hashlib
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.config import EmbeddingSettings, ModelsSettings
from kosmos_rag.embedding.locate import LOCAL_ALTERNATIVE, obtainable
from kosmos_rag.embedding.tokenizer import FastTokenizer
from kosmos_rag.errors import ConfigError, ModelError, ModelUnavailable, first_line
from kosmos_rag.ports import Tokenizer, Vectors


class SentenceTransformerEmbedder:
    """An embedding model, loaded on first use. Thread-safe: one encoding at a time, each using all cores."""

    def __init__(self, settings: EmbeddingSettings, models: ModelsSettings) -> None:
        self._settings = settings
        self._models = models
        self._loading = threading.Lock()
        self._encoding = threading.Lock()
        self._loaded: Any = None

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    @property
    def dimensions(self) -> int:
        """Length of each vector, as configured and as the model has it."""
        return self._settings.dimensions

    @cached_property
    def max_tokens(self) -> int:
        """Tokens the model reads, special tokens not included."""
        model = self._model()
        return int(model.max_seq_length) - int(model.tokenizer.num_special_tokens_to_add())

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        return FastTokenizer(self._model().tokenizer)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, batched and sorted by length; shape (len(texts), dimensions).

        Raises ModelUnavailable, ConfigError (dimensions) on first use; ModelError where a vector is not finite.
        """
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        model = self._model()
        with self._encoding:
            vectors = model.encode(
                list(texts),
                batch_size=self._settings.batch_size,
                normalize_embeddings=self._settings.normalize,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise ModelError(f"model {self.name} gave vectors that are not numbers; choose another backend or model")
        return vectors

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed one question; shape (dimensions,)."""
        vector: NDArray[np.float32] = self.embed([question])[0]
        return vector

    def _model(self) -> Any:
        if self._loaded is None:
            with self._loading:
                if self._loaded is None:
                    self._loaded = self._load()
        return self._loaded

    def _load(self) -> Any:
        # The tokenizer's own thread pool deadlocks after a fork, and warns of it on standard error.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            load = _load_onnx if self._models.backend == "onnx" else _load_torch
            model = load(obtainable(self.name, self._models), self._models)
        except ModelUnavailable as error:
            raise ModelUnavailable(f"cannot load the embedding model: {error}; {LOCAL_ALTERNATIVE}") from error
        except ImportError as error:
            if self._models.backend == "onnx":
                raise ModelUnavailable(
                    "models.backend = 'onnx' needs ONNX Runtime: pip install 'kosmos-rag[onnx]', or set it to 'torch'"
                ) from error
            raise
        except Exception as error:
            raise ModelUnavailable(
                f"cannot load the embedding model {self.name!r}: {first_line(error)[:160]}; {LOCAL_ALTERNATIVE}"
            ) from error
        self._check_dimensions(model)
        return model

    def _check_dimensions(self, model: Any) -> None:
        found = model.encode(["probe"], show_progress_bar=False).shape[1]
        if found != self.dimensions:
            raise ConfigError(
                f"rag.embedding.dimensions = {self.dimensions}, and model {self.name} has {found}; "
                f"set rag.embedding.dimensions to {found}"
            )


def _load_torch(location: str, models: ModelsSettings) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        location,
        device=models.device,
        cache_folder=str(models.cache_dir) if models.cache_dir else None,
        local_files_only=models.offline,
    )


def _load_onnx(location: str, models: ModelsSettings) -> Any:
    """Load through ONNX Runtime; exported on first use, and kept in the cache folder for the next process."""
    import optimum.onnxruntime  # noqa: F401 — fails here, with a clear message above, and not inside the library
    from sentence_transformers import SentenceTransformer

    folder = models.resolved_cache_dir / "onnx" / _export_key(location)
    options = {"provider": "CPUExecutionProvider"}
    if not (folder / "modules.json").is_file():
        with warnings.catch_warnings():
            # Tracing warns of every shape that it takes for constant; the exported model is compared in the tests.
            warnings.simplefilter("ignore")
            exported = SentenceTransformer(
                location,
                backend="onnx",
                cache_folder=str(models.cache_dir) if models.cache_dir else None,
                local_files_only=models.offline,
                model_kwargs={**options, "export": True},
            )
        _save(exported, folder)
    return SentenceTransformer(str(folder), backend="onnx", model_kwargs={**options, "file_name": "model.onnx"})


def _export_key(location: str) -> str:
    """Return a folder name that changes with the model's files, so that a replaced model is exported again."""
    digest = hashlib.sha256(location.encode())
    folder = Path(location)
    if folder.is_dir():
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                state = file.stat()
                digest.update(f"{file.relative_to(folder)}:{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _save(model: Any, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved: a process killed here, or a second one exporting too, leaves no half model behind.
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        model.save_pretrained(str(scratch))
        scratch.rename(folder)
    except OSError:
        if not (folder / "modules.json").is_file():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
