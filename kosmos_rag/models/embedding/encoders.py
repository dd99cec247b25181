"""Loaded models of sentence-transformers, on a CPU and on a GPU."""

import logging
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.errors import first_line
from kosmos_rag.core.protocols import Tokenizer, Vectors
from kosmos_rag.models.batches import pad, split_batches
from kosmos_rag.models.embedding.tokenizer import FastTokenizer, read_definition
from kosmos_rag.models.onnx_session import scale

logger = logging.getLogger(__name__)


class EncoderModel(Protocol):
    """A loaded model on its runtime."""

    @property
    def max_tokens(self) -> int:
        """Maximum length of a text in tokens, without special tokens."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer, without truncation."""

    def encode(
        self, texts: list[str], *, batch_size: int, dimensions: int | None, normalize: bool
    ) -> tuple[Vectors, int]:
        """Embed texts; shape (len(texts), dimensions), and the tokens that the model has read.

        Args:
            texts: Texts to embed.
            batch_size: Most texts in one batch.
            dimensions: Length to which vectors are cut off; None for the model's own.
            normalize: Whether vectors are scaled to length one.
        """


_CPU_BATCH_TOKENS = 2048
"""Tokens of a batch, padding included. On a CPU, larger batches are not faster."""


class TorchModel:
    """A model of sentence-transformers on PyTorch."""

    def __init__(self, model: Any) -> None:
        """Take a loaded model, on its device and in its precision."""
        self._model = model
        self.max_tokens = int(model.max_seq_length) - int(model.tokenizer.num_special_tokens_to_add())

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer, without truncation."""
        return FastTokenizer.from_transformers(self._model.tokenizer)

    def encode(
        self, texts: list[str], *, batch_size: int, dimensions: int | None, normalize: bool
    ) -> tuple[Vectors, int]:
        """Embed texts, as `EncoderModel` describes it.

        Args:
            texts: Texts to embed.
            batch_size: Most texts in one batch.
            dimensions: Length to which vectors are cut off; None for the model's own.
            normalize: Whether vectors are scaled to length one.
        """
        import torch

        special = int(self._model.max_seq_length) - self.max_tokens
        counts = [min(count, self.max_tokens) + special for count in self.tokenizer.count(texts)]
        parts, order = [], []
        for batch in split_batches(counts, inputs=batch_size, tokens=_CPU_BATCH_TOKENS):
            order += batch
            part = self._model.encode(
                [texts[place] for place in batch],
                batch_size=len(batch),
                truncate_dim=dimensions,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
            parts.append(part)
        # Scaled here: half precision leaves the length one by up to a thousandth.
        by_length = torch.cat(parts).float().cpu().numpy()
        vectors = np.empty_like(by_length)
        vectors[order] = scale(by_length) if normalize else by_length
        return vectors, sum(counts)


_TEXTS_PER_SLICE = 256
"""Texts that are tokenised at once, while the GPU computes the ones before."""
_GPU_BATCH_TOKENS = 2**15
"""Tokens of a batch: about 300 chunks, which a GPU with 16 GB of memory holds."""
_GRAPH_TOKENS = 64
"""Longest text, special tokens included, that has a graph: questions, and few passages."""

_LEAST_COSINE = 0.999
"""Least similarity of a recorded vector to the model's own, in half precision."""


class GpuModel(TorchModel):
    """A model of sentence-transformers on a GPU.

    Thread-safe. Nothing waits for the GPU before the vectors of all texts are copied from it at once. A text that comes
    alone is a question: on CUDA its kernels are launched together, as a graph.
    """

    def __init__(self, model: Any, *, graphs: bool = True) -> None:
        """Take a loaded model, on its device and in its precision.

        Args:
            graphs: Whether questions are recorded as graphs where the device is one of CUDA.
        """
        from tokenizers import Tokenizer as Backend

        super().__init__(model)
        self._backend = Backend.from_str(read_definition(model.tokenizer))
        self._backend.no_padding()
        self._backend.enable_truncation(int(model.max_seq_length))
        self._pad_id = int(model.tokenizer.pad_token_id or 0)
        self._inputs = {"attention_mask", *model.tokenizer.model_input_names}
        self._is_on_cuda = model.device.type == "cuda"
        self._graphs = _Graphs(self._compute, model.device) if graphs and self._is_on_cuda else None

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether a model reads texts as they are, without a chat template and a prompt."""
        modalities = getattr(model[0], "modality_config", {"text": {}})
        return "text" in modalities and "message" not in modalities and not model.default_prompt_name

    def encode(
        self,
        texts: list[str],
        *,
        batch_size: int,  # noqa: ARG002
        dimensions: int | None,
        normalize: bool,
    ) -> tuple[Vectors, int]:
        """Embed texts, as `EncoderModel` describes it.

        Args:
            texts: Texts to embed.
            batch_size: Not used: the tokens of a batch are its limit.
            dimensions: Length to which vectors are cut off; None for the model's own.
            normalize: Whether vectors are scaled to length one.
        """
        import torch

        order: list[int] = []
        parts, tokens = [], 0
        by_length = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        with torch.inference_mode():
            for start in range(0, len(texts), _TEXTS_PER_SLICE):
                places = by_length[start : start + _TEXTS_PER_SLICE]
                encodings = self._backend.encode_batch_fast([texts[place] for place in places])
                counts = list(map(len, encodings))
                tokens += sum(counts)
                for batch in split_batches(counts, inputs=len(counts), tokens=_GPU_BATCH_TOKENS):
                    order += [places[number] for number in batch]
                    parts.append(self._embed([encodings[number] for number in batch]))
            rows = torch.cat([part[:, :dimensions] for part in parts]).float().cpu().numpy()
        vectors = np.empty_like(rows)
        # Scaled here: half precision leaves the length one by up to a thousandth.
        vectors[order] = scale(rows) if normalize else rows
        return vectors, tokens

    def _embed(self, encodings: list[Any]) -> Any:
        if self._graphs is not None and len(encodings) == 1 and len(encodings[0]) <= _GRAPH_TOKENS:
            vector = self._graphs.embed(np.array([encodings[0].ids], dtype=np.int64))
            if vector is not None:
                return vector
        arrays = pad(encodings, self._pad_id)
        return self._compute({name: self._copy(array) for name, array in arrays.items() if name in self._inputs})

    def _copy(self, array: NDArray[np.int64]) -> Any:
        """Copy an array to the device; pinned memory lets this thread continue meanwhile."""
        import torch

        tensor = torch.from_numpy(array)
        if self._is_on_cuda:
            tensor = tensor.pin_memory()
        return tensor.to(self._model.device, non_blocking=self._is_on_cuda)

    def _compute(self, inputs: dict[str, Any]) -> Any:
        return self._model(inputs)["sentence_embedding"]


class _Graphs:
    """Recorded computations of one text, by its number of tokens. Thread-safe.

    A forward pass has hundreds of kernels, and launching one takes longer than a question keeps it busy. A graph
    launches them together. Its inputs and outputs have fixed places on the device, so it computes one text at a time.
    """

    def __init__(self, compute: Callable[[dict[str, Any]], Any], device: Any) -> None:
        """Args: compute: the model; it gets `input_ids` of shape (1, tokens) alone, because nothing is padded."""
        self._compute = compute
        self._device = device
        self._lock = threading.Lock()
        self._recorded: dict[int, tuple[Any, Any, Any]] = {}
        self._memory: Any = None
        self._supported = True

    def embed(self, ids: NDArray[np.int64]) -> Any:
        """Return the vector of a text on the device, shape (1, dimensions).

        The result is None where the model cannot be recorded, because its computation depends on values on the device.
        """
        import torch

        with self._lock, torch.cuda.device(self._device):
            if not self._supported:
                return None
            try:
                entry = self._recorded.get(ids.shape[1])
                if entry is None:
                    entry = self._recorded[ids.shape[1]] = self._record(ids.shape[1])
            except RuntimeError as error:
                self._supported = False
                logger.warning(
                    "questions are embedded without CUDA graphs: %s", first_line(error),
                    extra={"action": "cuda_graphs_unsupported"},
                )  # fmt: skip
                return None
            graph, inputs, outputs = entry
            inputs.copy_(torch.from_numpy(ids))
            graph.replay()
            return outputs.clone()

    def _record(self, tokens: int) -> tuple[Any, Any, Any]:
        import torch

        inputs = torch.zeros((1, tokens), dtype=torch.int64, device=self._device)
        # What a first run allocates and chooses must not be recorded.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._compute({"input_ids": inputs})
        torch.cuda.current_stream().wait_stream(stream)
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Other threads continue their work on the device.
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            outputs = self._compute({"input_ids": inputs})
        # Other tokens than the recorded ones: what depended on their values would be wrong.
        inputs.copy_(torch.arange(1, tokens + 1).unsqueeze(0))
        graph.replay()
        computed = self._compute({"input_ids": inputs})
        if torch.nn.functional.cosine_similarity(outputs.float(), computed.float()).item() < _LEAST_COSINE:
            raise RuntimeError("a recorded computation gives other vectors than the model")
        return graph, inputs, outputs
