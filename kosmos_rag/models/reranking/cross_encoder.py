"""Reranking by a cross-encoder of sentence-transformers, which reads question and passage together."""

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kosmos_rag.core.config import ModelsSettings, RerankingSettings
from kosmos_rag.core.errors import ModelError, ModelUnavailable, first_line
from kosmos_rag.models.hub import resolve, set_precision
from kosmos_rag.models.onnx import hub_options, load_onnx, require_runtime
from kosmos_rag.models.onnx_session import OnnxModel

REMEDY = "give a folder as rag.reranking.model, or set rag.reranking.enabled=false"


_RETRY_S = 60.0
"""Seconds after which a model that could not be loaded is tried again."""
_GPU_PASSAGES = 64
"""Passages of a forward pass on a GPU: 32,768 tokens, which one with 16 GB of memory holds."""


class CrossEncoderReranker:
    """A reranking model on PyTorch or ONNX Runtime, loaded on first use.

    Thread-safe; calls run in parallel.
    """

    def __init__(self, settings: RerankingSettings, models: ModelsSettings) -> None:
        self._settings = settings
        self._models = models
        self._loading = threading.Lock()
        self._loaded: Any = None
        self._failure: tuple[type[ModelError], str] | None = None
        self._retry_at = 0.0

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Score the relevance of each passage, 0 to 1.

        The score is the logistic function of the model's output. The end of a passage beyond `max_tokens` is cut off,
        and that of the question if it fills more than half. Raises ModelUnavailable if the model cannot be loaded,
        ModelError if it does not return one finite score for each passage.
        """
        if not passages:
            return []
        logits = self._logits(self._model(), [(question, passage) for passage in passages])
        if logits.shape != (len(passages), 1) or not np.isfinite(logits).all():
            raise ModelError(
                f"reranking model {self.name!r} gave scores that are not one number a passage; choose another model"
            )
        # The logistic function, written so that it does not overflow.
        return [float(score) for score in (1 + np.tanh(logits[:, 0] / 2)) / 2]

    def _logits(self, model: Any, pairs: list[tuple[str, str]]) -> Any:
        """Return the raw scores; shape (len(pairs), scores of the model).

        Batches are sorted by length, so little is padded.
        """
        if isinstance(model, OnnxModel):
            scores = model.score(pairs, batch_size=self._settings.passages_per_batch)
        else:
            scores = model.predict(
                pairs,
                batch_size=self._settings.passages_per_batch if self._models.device == "cpu" else _GPU_PASSAGES,
                activation_fn=_identity,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        logits = np.asarray(scores, dtype=np.float64)
        return logits[:, np.newaxis] if logits.ndim == 1 else logits

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                if self._failure is not None and time.monotonic() < self._retry_at:
                    kind, message = self._failure
                    raise kind(message)
                try:
                    self._loaded = self._load()
                except ModelError as error:
                    # A request to an unreachable hub takes seconds, and each question would wait for it. The error
                    # itself is not kept: each raise adds its frames to it, with a question and its passages.
                    self._failure, self._retry_at = (type(error), str(error)), time.monotonic() + _RETRY_S
                    raise
        return self._loaded

    def _load(self) -> Any:
        # The tokenizer's own thread pool deadlocks after a fork, and warns of it on standard error.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        require_runtime(self._models)
        try:
            model = self._obtain()
            if isinstance(model, OnnxModel):
                model.limit_tokens(self._settings.max_tokens)
            else:
                model.tokenizer.model_max_length = min(model.tokenizer.model_max_length, self._settings.max_tokens)
            # Sets truncation and padding on the tokenizer: from then on threads only read it.
            scores = self._logits(model, [("", "")]).shape[1]
            if scores == 1:
                return model
        except Exception as error:
            raise ModelUnavailable(f"cannot load the reranking model: {first_line(error)}; {REMEDY}") from error
        raise ModelError(f"reranking model {self.name!r} gives {scores} scores a passage, and one is needed; {REMEDY}")

    def _obtain(self) -> Any:
        location = resolve(self.name, self._models)
        if (model := load_onnx("CrossEncoder", location, self._models, self._settings.precision)) is not None:
            return model
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(location, device=self._models.device, **hub_options(self._models))
        return set_precision(model, self._models)


def _identity(logits: Any) -> Any:
    return logits
