"""A cross-encoder by sentence-transformers: reads question and passage together, and says how well they fit."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from kosmos_rag.config import ModelsSettings, RerankingSettings
from kosmos_rag.embedding.locate import obtainable
from kosmos_rag.errors import ModelError, ModelUnavailable, first_line


class CrossEncoderReranker:
    """A reranking model, loaded on first use. Thread-safe: one batch at a time."""

    def __init__(self, settings: RerankingSettings, models: ModelsSettings) -> None:
        self._settings = settings
        self._models = models
        self._lock = threading.Lock()
        self._loaded: Any = None
        self._failure: ModelUnavailable | None = None

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return the relevance of each passage, 0 to 1: the logistic function of the model's score.

        Raises ModelUnavailable where the model cannot be loaded, ModelError where a score is not a number.
        """
        if not passages:
            return []
        with self._lock:
            logits = np.asarray(
                self._model().predict(
                    [(question, passage) for passage in passages],
                    activation_fn=_identity,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                ),
                dtype=np.float64,
            ).reshape(-1)
        if len(logits) != len(passages) or not np.isfinite(logits).all():
            raise ModelError(f"reranking model {self.name!r} gave scores that are not one number a passage")
        return [float(score) for score in 1 / (1 + np.exp(-logits))]

    def _model(self) -> Any:
        if self._failure is not None:
            raise self._failure
        if self._loaded is None:
            try:
                self._loaded = self._load()
            except ModelUnavailable as error:
                # Remembered: asking an unreachable hub takes seconds, and every question would wait for it.
                self._failure = error
                raise
        return self._loaded

    def _load(self) -> Any:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        remedy = "give a folder as rag.reranking.model, or set rag.reranking.enabled=false"
        try:
            location = obtainable(self.name, self._models)
            from sentence_transformers import CrossEncoder

            return CrossEncoder(
                location,
                device=self._models.device,
                cache_folder=str(self._models.cache_dir) if self._models.cache_dir else None,
                local_files_only=self._models.offline,
            )
        except Exception as error:
            raise ModelUnavailable(f"cannot load the reranking model: {first_line(error)}; {remedy}") from error


def _identity(logits: Any) -> Any:
    return logits
