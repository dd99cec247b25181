"""Embeddings by sentence-transformers, on PyTorch or ONNX Runtime."""

import os
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.config import EmbeddingSettings, ModelsSettings
from kosmos_rag.core.errors import ConfigError, ModelError, ModelUnavailable, first_line
from kosmos_rag.core.protocols import Tokenizer, Vectors
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.models.hub import LOCAL_ALTERNATIVE, resolve
from kosmos_rag.models.onnx import hub_options, load_onnx, require_runtime


class SentenceTransformerEmbedder:
    """An embedding model, loaded on first use.

    Thread-safe: one encoding at a time, each using all cores.
    """

    def __init__(self, settings: EmbeddingSettings, models: ModelsSettings, *, section: str = "rag.embedding") -> None:
        """Prepare the model; nothing is loaded yet.

        Args:
            settings: model name, dimensions, batch size, normalisation.
            models: backend, device, cache.
            section: the section of the configuration that `settings` is from, for messages.
        """
        self._settings = settings
        self._section = section
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
        """Maximum input length in tokens, special tokens not included."""
        model = self._model()
        return int(model.max_seq_length) - int(model.tokenizer.num_special_tokens_to_add())

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        return FastTokenizer(self._model().tokenizer)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts in batches; shape (len(texts), dimensions).

        Raises ModelUnavailable and ConfigError (dimensions) on first use, ModelError where a vector is not finite.
        """
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        model = self._model()
        with tracing.start_span(f"embeddings {self.name}", self._span_attributes), self._encoding:
            vectors = model.encode(
                list(texts),
                batch_size=self._settings.batch_size,
                normalize_embeddings=self._settings.normalize,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise ModelError(f"model {self.name} returned vectors that are not finite; choose another backend or model")
        return vectors

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed a question; shape (dimensions,)."""
        vector: NDArray[np.float32] = self.embed([question])[0]
        return vector

    @property
    def _span_attributes(self) -> dict[str, str | int]:
        return {
            "gen_ai.operation.name": "embeddings",
            "gen_ai.request.model": self.name,
            "gen_ai.embeddings.dimension.count": self.dimensions,
        }

    def _model(self) -> Any:
        if self._loaded is None:
            with self._loading:
                if self._loaded is None:
                    self._loaded = self._load()
        return self._loaded

    def _load(self) -> Any:
        # The tokenizer's own thread pool deadlocks after a fork, and warns about it on standard error.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        require_runtime(self._models)
        try:
            model = self._obtain()
        except ModelUnavailable as error:
            raise ModelUnavailable(f"cannot load the embedding model: {error}; {LOCAL_ALTERNATIVE}") from error
        except Exception as error:
            raise ModelUnavailable(
                f"cannot load the embedding model {self.name!r}: {first_line(error)[:160]}; {LOCAL_ALTERNATIVE}"
            ) from error
        self._check_dimensions(model)
        return model

    def _obtain(self) -> Any:
        location = resolve(self.name, self._models)
        from sentence_transformers import SentenceTransformer

        if self._models.backend == "onnx":
            return load_onnx(SentenceTransformer, location, self._models)
        return SentenceTransformer(location, device=self._models.device, **hub_options(self._models))

    def _check_dimensions(self, model: Any) -> None:
        actual = model.encode(["probe"], show_progress_bar=False).shape[1]
        if actual != self.dimensions:
            raise ConfigError(
                f"{self._section}.dimensions = {self.dimensions}, and model {self.name} has {actual}; "
                f"set {self._section}.dimensions to {actual}"
            )


class FastTokenizer:
    """A copy of a model's tokenizer without truncation or padding.

    Thread-safe: nothing on it changes. Counting tokens must not depend on what an encoding sets on the model's own
    tokenizer.
    """

    def __init__(self, pretrained: Any) -> None:
        """Copy the tokenizer of a loaded model.

        Raises ModelUnavailable where it is not a fast tokenizer.
        """
        from tokenizers import Tokenizer

        backend = getattr(pretrained, "backend_tokenizer", None)
        if backend is None:
            raise ModelUnavailable(
                "the model has no fast tokenizer, and exact token counts need one; choose another model"
            )
        self._tokenizer = Tokenizer.from_str(backend.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens not included."""
        return [len(entry.ids) for entry in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the character span of each token, special tokens not included."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)
