"""Five chunkers with one protocol, and the factory of the configured one."""

from typing import Protocol

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.hierarchical import HierarchicalChunker
from kosmos_rag.ingestion.chunking.markdown import MarkdownChunker
from kosmos_rag.ingestion.chunking.pack import Packer
from kosmos_rag.ingestion.chunking.paragraph import ParagraphChunker
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.semantic import SemanticChunker

__all__ = ["Chunker", "build_chunker"]

_MIN_BUDGET = 8
"""One character may be several tokens: a smaller budget might not hold any character."""


class Chunker(Protocol):
    """Splits a document into chunks.

    Chunks come in order of `start`; together they cover every character of the text that is not white space;
    none is empty or has more tokens than the budget it was built with.
    """

    @property
    def name(self) -> str:
        """Which splitter this is."""
        ...

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split; an all-blank text gives no chunks."""
        ...


def build_chunker(settings: ChunkingSettings, *, embedder: Embedder, max_tokens: int) -> Chunker:
    """Build the configured chunker.

    Args:
        settings: The settings of `rag.chunking`.
        embedder: Its tokenizer bounds the chunks; the semantic chunker embeds with it.
        max_tokens: Maximum tokens of a chunk, except for fenced blocks with `whole_blocks`.

    Raises:
        ConfigError: `max_tokens` is below 8.
    """
    if max_tokens < _MIN_BUDGET:
        raise ConfigError(
            f"{max_tokens} tokens are left for a chunk and {_MIN_BUDGET} are needed: "
            "use a model that reads more, or put less before each text"
        )
    budget = TokenBudget(embedder.tokenizer, max_tokens)
    recursive = RecursiveChunker(
        size=settings.recursive_size, overlap=settings.overlap, separators=settings.separators, budget=budget
    )
    packer = Packer(
        chunker=settings.strategy,
        min_size=settings.min_size,
        max_size=settings.max_size,
        budget=budget,
        recursive=recursive,
        whole_blocks=settings.whole_blocks,
    )
    match settings.strategy:
        case "recursive":
            return recursive
        case "paragraph":
            return ParagraphChunker(max_size=settings.max_size, budget=budget, packer=packer)
        case "markdown":
            return MarkdownChunker(max_size=settings.max_size, overlap=settings.overlap, budget=budget, packer=packer)
        case "hierarchical":
            return HierarchicalChunker(
                max_size=settings.max_size, section_size=settings.section_size, budget=budget, packer=packer
            )
        case "semantic":
            return SemanticChunker(
                min_size=settings.min_size,
                max_size=settings.max_size,
                threshold=settings.breakpoint_threshold,
                embedder=embedder,
                budget=budget,
                packer=packer,
                recursive=recursive,
            )
