"""Tokenizers of embedding models: exact ones, and an estimate."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kosmos_rag.core.errors import ConfigError, ModelUnavailable, first_line
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.core.protocols import Tokenizer

# Subword tokenizers make about one token of four letters of English, and more of names, codes and other languages.
_TOKEN = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,2}|[^\sA-Za-z0-9]")


class FastTokenizer:
    """A tokenizer of the library `tokenizers`, without truncation or padding.

    Thread-safe: nothing on it changes. Counting tokens must not depend on what an encoding sets on the model's own
    tokenizer.
    """

    def __init__(self, definition: str) -> None:
        """Args: definition: content of a `tokenizer.json`."""
        from tokenizers import Tokenizer as Backend

        self._tokenizer = Backend.from_str(definition)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @classmethod
    def from_transformers(cls, pretrained: Any) -> "FastTokenizer":
        """Copy the tokenizer of a loaded model. Raises ModelUnavailable where it is not a fast tokenizer."""
        return cls(read_definition(pretrained))

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens not included."""
        return [len(entry.ids) for entry in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the character span of each token, special tokens not included."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)


def read_definition(pretrained: Any) -> str:
    """Return the content of the `tokenizer.json` of a loaded model.

    Raises ModelUnavailable where its tokenizer is not a fast one.
    """
    backend = getattr(pretrained, "backend_tokenizer", None)
    if backend is None:
        raise ModelUnavailable("the model has no fast tokenizer, and exact token counts need one; choose another model")
    return str(backend.to_str())


class EstimatingTokenizer:
    """Estimates the tokens of a model whose tokenizer is not known.

    A token is up to four letters, up to two digits, or any other character that is not a space. That is more than the
    common tokenizers make of a text, so that a text within the limit by this count is within the model's limit too.
    """

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the estimated number of tokens of each text."""
        return [len(_TOKEN.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the character span of each estimated token."""
        return [match.span() for match in _TOKEN.finditer(text)]


def load_tokenizer(path: Path | None, key: str) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`; an estimate without one.

    Args:
        path: the file, or the folder that contains it.
        key: the key of the configuration that names it, for messages.

    Raises:
        ConfigError: there is no tokenizer at the path.
    """
    if path is None:
        return EstimatingTokenizer()
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return FastTokenizer(file.read_text(encoding="utf-8"))
    except ImportError as error:
        raise missing_extra("tokenizer", key, "tokenizers") from error
    except OSError as error:
        raise ConfigError(f"{key} = {str(path)!r} cannot be read: {error.strerror}; name a tokenizer.json") from error
    # The library raises bare exceptions.
    except Exception as error:
        raise ConfigError(
            f"{key} = {str(path)!r} is not a tokenizer ({first_line(error)[:160]}); name a tokenizer.json"
        ) from error
