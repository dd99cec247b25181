"""The real model, which each process loads once and asks once for each text."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kosmos_rag.models.embedding.encoders import EncoderModel
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder


@pytest.fixture(scope="session")
def loaded_models() -> dict[str, EncoderModel]:
    """Loaded models by name and settings."""
    return {}


@pytest.fixture(scope="session")
def vectors() -> dict[tuple[str, str], Any]:
    """Vectors of the real models by settings and text."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def _model_loaded_once(loaded_models: dict[str, EncoderModel], vectors: dict[tuple[str, str], Any]) -> Iterator[None]:
    """Let the commands and examples of a module share loaded models and vectors.

    Each command opens an engine with a model of its own, and the documents of the examples are read again and again.
    """
    obtain, encode = SentenceTransformerEmbedder._obtain, SentenceTransformerEmbedder._encode

    def obtain_once(embedder: SentenceTransformerEmbedder) -> EncoderModel:
        key = _key(embedder)
        if key not in loaded_models:
            loaded_models[key] = obtain(embedder)
        return loaded_models[key]

    def encode_once(embedder: SentenceTransformerEmbedder, texts: list[str]) -> Any:
        key = _key(embedder)
        if new := list(dict.fromkeys(text for text in texts if (key, text) not in vectors)):
            vectors.update(zip(((key, text) for text in new), encode(embedder, new), strict=True))
        return np.stack([vectors[key, text] for text in texts])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentenceTransformerEmbedder, "_obtain", obtain_once)
        patch.setattr(SentenceTransformerEmbedder, "_encode", encode_once)
        yield


def _key(embedder: SentenceTransformerEmbedder) -> str:
    return f"{embedder._settings.model_dump_json()} {embedder._models.model_dump_json()}"
