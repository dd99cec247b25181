"""Process one document from bytes to chunks: check, fingerprint, parse, chunk."""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from kosmos_rag.core.config import ParsingSettings, Settings
from kosmos_rag.core.errors import IngestionError, SourceError
from kosmos_rag.core.protocols import Embedder, Tokenizer
from kosmos_rag.core.stored_files import parse_file_source
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.telemetry.metrics import INGESTION_STAGE_SECONDS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.text.languages import choose_text_language
from kosmos_rag.core.types import (
    DEFAULT_COLLECTION,
    PERMISSION_FEED,
    Chunk,
    Note,
    ParsedDocument,
    SourceDocument,
    are_names,
    is_text,
)
from kosmos_rag.ingestion.acl import apply_access_policy
from kosmos_rag.ingestion.chunking import Chunker, build_chunker
from kosmos_rag.ingestion.definitions import find_defined_terms
from kosmos_rag.ingestion.parts import may_have_parts
from kosmos_rag.ingestion.sources.listing import MAX_SOURCE_CHARS, Entry
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.headings import find_plain_headings
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.sandbox.client import parse_confined, start_parser
from kosmos_rag.parsing.small_text import parse_small_text
from kosmos_rag.parsing.text.definitions import has_grammar

PIPELINE_VERSION = 24
"""Incremented if parsing, chunking or analysis changes its output: stored documents are then processed again."""

HEADER_TOKENS = 48
"""Tokens of the model's input for title and section; the others are for the chunk."""

_TITLE_WEIGHT = 2
"""Weight of the title in BM25F, where that of section and text is 1."""
_DEFINED_WEIGHT = 2
"""Weight of the terms that a chunk defines. They are in its text too."""
_MAX_FIELD = 500
"""Characters of a title, a section and defined terms that are analysed in addition to the text."""


_CODE = frozenset(
    (
        *(".bash", ".c", ".cc", ".cpp", ".cs", ".css", ".go", ".h", ".hpp", ".java", ".js", ".json", ".jsx", ".kt"),
        *(".lua", ".php", ".pl", ".ps1", ".py", ".r", ".rb", ".rs", ".scala", ".sh", ".sql", ".swift", ".toml"),
        *(".ts", ".tsx", ".xml", ".yaml", ".yml"),
    )
)
"""Files of identifiers: stemming and stop words would lose search terms."""


_MAX_LEVELS = 100
"""Levels of a value. More than 200 are never read again: the reader of JSON refuses them, and jobs add some."""
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""NUL as JSON escapes it, without an escaped backslash before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkedDocument:
    """A parsed and chunked document, before it is embedded."""

    id: uuid.UUID
    source: SourceDocument
    parsed: ParsedDocument
    title: str
    language: str
    """Text search configuration; chunks that are clearly in another language have theirs."""
    languages: Sequence[str]
    """Text search configuration of each chunk."""
    fingerprint: str
    chunks: Sequence[Chunk]
    embedded: Sequence[str]
    """Text of each chunk that is embedded: title, section, text."""
    analysed: Sequence[str]
    """Text of each chunk whose words are indexed: the title twice, section, defined terms twice, text."""
    etag: str | None = None
    """Version of the document at its source, where the source has one."""
    file_id: uuid.UUID | None = None
    """Id that the whole file has as a document, for a part of one."""
    truncated_tokens: int = 0
    """Tokens of titles and sections that were cut off."""
    keeps_original: bool = False
    """Its file is stored too."""


def check_source_name(name: str) -> None:
    """Raise SourceError where a document cannot be stored under this name."""
    if not is_text(name) or not name.strip() or len(name) > MAX_SOURCE_CHARS:
        raise SourceError(
            "unreadable",
            f"source name {str(name)[:60]!r} must be text of 1 to {MAX_SOURCE_CHARS} characters without NUL; rename it",
        )


def check_document(document: SourceDocument, *, max_bytes: int) -> None:
    """Raise SourceError if a document cannot be stored.

    Because of its name, its fields or its size.
    """
    name = document.source
    check_source_name(name)
    if not isinstance(document.data, bytes):
        raise SourceError("unreadable", f"data of {name!r} is {type(document.data).__name__}; give bytes")
    if not document.acl or not are_names(document.acl):
        raise SourceError("unreadable", f"acl of {name!r} is {document.acl!r}; give at least one name, ('finance',)")
    if PERMISSION_FEED in document.acl and len(document.acl) > 1:
        raise SourceError(
            "unreadable", f"acl of {name!r} is {document.acl!r}; give {PERMISSION_FEED!r} alone, or leave it out"
        )
    try:
        check_json([document.title, dict(document.metadata)])
    except (RecursionError, TypeError, ValueError) as error:
        raise SourceError(
            "unreadable",
            f"title or metadata of {document.source!r} cannot be stored as JSON ({error}); correct them",
        ) from error
    if document.media_type is not None and document.media_type not in media_types.NAMES:
        raise SourceError(
            "unreadable",
            f"media type of {name!r} is {str(document.media_type)[:60]!r}; give one that can be parsed, such as "
            "text/plain, or none",
        )
    if len(document.data) > max_bytes:
        raise SourceError(
            "too_large",
            f"{document.source} has {len(document.data):,} bytes, more than ingestion.max_file_mb allows "
            f"({max_bytes:,}); split it or raise the limit",
        )


def check_json(value: object) -> None:
    """Check that PostgreSQL can store a value as JSON.

    Raises RecursionError, TypeError, ValueError.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
    text.encode()
    if _ESCAPED_NUL.search(text):
        raise ValueError("it contains NUL")
    values, levels = [value], 0
    while values := [inner for outer in values for inner in _list_values(outer)]:
        levels += 1
        if levels > _MAX_LEVELS:
            raise ValueError(f"it has more than {_MAX_LEVELS} levels")


def _list_values(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def document_id(tenant_id: uuid.UUID, collection: str, source: str) -> uuid.UUID:
    """Return the id of a document: the same in every process."""
    # The default collection's documents are older than collections, and keep their ids.
    corpus = tenant_id if collection == DEFAULT_COLLECTION else uuid.uuid5(tenant_id, f"\x1f{collection}")
    return uuid.uuid5(corpus, source)


def declared_language(document: SourceDocument) -> str | None:
    """Return the language that a document or its file type declares.

    The result is None if the configured one applies.
    """
    if document.language is not None:
        return document.language
    return "simple" if PurePath(document.source).suffix.lower() in _CODE else None


def choose_language(document: SourceDocument, configured: str, available: Collection[str]) -> str:
    """Return the text search configuration of a document.

    Args:
        available: Text search configurations of the server.

    Raises:
        IngestionError: The server has no such configuration.
    """
    declared = declared_language(document)
    language = configured if declared is None else declared
    if language not in available:
        setting = "ingestion.language" if declared is None else "SourceDocument.language"
        raise IngestionError(
            "unknown_language",
            f"the language of {document.source} is {str(language)[:60]!r} ({setting}), and the server has no text "
            "search configuration of that name; use english, german, simple or another one of pg_ts_config",
        )
    return language


def version_id(document: "ChunkedDocument") -> uuid.UUID:
    """Return the id of a version: equal for equal content and settings."""
    return uuid.uuid5(document.id, document.fingerprint)


def content_hash(document: SourceDocument) -> str:
    """Return the SHA-256 of the document's bytes, hexadecimal."""
    return hashlib.sha256(document.data).hexdigest()


def build_pipeline_key(settings: Settings, model: str) -> str:
    """Return a key of the settings that determine chunks and access."""
    shape = [
        PIPELINE_VERSION,
        settings.rag.chunking.model_dump(mode="json"),
        settings.ingestion.language,
        model,
    ]
    if settings.ingestion.parsing.ocr:
        shape.append("ocr")
    if settings.ingestion.parsing.hidden_cells:
        shape.append("hidden_cells")
    if settings.ingestion.parsing.libreoffice:
        shape.append("libreoffice")
    if settings.ingestion.keep_originals:
        shape.append(f"originals:{settings.ingestion.max_original_mb}")
    if settings.rag.access.department_from is not None:
        shape.append(settings.rag.access.model_dump(mode="json"))
    return json.dumps(shape, sort_keys=True)


def fingerprint(document: SourceDocument, key: str) -> str:
    """Return a hash of content, fields and pipeline.

    An equal fingerprint means that the document is unchanged.
    """
    language = declared_language(document)
    code = media_types.CODE.get(PurePath(document.source).suffix.lower().lstrip("."), "")
    grammar = "grammar" if has_grammar(code) else None  # where the extra was installed since, sections differ
    optional = [value for value in (language, document.media_type, document.skipped_rows, grammar) if value is not None]
    fields = json.dumps(
        [document.title, dict(document.metadata), sorted(document.acl), *optional],
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(f"{content_hash(document)}\n{fields}\n{key}".encode()).hexdigest()


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
    etag: str | None = None,
) -> ChunkedDocument:
    """Parse and chunk one document.

    Args:
        document: the document, with its access policy applied.
        key: what `build_pipeline_key` returned for the settings.
        language: text search configuration of documents that declare none.
        languages: text search configurations of the server.
        chunker: splits the parsed text.
        tokenizer: that of the embedding model; limits title and section to `HEADER_TOKENS`.
        limits: time, memory, text and pages that parsing may take.
        find_headings: find the headings of a text or PDF without any by how they are written.
        etag: version of the document at its source.

    Raises:
        IngestionError: the server has no such language.
        ParseError: the bytes are not a document that can be used.
    """
    text_search_language = choose_language(document, language, languages)
    parsed = _parse(document, limits)
    if find_headings and not parsed.headings and parsed.media_type in (media_types.TEXT, media_types.PDF):
        parsed = replace(parsed, headings=find_plain_headings(parsed.text))
    if declared_language(document) is None:
        # Short chunks, names and tables of a German file have the language of the file, not the configured one.
        text_search_language = choose_text_language(parsed.text, text_search_language, languages)
    title = parsed.title or PurePath(parse_file_source(document.source, identity)[1]).stem or document.source
    chunks = chunker.split(parsed)
    chunk_texts = [
        ChunkText(
            title=title,
            source=document.source,
            section=chunk.section,
            text=chunk.text,
            table_context=chunk.table_context,
        )
        for chunk in chunks
    ]
    embedded, truncated = embedding_texts(chunk_texts, tokenizer)
    return ChunkedDocument(
        id=identity,
        source=replace(document, metadata={**parsed.metadata, **document.metadata}),
        parsed=parsed,
        title=title,
        language=text_search_language,
        languages=[choose_text_language(chunk.text, text_search_language, languages) for chunk in chunks],
        fingerprint=fingerprint(document, key),
        chunks=chunks,
        embedded=embedded,
        analysed=[chunk_text.analysed for chunk_text in chunk_texts],
        truncated_tokens=truncated,
        etag=etag,
    )


def _parse(document: SourceDocument, limits: ParsingSettings) -> ParsedDocument:
    """Parse a document in a separate process, except small plain text.

    Plain text needs no library, and a process costs more than its parsing.
    """
    started_at = time.perf_counter()
    parsed: ParsedDocument | None = None
    try:
        output = OutputLimits(text_bytes=limits.text_mb * 2**20, pages=limits.pages)
        parsed = parse_small_text(document, output) or parse_confined(document, limits)
        return parsed
    finally:
        seconds = time.perf_counter() - started_at
        usage.record(usage.Quantity.PARSING_SECONDS, seconds)
        if parsed is not None:  # what the child reports cannot be more than it took
            usage.record(usage.Quantity.OCR_SECONDS, min(parsed.ocr_seconds, seconds))


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkText:
    """The fields of a chunk."""

    title: str
    source: str
    section: Sequence[str]
    text: str
    table_context: Sequence[str] = ()

    @property
    def header(self) -> str:
        """Title, section and table context that the chunk does not contain.

        A title that is the file's name is left out: `scan-0042` carries no meaning. So are the names of columns that
        the rows repeat.
        """
        names = dict.fromkeys([self._title, *self.section, *self._table])
        return " | ".join(name for name in names if name and name not in self.text)

    @property
    def analysed(self) -> str:
        """The text whose words are indexed; repetitions are weights of fields.

        Title and section are included also if the chunk contains them: a chunk that begins with its heading has more
        evidence than one that mentions it.
        """
        section = " | ".join(dict.fromkeys(name for name in self.section if name != self._title))
        table = (part for part in self._table if part not in self.text)
        defined = "\n".join(find_defined_terms(self.text))[:_MAX_FIELD]
        fields = [
            *[self._title[:_MAX_FIELD]] * _TITLE_WEIGHT,
            section[:_MAX_FIELD],
            *[defined] * _DEFINED_WEIGHT,
            *table,
            self.text,
        ]
        return "\n".join(field for field in fields if field)

    @property
    def _title(self) -> str:
        return "" if self.title in (PurePath(self.source).stem, self.source) else self.title

    @property
    def _table(self) -> list[str]:
        return [part for part in self.table_context if not all(f"{name}:" in self.text for name in part.split(" | "))]


def embedding_texts(chunk_texts: Sequence[ChunkText], tokenizer: Tokenizer) -> tuple[list[str], int]:
    """Prefix each chunk's text with title and section.

    Returns the texts, and the number of truncated tokens. A chunk from the middle of a document seldom names its
    subject: its headings do.
    """
    headers = [chunk_text.header for chunk_text in chunk_texts]
    shortened = {header: _shorten(header, tokenizer) for header in set(headers) if header}
    texts = [
        f"{shortened[header][0]}\n{chunk_text.text}" if header else chunk_text.text
        for header, chunk_text in zip(headers, chunk_texts, strict=True)
    ]
    return texts, sum(shortened[header][1] for header in headers if header)


def _shorten(header: str, tokenizer: Tokenizer) -> tuple[str, int]:
    spans = tokenizer.offsets(header)
    if len(spans) < HEADER_TOKENS:
        return header, 0
    return header[: spans[HEADER_TOKENS - 2][1]], len(spans) - HEADER_TOKENS + 1


class DocumentProcessor:
    """Checks, fingerprints, parses and chunks documents of a collection.

    Thread-safe.
    """

    def __init__(self, settings: Settings, embedder: Embedder, telemetry: Telemetry) -> None:
        """Create a processor; models are loaded on first use.

        Args:
            settings: Settings of the collection.
            embedder: Its tokenizer and input length bound the chunks; the semantic chunker embeds with it.
            telemetry: Receives the duration of stages.
        """
        self.settings = settings
        self._embedder = embedder
        self._telemetry = telemetry
        self._pipeline_key = build_pipeline_key(settings, embedder.name)

    @cached_property
    def _chunker(self) -> Chunker:
        budget = self._embedder.max_tokens - HEADER_TOKENS
        return build_chunker(self.settings.rag.chunking, embedder=self._embedder, max_tokens=budget)

    @cached_property
    def _limits(self) -> ParsingSettings:
        limits = self.settings.ingestion.parsing
        if limits.ocr:
            from kosmos_rag.parsing.pdf.ocr import require_ocr  # with the parsers of PDF, which run in the sandbox

            require_ocr()
        return limits

    def warm_up(self) -> None:
        """Load the model, the chunker and the fork server of the parser.

        Raises ModelUnavailable, ConfigError.
        """
        _ = self._limits
        start_parser()
        self._embedder.embed(["warm"])
        _ = self._chunker

    def check(self, document: SourceDocument) -> None:
        """Raise IngestionError if a document cannot be stored, or lacks a department that the settings require."""
        check_document(document, max_bytes=self.settings.ingestion.max_file_bytes)
        apply_access_policy(document, self.settings.rag.access)

    def fingerprint(self, document: SourceDocument) -> str:
        """Return the fingerprint that the document has once stored. Raises IngestionError."""
        return fingerprint(apply_access_policy(document, self.settings.rag.access), self._pipeline_key)

    def compute_etag(self, entry: Entry) -> str | None:
        """Return an etag that covers the entry and the settings.

        The result is None for an entry without one.
        """
        if entry.etag is None:
            return None
        # The parts of a file depend on the limit, and a file above it is tried again under another one.
        limit = f"\x1f{self.settings.ingestion.parsing.text_mb}" if may_have_parts(entry.source) else ""
        text = f"{entry.etag}\x1f{self._pipeline_key}{limit}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def process(
        self,
        document_id: uuid.UUID,
        document: SourceDocument,
        languages: Collection[str],
        *,
        etag: str | None = None,
        file_id: uuid.UUID | None = None,
    ) -> ChunkedDocument:
        """Parse and chunk a document.

        Args:
            document_id: id that the document is stored under.
            languages: text search configurations of the server.
            etag: version of the document at its source.
            file_id: id that the whole file has as a document, for a part of one.

        Raises:
            IngestionError: it cannot be parsed, or analysed, or has no department.
        """
        with self._telemetry.time_stage(INGESTION_STAGE_SECONDS, "chunk"):
            processed = process_document(
                apply_access_policy(document, self.settings.rag.access),
                identity=document_id,
                key=self._pipeline_key,
                language=self.settings.ingestion.language,
                languages=languages,
                chunker=self._chunker,
                tokenizer=self._embedder.tokenizer,
                limits=self._limits,
                find_headings=self.settings.rag.chunking.plain_headings,
                etag=etag,
            )
        processed = replace(processed, file_id=file_id)
        return self._keep_original(processed) if self.settings.ingestion.keep_originals else processed

    def _keep_original(self, document: ChunkedDocument) -> ChunkedDocument:
        megabytes = self.settings.ingestion.max_original_mb
        if len(document.source.data) <= megabytes * 2**20:
            return replace(document, keeps_original=True)
        note = Note(
            code="original_not_stored",
            message=f"the file is larger than ingestion.max_original_mb ({megabytes}); its pages cannot be shown",
        )
        return replace(document, parsed=replace(document.parsed, notes=(*document.parsed.notes, note)))
