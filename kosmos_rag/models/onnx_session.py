"""Exported models on ONNX Runtime alone: tokenizer, session and pooling, without PyTorch."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Tokenizer
from kosmos_rag.models.batches import pad, split_batches
from kosmos_rag.models.embedding.tokenizer import FastTokenizer

log = logging.getLogger(__name__)

MODEL_FILE = "onnx/model.onnx"
TOKENIZER_FILE = "tokenizer.json"
_DESCRIPTION_FILE = "kosmos-rag.json"
_BATCH_TOKENS = 2048
"""Tokens of a batch, padding included.

On a CPU, larger batches are not faster, and ONNX Runtime keeps the memory of each.
"""
_CALL_TOKENS = 11
"""What another batch costs, in tokens: 376 sentences of Cranfield took 1.2 s more alone than together."""

_CONCURRENT = 20
"""Calls that began during another one, and further batches of a call, from which on they share the cores."""
_SHARES = 4
"""Shares of the cores at most: each batch that runs has memory of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OnnxDescription:
    """Tokenization and pooling of an exported model."""

    max_tokens: int
    """Maximum length of an input in tokens, special tokens included."""
    pad_id: int
    """Token that fills up the shorter inputs of a batch."""
    pooling: Literal["mean", "cls"] | None
    """How the vectors of the tokens become one; None for a model that scores pairs."""
    normalize: bool
    """Whether the last module of the model scales vectors to length one."""

    def write(self, folder: Path) -> None:
        """Write the description to the folder of the model."""
        (folder / _DESCRIPTION_FILE).write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")


class OnnxModel:
    """An exported model, for texts or pairs of texts.

    Thread-safe: nothing on the tokenizer and a session changes.
    """

    def __init__(self, file: Path, tokenizer: str, description: OnnxDescription) -> None:
        """Load tokenizer and session.

        Args:
            tokenizer: Content of its `tokenizer.json`.
            description: Tokenization and pooling of the model.
        """
        disable_telemetry()
        from tokenizers import Tokenizer as Backend

        self._definition = tokenizer
        self._description = description
        self._backend = Backend.from_str(self._definition)
        self._backend.no_padding()
        self._truncate(description.max_tokens)
        self._file, self._file_identity = file, _identify(file)
        self._session = self._open_session(_count_threads())
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self._lock = threading.Lock()
        self._running = self._concurrent = 0
        self._pool: Executor | None = None

    def _open_session(self, threads: int) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Threads wait actively within a run, which saves a fifth of a question's time. After it they would keep a core
        # busy that other requests and the database need.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        return onnxruntime.InferenceSession(str(self._file), options, providers=["CPUExecutionProvider"])

    @contextmanager
    def _share_cores(self, batches: int) -> Iterator[Executor | None]:
        """Yield what runs the batches of a call; None to run one after the other.

        All cores together answer one caller fastest. Where calls overlap or have several batches, the cores wait for
        each other: after some of these, calls and batches share the cores.
        """
        with self._lock:
            before = self._concurrent
            self._concurrent += batches - 1 + (self._running > 0)
            is_due = before < _CONCURRENT <= self._concurrent
            self._running += 1
        try:
            if is_due:
                self._divide_cores()
            yield self._pool if batches > 1 else None
        finally:
            with self._lock:
                self._running -= 1

    def _divide_cores(self) -> None:
        """Open a session for several runs at once; the present one stays where that fails."""
        cores = _count_threads()
        shares = min(cores, _SHARES)
        if shares == 1:
            return
        try:
            # Runs have one pool of threads, in addition to that of their caller.
            session = self._open_session(cores - shares + 1)
        except Exception as error:  # noqa: BLE001 — there are no base classes; the call can be answered
            log.warning("calls do not share the cores: %s", error, extra={"action": "onnx_session"})
            return
        # Another model may have been installed meanwhile.
        if _identify(self._file) == self._file_identity:
            self._session, self._pool = session, ThreadPoolExecutor(shares, "onnx")

    @property
    def max_tokens(self) -> int:
        """Maximum length of a text in tokens, without special tokens."""
        return self._description.max_tokens - int(self._backend.num_special_tokens_to_add(is_pair=False))

    @property
    def output_rank(self) -> int:
        """Dimensions of the output: 3 for token vectors, 2 for scores."""
        return len(self._session.get_outputs()[0].shape)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer, without truncation."""
        return FastTokenizer(self._definition)

    def limit_tokens(self, limit: int) -> None:
        """Truncate longer inputs.

        Args:
            limit: tokens of an input, special tokens included; the model's own limit stays.
        """
        self._truncate(min(limit, self._description.max_tokens))

    def encode(
        self, texts: Sequence[str], *, batch_size: int, dimensions: int | None, normalize: bool
    ) -> tuple[NDArray[np.float32], int]:
        """Embed texts; shape (len(texts), dimensions), and the tokens that the model has read.

        Args: see `EncoderModel.encode`.
        """

        def pool(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
            pooled = hidden[:, 0] if self._description.pooling == "cls" else _mean(hidden, mask)
            if self._description.normalize:
                pooled = scale(pooled)
            pooled = pooled[:, :dimensions]
            return scale(pooled) if normalize else pooled

        return self._run(texts, batch_size, pool)

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_size: int) -> NDArray[np.float32]:
        """Score pairs of texts; shape (len(pairs), scores of the model), raw outputs.

        Args:
            pairs: Question and passage.
            batch_size: Most pairs in one batch; pairs of similar length share a batch.
        """
        return self._run(pairs, batch_size, lambda logits, _: logits)[0]

    def _truncate(self, limit: int) -> None:
        self._backend.enable_truncation(limit, strategy="longest_first")

    def _run(
        self,
        inputs: Sequence[Any],
        batch_size: int,
        reduce: Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.float32]],
    ) -> tuple[NDArray[np.float32], int]:
        """Return a row for each input, and the tokens of all inputs, special tokens included.

        The longest inputs go through the model first.

        Args:
            inputs: Texts, or pairs of texts.
            batch_size: Most inputs in one batch; fewer where they have more than `_BATCH_TOKENS`.
            reduce: Makes the rows of a batch of the model's first output and the attention mask.
        """
        encodings = self._backend.encode_batch_fast(list(inputs))
        lengths = list(map(len, encodings))
        batches = list(split_batches(lengths, inputs=batch_size, tokens=_BATCH_TOKENS, call_tokens=_CALL_TOKENS))

        def run(batch: Sequence[int]) -> NDArray[np.float32]:
            arrays = pad([encodings[place] for place in batch], self._description.pad_id)
            fed = {name: array for name, array in arrays.items() if name in self._inputs}
            return reduce(self._session.run(None, fed)[0], arrays["attention_mask"])

        with self._share_cores(len(batches)) as pool:
            by_length = np.concatenate(list(map(run, batches) if pool is None else pool.map(run, batches)))
        result = np.empty_like(by_length)
        result[[place for batch in batches for place in batch]] = by_length
        return result, sum(map(len, encodings))


def load_session(folder: Path) -> OnnxModel | None:
    """Load an exported model; None where it has no description."""
    try:
        description = json.loads((folder / _DESCRIPTION_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return load_exported(folder, OnnxDescription(**description))


def load_exported(folder: Path, description: OnnxDescription) -> OnnxModel:
    """Load an exported model by a description of it."""
    return OnnxModel(folder / MODEL_FILE, (folder / TOKENIZER_FILE).read_text(encoding="utf-8"), description)


def disable_telemetry() -> None:
    """Turn off the telemetry of ONNX Runtime, unless the environment turns it on.

    From version 1.31 on it reports machine and sessions to Microsoft. Read once, at its import.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _identify(file: Path) -> tuple[int, ...] | None:
    """Return what changes with another file of the name; None where there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _count_threads() -> int:
    """Return OMP_NUM_THREADS, or the number of cores of this process."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    if value.isdecimal() and int(value):
        return int(value)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _mean(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    weights = mask.astype(np.float32)
    pooled: NDArray[np.float32] = np.einsum("blh,bl->bh", hidden, weights) / weights.sum(axis=1, keepdims=True)
    return pooled


def scale(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length one, as PyTorch does: one of zeros stays."""
    scaled: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled
