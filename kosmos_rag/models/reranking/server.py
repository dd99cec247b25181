"""Reranking by a server that the configuration names by its address."""

from collections.abc import Sequence

import numpy as np

from kosmos_rag.core.config import RerankingSettings
from kosmos_rag.models.http.client import ModelServer, RequestLimits
from kosmos_rag.models.http.endpoint import Endpoint
from kosmos_rag.models.reranking.protocols import PROTOCOLS

_MAX_BYTES_OF_PASSAGE = 100_000
"""Some servers return each passage with its score."""


class ServerReranker:
    """A reranking model behind a server.

    Thread-safe. Nothing is sent before the first passage. `close` closes the connections.
    """

    def __init__(self, settings: RerankingSettings) -> None:
        """Prepare the client. Raises ConfigError where address or key is invalid."""
        assert settings.url is not None, "a server has an address"
        self._settings = settings
        self._protocol = PROTOCOLS[settings.protocol]
        self._endpoint = Endpoint(
            kind="reranking server",
            section="rag.reranking",
            url=settings.url,
            path=self._protocol.path,
            api_key=settings.api_key,
            model=settings.model,
            example=self._protocol.example,
            input_remedy="lower rag.reranking.batch_size or max_tokens, or correct rag.reranking.model",
        )
        self._server = ModelServer(self._endpoint, concurrency=settings.concurrency)

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Score the relevance of each passage, 0 to 1, in one request.

        Raises:
            ModelUnavailable: The server cannot be reached, is late or busy, or refuses key or model.
            ModelError: It fails, or does not give one score between 0 and 1 for each passage.
        """
        if not passages:
            return []
        body = self._protocol.build_request(question, [passage or " " for passage in passages], self._settings)
        limits = RequestLimits(
            timeout_s=self._settings.timeout_s,
            timeout_key="rag.reranking.timeout_s",
            max_bytes=len(passages) * _MAX_BYTES_OF_PASSAGE,
        )
        pairs: list[tuple[int, float]] = self._server.post(body, self._protocol.read_scores, limits)
        if sorted(index for index, _ in pairs) != list(range(len(passages))):
            raise self._endpoint.error(f"gave {len(pairs)} scores for {len(passages)} passages: look into its log")
        scores = np.array([score for _, score in sorted(pairs)], dtype=np.float64)
        if not np.isfinite(scores).all():
            raise self._endpoint.error("gave scores that are not finite: choose another model")
        if self._settings.raw_scores:
            # The logistic function, written so that it does not overflow.
            scores = (1 + np.tanh(scores / 2)) / 2
        elif scores.min() < 0 or scores.max() > 1:
            raise self._endpoint.error(
                f"gave scores from {scores.min():.3g} to {scores.max():.3g}, and they must be 0 to 1: "
                "set rag.reranking.raw_scores=true"
            )
        return [float(score) for score in scores]

    def close(self) -> None:
        """Cancel all requests and close the connections."""
        self._server.close()
