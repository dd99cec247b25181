"""Embeddings by sentence-transformers, on PyTorch or ONNX Runtime."""

import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.config import EmbeddingSettings, ModelsSettings
from kosmos_rag.core.errors import ConfigError, ModelError, ModelUnavailable, first_line
from kosmos_rag.core.protocols import Tokenizer, Vectors
from kosmos_rag.core.telemetry import genai, usage
from kosmos_rag.models.embedding.encoders import EncoderModel, GpuModel, TorchModel
from kosmos_rag.models.hub import LOCAL_ALTERNATIVE, resolve, set_precision, silence_loading
from kosmos_rag.models.onnx import hub_options, load_onnx, require_runtime
from kosmos_rag.models.onnx_session import OnnxModel
from kosmos_rag.models.packaged import MINILM_INT8, load_int8

_PROVIDER = "sentence_transformers"


class SentenceTransformerEmbedder:
    """An embedding model, loaded on first use.

    Thread-safe. On a CPU passages are encoded by one thread at a time. A question does not wait for them, nor for other
    questions: one long question would delay all short ones by its whole encoding.
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
        self._loaded: EncoderModel | None = None

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
        """Maximum length of a text in tokens, without prefix and special tokens."""
        prefixes = [self._settings.query_prefix, self._settings.passage_prefix]
        return self._model().max_tokens - max(self.tokenizer.count(prefixes))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        return self._model().tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts in batches; shape (len(texts), dimensions).

        Raises ModelUnavailable and ConfigError (dimensions) on first use, ModelError where a vector is not finite.
        """
        return self._embed_all(self._settings.passage_prefix, texts)

    def embed_queries(self, questions: Sequence[str]) -> Vectors:
        """Embed questions as `embed` does texts; for one that a reader waits for, `embed_query` is faster."""
        return self._embed_all(self._settings.query_prefix, questions)

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed a question; shape (dimensions,). Raises as `embed` does."""
        vector: NDArray[np.float32] = self._encode([self._settings.query_prefix + question])[0]
        return vector

    def _embed_all(self, prefix: str, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        # A GPU computes what several threads have given it, one after the other, and each of them tokenises meanwhile.
        with nullcontext() if isinstance(self._model(), GpuModel) else self._encoding:
            return self._encode([prefix + text for text in texts])

    def _encode(self, texts: list[str]) -> Vectors:
        model = self._model()
        with genai.start_embeddings(self.name, self.dimensions, _PROVIDER, texts):
            vectors, tokens = model.encode(
                texts,
                batch_size=self._settings.batch_size,
                dimensions=None if self._settings.matryoshka == "none" else self.dimensions,
                normalize=self._settings.normalize,
            )
        usage.record(usage.Quantity.EMBEDDED_TOKENS, tokens, self.name)
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if not np.isfinite(vectors).all():
            remedy = "choose another backend or model, or bfloat16 or float32 as models.dtype"
            raise ModelError(f"model {self.name} returned vectors that are not finite; {remedy}")
        return vectors

    def _model(self) -> EncoderModel:
        if self._loaded is None:
            with self._loading:
                if self._loaded is None:
                    self._loaded = self._load()
        return self._loaded

    def _load(self) -> EncoderModel:
        # The tokenizer's own thread pool deadlocks after a fork, and warns about it on standard error.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        if self.name != MINILM_INT8:
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

    def _obtain(self) -> EncoderModel:
        if self.name == MINILM_INT8:
            return load_int8()
        location = resolve(self.name, self._models)
        if (model := load_onnx("SentenceTransformer", location, self._models)) is not None:
            return model if isinstance(model, OnnxModel) else TorchModel(model)
        from sentence_transformers import SentenceTransformer

        silence_loading()
        model = SentenceTransformer(location, device=self._models.device, **hub_options(self._models))
        model = set_precision(model, self._models)
        return GpuModel(model) if model.device.type != "cpu" and GpuModel.supports(model) else TorchModel(model)

    def _check_dimensions(self, model: EncoderModel) -> None:
        # This first encoding sets truncation and padding on the tokenizer: from then on threads only read it.
        cut = None if self._settings.matryoshka == "none" else self.dimensions
        actual = model.encode(["probe"], batch_size=1, dimensions=cut, normalize=False)[0].shape[1]
        if actual != self.dimensions:
            raise ConfigError(
                f"{self._section}.dimensions = {self.dimensions}, and model {self.name} has {actual}; "
                f"set {self._section}.dimensions to {actual}"
            )
