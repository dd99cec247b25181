"""One document, from bytes to chunks: what happens to it alone, before it is embedded and published with others."""

import hashlib
import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from kosmos_rag.core.config import ParsingSettings, Settings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.protocols import Chunker, Tokenizer
from kosmos_rag.core.types import DEFAULT_COLLECTION, Chunk, ParsedDocument, SourceDocument
from kosmos_rag.ingestion.parsing import OutputLimits, is_small_text, media_types, parse
from kosmos_rag.ingestion.parsing.headings import plain_headings
from kosmos_rag.ingestion.sandbox.client import parse_confined

PIPELINE_VERSION = 3
"""Raised when parsing or chunking changes what comes of the same bytes: stored documents are then made anew."""

HEADER_TOKENS = 48
"""How much of the model's input the line with title and section may take; the rest is the chunk's."""


_CODE = frozenset(
    (
        *(".bash", ".c", ".cc", ".cpp", ".cs", ".css", ".go", ".h", ".hpp", ".java", ".js", ".json", ".jsx", ".kt"),
        *(".lua", ".php", ".pl", ".ps1", ".py", ".r", ".rb", ".rs", ".scala", ".sh", ".sql", ".swift", ".toml"),
        *(".ts", ".tsx", ".xml", ".yaml", ".yml"),
    )
)
"""Files whose words are names: stemming them, or dropping `in` and `is`, would lose what is looked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkedDocument:
    """A document that waits for its vectors."""

    id: uuid.UUID
    source: SourceDocument
    parsed: ParsedDocument
    title: str
    language: str
    fingerprint: str
    chunks: Sequence[Chunk]
    indexed: Sequence[str]
    mark: str | None = None
    """What the source says of its state, where it says so without being read."""
    truncated_tokens: int = 0
    """Of titles and sections that were too long to stand before their chunks whole."""


def document_id(tenant_id: uuid.UUID, collection: str, source: str) -> uuid.UUID:
    """Return the id of the document that `source` names: the same in every process and at every time."""
    # The default collection's documents are older than collections, and keep their ids.
    corpus = tenant_id if collection == DEFAULT_COLLECTION else uuid.uuid5(tenant_id, f"\x1f{collection}")
    return uuid.uuid5(corpus, source)


def declared_language(document: SourceDocument) -> str | None:
    """Return the language that goes with a document whatever is configured; None where the configured one does."""
    if document.language is not None:
        return document.language
    return "simple" if PurePath(document.source).suffix.lower() in _CODE else None


def language_of(document: SourceDocument, configured: str, known: Collection[str]) -> str:
    """Return the text search configuration of a document.

    Raises IngestionError where it is not among the known ones, which are those of the server.
    """
    own = declared_language(document)
    language = configured if own is None else own
    if language not in known:
        place = "ingestion.language" if own is None else "SourceDocument.language"
        raise IngestionError(
            "unknown_language",
            f"the language of {document.source} is {str(language)[:60]!r} ({place}), and the server has no text search "
            "configuration of that name; use english, german, simple or another one of its catalogue pg_ts_config",
        )
    return language


def version_id(document: "ChunkedDocument") -> uuid.UUID:
    """Return the id of a version: the same content under the same settings always gets the same."""
    return uuid.uuid5(document.id, document.fingerprint)


def content_hash(document: SourceDocument) -> str:
    """Return the SHA-256 of the bytes as they came in, hexadecimal."""
    return hashlib.sha256(document.data).hexdigest()


def pipeline_key(settings: Settings, model: str) -> str:
    """Return a text that changes whenever the settings would make other chunks, or readers, of the same bytes."""
    shape = [
        PIPELINE_VERSION,
        settings.rag.chunking.model_dump(mode="json"),
        settings.ingestion.language,
        model,
    ]
    if settings.ingestion.parsing.ocr:
        shape.append("ocr")
    if settings.rag.access.department_from is not None:
        shape.append(settings.rag.access.model_dump(mode="json"))
    return json.dumps(shape, sort_keys=True)


def fingerprint(document: SourceDocument, key: str) -> str:
    """Return a hash over content, what is kept with it, and the pipeline: equal means that nothing is to be done."""
    language = declared_language(document)
    kept = json.dumps(
        [document.title, dict(document.metadata), sorted(document.acl), *([] if language is None else [language])],
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(f"{content_hash(document)}\n{kept}\n{key}".encode()).hexdigest()


def process_document(
    document: SourceDocument,
    *,
    identity: uuid.UUID,
    key: str,
    language: str,
    languages: Collection[str],
    chunker: Chunker,
    tokenizer: Tokenizer,
    limits: ParsingSettings,
    find_headings: bool = False,
    mark: str | None = None,
) -> ChunkedDocument:
    """Parse and split one document; `language` is for documents without one of their own.

    With `find_headings`, those of a text or a PDF that has none are told by how they are written.

    Raises IngestionError where its language is not among those that the server has, ParseError.
    """
    analysed = language_of(document, language, languages)
    parsed = _parsed(document, limits)
    if find_headings and not parsed.headings and parsed.media_type in (media_types.TEXT, media_types.PDF):
        parsed = replace(parsed, headings=plain_headings(parsed.text))
    title = parsed.title or PurePath(document.source).stem or document.source
    chunks = chunker.split(parsed)
    pieces = [
        ChunkText(title=title, source=document.source, section=chunk.section, text=chunk.text) for chunk in chunks
    ]
    indexed, truncated = embedding_texts(pieces, tokenizer)
    return ChunkedDocument(
        id=identity,
        source=document,
        parsed=parsed,
        title=title,
        language=analysed,
        fingerprint=fingerprint(document, key),
        chunks=chunks,
        indexed=indexed,
        truncated_tokens=truncated,
        mark=mark,
    )


def _parsed(document: SourceDocument, limits: ParsingSettings) -> ParsedDocument:
    """Parse a document in a process of its own, but for small plain text.

    That passes through a few lines of our own and no library, and a process costs more than all that is done to it.
    """
    if is_small_text(document.data, document.source):
        return parse(document, OutputLimits(text_bytes=limits.text_mb * 2**20, pages=limits.pages))
    return parse_confined(document, limits)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkText:
    """What the text that a chunk is found by is made of: all of it is stored with the chunk and its document."""

    title: str
    source: str
    section: Sequence[str]
    text: str

    @property
    def header(self) -> str:
        """Title and section, as far as the chunk does not say them itself.

        A title that is the file's name is left out: `scan-0042` says nothing.
        """
        title = "" if self.title in (PurePath(self.source).stem, self.source) else self.title
        names = dict.fromkeys([title, *self.section])
        return " | ".join(name for name in names if name and name not in self.text)


def embedding_texts(pieces: Sequence[ChunkText], tokenizer: Tokenizer) -> tuple[list[str], int]:
    """Put title and section before each chunk's text. Returns the texts, and how many tokens had no room.

    A piece from the middle of a document seldom names what it is about: its headings do.
    """
    headers = [piece.header for piece in pieces]
    shortened = {header: _shorten(header, tokenizer) for header in set(headers) if header}
    texts = [
        f"{shortened[header][0]}\n{piece.text}" if header else piece.text
        for header, piece in zip(headers, pieces, strict=True)
    ]
    return texts, sum(shortened[header][1] for header in headers if header)


def _shorten(header: str, tokenizer: Tokenizer) -> tuple[str, int]:
    spans = tokenizer.offsets(header)
    if len(spans) < HEADER_TOKENS:
        return header, 0
    return header[: spans[HEADER_TOKENS - 2][1]], len(spans) - HEADER_TOKENS + 1
