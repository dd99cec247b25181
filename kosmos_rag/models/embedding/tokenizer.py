"""The tokenizer of a model, apart from the model: counting tokens must not depend on what encoding sets on it."""

from collections.abc import Sequence
from typing import Any

from kosmos_rag.core.errors import ModelUnavailable


class FastTokenizer:
    """A Hugging Face tokenizer without truncation or padding. Thread-safe, because nothing on it changes."""

    def __init__(self, pretrained: Any) -> None:
        """Copy the tokenizer of a loaded model. Raises ModelUnavailable where it is not a fast one."""
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
