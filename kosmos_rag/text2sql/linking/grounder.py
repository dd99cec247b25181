"""Schema grounding over one collection of a tenant: schemas in, the part that a question needs out."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, DocumentInfo, Filter, IngestReport, Passage
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.retrieval.expansion.synonyms import Synonyms, read_rules
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.linking.catalog import curated_of, schemas_of
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.linking import Evidence, Linker, Weights
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.result import GroundingResult, SchemaRef
from kosmos_rag.text2sql.linking.select import join_hints, known, prompt_of, references, select
from kosmos_rag.text2sql.recipes import Recipe, template_recipes

_LINES_KEPT = 5_000


class _Known:
    """The schemas that the reader may read, ready to be asked. Thread-safe."""

    def __init__(
        self, changes: Mapping[str, int], listed: Sequence[DocumentInfo], synonyms: Synonyms, weights: Weights
    ) -> None:
        self.changes = changes
        self.schemas = {schema.name: schema for schema in schemas_of(listed)}
        self.versions = {info.source: info.version for info in listed}
        self._synonyms, self._weights = synonyms, weights
        self._linkers: dict[str | None, Linker] = {None: self._linker(self.schemas.values())}
        self._lock = threading.Lock()

    def linker(self, database: str | None) -> Linker:
        """Return what links to one database, or to all. Raises RequestError where there is none of that name."""
        with self._lock:
            if database is not None and database not in self._linkers:
                self._linkers[database] = self._linker([known(self.schemas, database)])
            return self._linkers[database]

    def _linker(self, schemas: Iterable[DatabaseSchema]) -> Linker:
        return Linker(NameIndex(schemas, self._synonyms), self._weights)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildReport:
    """What `build` did."""

    database: str
    fingerprint: str
    unchanged: bool
    """Whether the schema stood there already as it is; only its recipes were looked at then."""
    ingest: IngestReport
    removed: int
    """Documents of tables, columns and recipes that are gone."""


class SchemaGrounding:
    """Schemas of a collection, as one reader sees them. Make it once and keep it. Thread-safe."""

    def __init__(
        self,
        scope: Tenant,
        *,
        weights: Weights | None = None,
        synonyms: Path | None = None,
        refresh_s: float = 10.0,
    ) -> None:
        """`synonyms` is a file of your own, beside the general ones. Raises ConfigError where it cannot be read.

        Schemas are read again when a question finds a document that is newer. Every `refresh_s` the next question looks
        whether anything has changed: so long may an answer still name what is gone, or no longer for this reader.
        """
        self._scope = scope
        self._weights = weights or Weights()
        with as_file(files(__package__) / "hints.yaml") as path:
            rules = read_rules(path)
        self._synonyms = Synonyms([*rules, *(read_rules(synonyms) if synonyms else ())])
        self._refresh_s = refresh_s
        self._tokens_of_line = lru_cache(maxsize=_LINES_KEPT)(scope.count_tokens)
        self._lock = threading.Lock()
        self._read: _Known | None = None
        self._looked_at = 0.0

    def build(
        self, schema: DatabaseSchema, recipes: Iterable[Recipe] | None = None, *, acl: tuple[str, ...] = (EVERYONE,)
    ) -> BuildReport:
        """Make the collection tell of a schema and its recipes: changed documents are written, vanished ones removed.

        Recipes that follow from keys come by themselves. `recipes` take the place of those written by hand before;
        None keeps these, except those that name what the schema no longer has.
        The scope must read what it replaces: documents of this database that it cannot see stay.
        Raises ConfigError, ModelError, DatabaseError.
        """
        listed = self._scope.documents()
        unchanged = self._stands(schema, listed, acl)
        own = curated_of(listed, schema) if recipes is None else recipes
        every = {recipe.slug: recipe for recipe in (*template_recipes(schema), *own)}
        documents = list(schema_documents(schema, every.values(), acl=acl))
        there = {document.source for document in documents}
        gone = [
            info.source for info in listed if info.metadata.get("database") == schema.name and info.source not in there
        ]
        wanted = [document for document in documents if not unchanged or document.metadata["kind"] == "query_recipe"]
        report = self._scope.ingest(wanted)
        removed = self._scope.delete(gone) if gone else 0
        with self._lock:
            self._read = None
        return BuildReport(
            database=schema.name,
            fingerprint=schema.fingerprint(),
            unchanged=unchanged,
            ingest=report,
            removed=removed,
        )

    def build_all(self, schemas: Sequence[DatabaseSchema], *, acl: tuple[str, ...] = (EVERYONE,)) -> IngestReport:
        """Make the collection tell of these schemas and of no others, without recipes, in one go. Raises as `build`."""
        documents = [document for schema in schemas for document in schema_documents(schema, acl=acl)]
        there = {document.source for document in documents}
        gone = [info.source for info in self._scope.documents() if info.source not in there]
        report = self._scope.ingest(documents)
        if gone:
            self._scope.delete(gone)
        with self._lock:
            self._read = None
        return report

    def _stands(self, schema: DatabaseSchema, listed: Sequence[DocumentInfo], acl: tuple[str, ...]) -> bool:
        """Whether the collection tells of the very same schema. Whom documents are for is not listed: all, or anew."""
        if acl != (EVERYONE,):
            return False
        own = [info for info in listed if info.metadata.get("database") == schema.name]
        return any(stored.fingerprint() == schema.fingerprint() for stored in schemas_of(own))

    def schemas(self) -> list[DatabaseSchema]:
        """Return the schemas that the reader may read, by name. Raises DatabaseError."""
        return list(self._known().schemas.values())

    def ask(
        self,
        question: str,
        k: int = 10,
        *,
        database: str | None = None,
        tables: int = 5,
        max_tokens: int = 700,
    ) -> GroundingResult:
        """Return the part of the schemas that a question needs: `tables` of them, and `k` columns.

        In the order of importance, as much as `max_tokens` take is written into the prompt; the tables of the
        likeliest database come first. Raises RequestError, ModelUnavailable, DatabaseError.
        """
        if k < 1 or tables < 1 or max_tokens < 1:
            raise RequestError(f"k is {k}, tables {tables} and max_tokens {max_tokens}: each must be at least 1")
        wanted = None if database is None else Filter(where={"metadata.database": database})
        # Quotes are operators of a search; here they mark values, and no document of a schema must hold one.
        found = self._scope.search(question.replace('"', " "), filter=wanted)
        began = time.perf_counter()
        stands = self._fresh(found.hits)
        linker = stands.linker(database)
        entities = find_entities(question, known=linker.known_values, today=datetime.now(UTC).date())
        linked = linker.link(question, entities, Evidence.of(found.hits), tables=tables, columns=k)
        selection = None
        refs: tuple[SchemaRef, ...] = ()
        prompt, tokens = "", 0
        left_out: tuple[tuple[str, str], ...] = ()
        if linked.tables:
            schema = stands.schemas[linked.tables[0].database]
            refs = references(schema.name, schema, linked, k)
            selection = select(schema, linker, linked, refs, found.hits)
            count = self._count
            prompt, tokens, left_out = prompt_of(selection, linked, stands.schemas, max_tokens=max_tokens, count=count)
        return GroundingResult(
            question=question,
            database=selection.schema.name if selection else None,
            docs=found.hits,
            tables=linked.tables,
            schema_refs=refs,
            join_hints=join_hints(selection) if selection else (),
            selection=selection,
            entities=entities,
            prompt=prompt,
            tokens=tokens,
            left_out=left_out,
            warnings=found.warnings,
            timings_ms={**found.timings_ms, "ground": (time.perf_counter() - began) * 1000},
        )

    def _count(self, text: str) -> int:
        """Count tokens line by line: lines come again and again, and no token reaches over a line's end."""
        return sum(map(self._tokens_of_line, text.splitlines()))

    def _fresh(self, hits: Iterable[Passage]) -> _Known:
        """Return the schemas, read again where these documents are newer."""
        stands = self._known()
        if any(hit.version > stands.versions.get(hit.source, 0) for hit in hits if "definition" in hit.metadata):
            with self._lock:
                self._read = None
            stands = self._known()
        return stands

    def _known(self) -> _Known:
        with self._lock:
            now = time.monotonic()
            if self._read is None or now - self._looked_at > self._refresh_s:
                changes = self._scope.last_changes()  # before what is read: what changes in between is seen next time
                if self._read is None or self._read.changes != changes:
                    self._read = _Known(changes, self._scope.documents(), self._synonyms, self._weights)
                self._looked_at = now
            return self._read
