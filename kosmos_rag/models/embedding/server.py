"""Embeddings by a server that the configuration names by its address."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.config import EmbeddingSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.protocols import Tokenizer, Vectors
from kosmos_rag.core.telemetry import genai, usage
from kosmos_rag.models.embedding.protocols import PROTOCOLS, EmbeddingProtocol, Purpose
from kosmos_rag.models.embedding.space import MIN_COSINE, PROBE, cosine
from kosmos_rag.models.embedding.tokenizer import load_tokenizer
from kosmos_rag.models.http.client import ModelServer, RequestLimits
from kosmos_rag.models.http.endpoint import Endpoint

_PROBE_INTERVAL_S = 60.0
_PROBED_TEXTS = 8
"""Requests of so many texts or more always contain the probe sentence, which costs little there."""
_MAX_BYTES_OF_VECTOR = 300_000
"""Above what a vector of ten thousand dimensions takes as JSON."""


class ServerEmbedder:
    """An embedding model behind a server.

    Thread-safe. Nothing is sent before the first text. `close` closes the connections.
    """

    def __init__(self, settings: EmbeddingSettings, *, section: str = "rag.embedding") -> None:
        """Prepare the client.

        Args:
            settings: Address, protocol, model, limits.
            section: The section of the configuration that `settings` is from, for messages.

        Raises:
            ConfigError: Address, key or tokenizer is invalid.
        """
        assert settings.url is not None, "a server has an address"
        self._settings = settings
        self._section = section
        self._protocol = PROTOCOLS[settings.protocol]
        self._endpoint = _endpoint(settings, settings.url, section, self._protocol)
        self._server = ModelServer(self._endpoint, concurrency=settings.concurrency)
        self._fingerprint = _Fingerprint(self._endpoint)

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    @property
    def dimensions(self) -> int:
        """Length of each vector, as configured and as checked in each response."""
        return self._settings.dimensions

    @cached_property
    def max_tokens(self) -> int:
        """Maximum length of a text in tokens, without prefix and special tokens."""
        prefixes = [self._settings.query_prefix, self._settings.passage_prefix]
        return self._settings.max_tokens - max(self.tokenizer.count(prefixes))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of `tokenizer`, or an estimate. Raises ConfigError."""
        return load_tokenizer(self._settings.tokenizer, f"{self._section}.tokenizer")

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts in requests of limited size; shape (len(texts), dimensions).

        Raises:
            ModelUnavailable: The server cannot be reached, is late or busy, refuses key or model, or now has another
                model.
            ModelError: It fails, or gives other vectors than one finite one for each text.
            ConfigError: Its vectors have other dimensions.
        """
        return self._embed(texts, "passage")

    def embed_queries(self, questions: Sequence[str]) -> Vectors:
        """Embed questions as `embed` does texts; for one that a reader waits for, `embed_query` is faster."""
        return self._embed(questions, "query")

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed a question at once; shape (dimensions,). Raises as `embed` does."""
        settings = self._settings
        text = settings.query_prefix + self._truncate(question)
        with self._start_span([text]):
            inputs, probed = self._append_probe([text], "query")
            limits = self._limits(settings.query_timeout_s, f"{self._section}.query_timeout_s", len(inputs))
            body = self._protocol.build_request(inputs, "query", settings)
            rows, tokens = self._server.post(body, self._parse, limits)
            self._record_tokens(inputs, tokens)
            vectors = self._read(rows, len(inputs))
            vector: NDArray[np.float32] = self._fingerprint.check(vectors, "query", probed=probed)[0]
        return vector

    def close(self) -> None:
        """Cancel all requests and close the connections."""
        self._server.close()

    def _embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        settings = self._settings
        prefix = settings.query_prefix if purpose == "query" else settings.passage_prefix
        prefixed = [prefix + self._truncate(text) for text in texts]
        with self._start_span(prefixed):
            return self._request(prefixed, purpose)

    def _request(self, texts: list[str], purpose: Purpose) -> Vectors:
        settings = self._settings
        batches = [self._append_probe(batch, purpose) for batch in self._batches(texts)]
        bodies = [self._protocol.build_request(inputs, purpose, settings) for inputs, _ in batches]
        limits = self._limits(
            settings.timeout_s, f"{self._section}.timeout_s", max(len(inputs) for inputs, _ in batches)
        )
        responses = self._server.post_all(bodies, self._parse, limits)
        for (_, tokens), (inputs, _) in zip(responses, batches, strict=True):
            self._record_tokens(inputs, tokens)
        return np.concatenate(
            [
                self._fingerprint.check(self._read(rows, len(inputs)), purpose, probed=probed)
                for (rows, _), (inputs, probed) in zip(responses, batches, strict=True)
            ]
        )

    def _append_probe(self, texts: list[str], purpose: Purpose) -> tuple[list[str], bool]:
        """Return the texts to send, and whether the last is the probe.

        Requests of one text have no room for it.
        """
        return (texts, False) if self._settings.batch_size == 1 else self._fingerprint.append_probe(texts, purpose)

    def _parse(self, response: Any) -> tuple[list[Any], int | None]:
        """Return the vectors of a response, and the tokens that the server has counted."""
        return self._protocol.read_vectors(response), self._protocol.read_tokens(response)

    def _record_tokens(self, inputs: list[str], tokens: int | None) -> None:
        """Charge the tokens of a request, by the server's count or else by the tokenizer's."""
        if usage.current_account() is not None:
            token_count = sum(self.tokenizer.count(inputs)) if tokens is None else tokens
            usage.record(usage.Quantity.EMBEDDED_TOKENS, token_count, self.name)

    def _batches(self, texts: list[str]) -> Iterator[list[str]]:
        """Yield the texts in batches of `batch_size` texts and `batch_tokens` tokens, the probe included.

        A text of more tokens is a batch of its own.
        """
        most = max(1, self._settings.batch_size - 1)
        probe_tokens = self.tokenizer.count([PROBE])[0]
        starts, tokens = [0], probe_tokens
        for number, count in enumerate(self.tokenizer.count(texts)):
            full = number - starts[-1] == most or tokens + count > self._settings.batch_tokens
            if full and number > starts[-1]:
                starts.append(number)
                tokens = probe_tokens
            tokens += count
        for start, end in pairwise([*starts, len(texts)]):
            yield texts[start:end]

    def _truncate(self, text: str) -> str:
        """Return the part of a text that the model reads.

        An empty text becomes a space, because servers refuse it.
        """
        spans = self.tokenizer.offsets(text) if len(text) > self.max_tokens else []
        end = spans[self.max_tokens - 1][1] if len(spans) > self.max_tokens else None
        return text[:end] or " "

    def _limits(self, timeout_s: float, key: str, texts: int) -> RequestLimits:
        return RequestLimits(timeout_s=timeout_s, timeout_key=key, max_bytes=texts * _MAX_BYTES_OF_VECTOR)

    def _read(self, rows: list[Any], texts: int) -> Vectors:
        """Return the vectors of a response, checked, truncated and normalised as configured."""
        if len(rows) != texts:
            raise self._endpoint.error(f"gave {len(rows)} vectors for {texts} texts: look into its log")
        try:
            vectors = np.array(rows, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):  # the last for an integer of hundreds of digits
            vectors = np.empty((0,), dtype=np.float32)
        if vectors.ndim != 2:
            raise self._endpoint.error(f"gave vectors that are not lists of numbers: correct {self._section}.protocol")
        if not np.isfinite(vectors).all():
            raise self._endpoint.error("gave vectors that are not finite: choose another model or number type there")
        vectors = self._shorten(vectors)
        if not self._settings.normalize:
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not lengths.all():
            raise self._endpoint.error("gave a vector of length zero, which has no direction: choose another model")
        normalized: Vectors = vectors / lengths
        return normalized

    def _shorten(self, vectors: Vectors) -> Vectors:
        actual, configured_size = vectors.shape[1], self.dimensions
        if actual == configured_size:
            return vectors
        if actual > configured_size and self._settings.matryoshka == "client":
            return np.ascontiguousarray(vectors[:, :configured_size])
        remedy = f"set {self._section}.dimensions to {actual}"
        if self._settings.matryoshka == "server":
            remedy = (
                f"the server did not shorten them; set {self._section}.matryoshka to client, or dimensions to {actual}"
            )
        raise ConfigError(
            f"{self._section}.dimensions = {configured_size}, and model {self.name} has {actual}; {remedy}"
        )

    @contextmanager
    def _start_span(self, texts: list[str]) -> Iterator[None]:
        with genai.start_embeddings(self.name, self.dimensions, self._settings.protocol, texts) as span:
            span.set_attribute("server.address", self._endpoint.url.host)
            yield


class _Fingerprint:
    """Notices that a server has another model under the same name.

    Requests contain a probe sentence, whose vector must stay the same. It is in every request of many texts, which
    ingestion sends, and once a minute in one of few.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._vectors: dict[Purpose, NDArray[np.float32]] = {}
        self._checked_at: dict[Purpose, float] = {}

    def append_probe(self, texts: list[str], purpose: Purpose) -> tuple[list[str], bool]:
        """Return the texts to send, and whether the last is the probe."""
        recent = time.monotonic() - self._checked_at.get(purpose, -_PROBE_INTERVAL_S) < _PROBE_INTERVAL_S
        probed = len(texts) >= _PROBED_TEXTS or not recent
        return ([*texts, PROBE] if probed else texts), probed

    def check(self, vectors: Vectors, purpose: Purpose, *, probed: bool) -> Vectors:
        """Return the vectors of the texts without that of the probe.

        Raises ModelUnavailable where the vector of the probe has changed.
        """
        if not probed:
            return vectors
        with self._lock:
            reference = self._vectors.setdefault(purpose, vectors[-1].copy())
        similarity = cosine(reference, vectors[-1])
        if similarity < MIN_COSINE:
            raise self._endpoint.unavailable(
                f"has another model under the same name: it embeds one sentence differently than before (cosine "
                f"{similarity:.2f}); start the former model, or configure the new one and restart"
            )
        self._checked_at[purpose] = time.monotonic()
        return vectors[:-1]


def _endpoint(settings: EmbeddingSettings, url: str, section: str, protocol: EmbeddingProtocol) -> Endpoint:
    return Endpoint(
        kind="embedding server",
        section=section,
        url=url,
        path=protocol.path,
        api_key=settings.api_key,
        model=settings.model,
        example=protocol.example,
        input_remedy=f"lower {section}.max_tokens, batch_size or batch_tokens, or correct {section}.model",
    )
