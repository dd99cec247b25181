"""Loaded models of sentence-transformers, on a CPU and on a GPU."""

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Tokenizer, Vectors
from kosmos_rag.models.batches import pad, split_batches
from kosmos_rag.models.embedding.tokenizer import FastTokenizer, read_definition
from kosmos_rag.models.onnx_session import scale


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
            batch_size: Most texts in one batch.
            dimensions: Length to which vectors are cut off; None for the model's own.
            normalize: Whether vectors are scaled to length one.
        """


_CPU_BATCH_TOKENS = 2048
"""Tokens of a batch, padding included. On a CPU, larger batches are not faster."""
_GPU_BATCH_TOKENS = 2**15
"""Tokens of a batch: about 300 chunks, which a GPU with 16 GB of memory holds."""


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
        """Embed texts, as `EncoderModel` describes it. Args: see `EncoderModel.encode`."""
        import torch

        special = int(self._model.max_seq_length) - self.max_tokens
        counts = [min(count, self.max_tokens) + special for count in self.tokenizer.count(texts)]
        parts, order = [], []
        if self._model.device.type == "cpu":
            batches = split_batches(counts, inputs=batch_size, tokens=_CPU_BATCH_TOKENS)
        else:
            batches = split_batches(counts, inputs=len(texts), tokens=_GPU_BATCH_TOKENS)
        for batch in batches:
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


class GpuModel(TorchModel):
    """A model of sentence-transformers on a GPU.

    Thread-safe. Nothing waits for the GPU before the vectors of all texts are copied from it at once.
    """

    def __init__(self, model: Any) -> None:
        """Take a loaded model, on its device and in its precision."""
        from tokenizers import Tokenizer as Backend

        super().__init__(model.eval())
        self._backend = Backend.from_str(read_definition(model.tokenizer))
        self._backend.no_padding()
        self._backend.enable_truncation(int(model.max_seq_length))
        self._pad_id = int(model.tokenizer.pad_token_id or 0)
        self._inputs = {"attention_mask", *model.tokenizer.model_input_names}
        self._is_on_cuda = model.device.type == "cuda"

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

        The tokens of a batch are its limit, and not `batch_size`. Args: see `EncoderModel.encode`.
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
