"""Schema grounding over a collection.

It selects the part of the schemas that a question needs.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, DocumentInfo, Filter, IngestReport
from kosmos_rag.engine.synonyms import Synonyms, read_rules
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.guessed_keys import guess_keys
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.linking.catalog import parse_curated_recipes, parse_schemas
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.exclusions import exclude_columns, find_exclusions, read_exclusions
from kosmos_rag.text2sql.linking.linking import Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.result import NO_SCHEMA, GroundingResult
from kosmos_rag.text2sql.linking.select import build_prompt, column_references, get_schema, select_parts
from kosmos_rag.text2sql.linking.synonym_mining import LoggedQuestion, Suggestion, suggest_synonyms
from kosmos_rag.text2sql.linking.weights import Weights
from kosmos_rag.text2sql.query_examples import create_example, example_document, parse_examples
from kosmos_rag.text2sql.recipes import template_recipes
from kosmos_rag.text2sql.records import QueryExample, Recipe, SchemaRef
from kosmos_rag.text2sql.settings import Text2SqlSettings

_TOKEN_CACHE_LINES = 5_000


class _SchemaSnapshot:
    """Schemas that the reader may read, with their linkers. Thread-safe."""

    def __init__(
        self,
        changes: Mapping[str, str],
        documents: Sequence[DocumentInfo],
        synonyms: Synonyms,
        weights: Weights,
    ) -> None:
        self.changes = changes
        self.schemas = {schema.name: schema for schema in parse_schemas(documents)}
        self.schemas_to_link = {name: guess_keys(schema) for name, schema in self.schemas.items()}
        self.exclusions = read_exclusions(documents)
        self._synonyms, self._weights = synonyms, weights
        self._linkers: dict[str | None, Linker] = {None: self._linker(self.schemas_to_link.values())}
        self._lock = threading.Lock()

    def linker(self, database: str | None) -> Linker:
        """Return the linker of one database, or of all.

        Raises:
            RequestError: There is no database of that name.
        """
        with self._lock:
            if database is not None and database not in self._linkers:
                self._linkers[database] = self._linker([get_schema(self.schemas_to_link, database)])
            return self._linkers[database]

    def _linker(self, schemas: Iterable[DatabaseSchema]) -> Linker:
        return Linker(NameIndex(schemas, self._synonyms), self._weights)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildReport:
    """Report of `build`."""

    database: str
    fingerprint: str
    unchanged: bool
    """Whether the collection held the same schema; only its recipes were updated."""
    ingest: IngestReport
    removed: int
    """Number of documents removed."""


class SchemaGrounding:
    """Schema grounding for one reader over one collection. Thread-safe.

    Building it reads all schemas: create it once and reuse it.
    """

    def __init__(
        self,
        tenant: Tenant,
        *,
        weights: Weights | None = None,
        synonyms: Path | None = None,
    ) -> None:
        """Create a grounding; schemas are read on first use.

        Each question looks whether the documents that the reader may read have changed, in one statement: schemas are
        read again only after a change.

        Args:
            tenant: The tenant's collection, with the reader's principals.
            weights: Weights of the linking scores.
            synonyms: Path of a synonym file, in addition to the built-in one.

        Raises:
            ConfigError: The synonym file cannot be read.
        """
        self._tenant = tenant
        self._weights = weights or Weights()
        with as_file(files(__package__) / "hints.yaml") as path:
            rules = read_rules(path)
        self._synonyms = Synonyms([*rules, *(read_rules(synonyms) if synonyms else ())])
        self._tokens_of_line = lru_cache(maxsize=_TOKEN_CACHE_LINES)(tenant.count_tokens)
        self._lock = threading.Lock()
        self._snapshot: _SchemaSnapshot | None = None

    def build(
        self, schema: DatabaseSchema, recipes: Iterable[Recipe] | None = None, *, acl: tuple[str, ...] = (EVERYONE,)
    ) -> BuildReport:
        """Write the documents of a schema and its recipes to the collection.

        Changed documents are written and vanished ones removed. Recipes derived from keys are included. The tenant must
        read what it replaces: documents of this database that it cannot see stay. Raises SchemaInvalid where a text has
        NUL, which cannot be stored, ConfigError, ModelError and DatabaseError.

        Args:
            recipes: Replaces the hand-written recipes; None keeps those that still fit the schema. Accepted queries
                that fit are always kept.
        """
        existing = self._tenant.documents()
        # As they are read: a document that cannot be read would make all questions over the collection fail.
        unchanged = self._is_current(parse_schemas(schema_documents(schema)), existing, acl)
        curated = parse_curated_recipes(existing, schema) if recipes is None else recipes
        all_recipes = {recipe.slug: recipe for recipe in (*template_recipes(schema), *curated)}
        documents = list(schema_documents(schema, all_recipes.values(), acl=acl))
        sources = {document.source for document in documents}
        sources |= {example.id for example in parse_examples(existing, schema)}
        removed_sources = [
            info.source
            for info in existing
            if info.metadata.get("database") == schema.name and info.source not in sources
        ]
        changed = [document for document in documents if not unchanged or document.metadata["kind"] == "query_recipe"]
        report = self._tenant.ingest(changed)
        removed = self._tenant.delete(removed_sources) if removed_sources else 0
        with self._lock:
            self._snapshot = None
        return BuildReport(
            database=schema.name,
            fingerprint=schema.fingerprint(),
            unchanged=unchanged,
            ingest=report,
            removed=removed,
        )

    def build_all(self, schemas: Sequence[DatabaseSchema], *, acl: tuple[str, ...] = (EVERYONE,)) -> IngestReport:
        """Replace all schemas of the collection by these, without recipes.

        Raises as `build`.
        """
        documents = [document for schema in schemas for document in schema_documents(schema, acl=acl)]
        parse_schemas(documents)  # refused before one of them is stored
        sources = {document.source for document in documents}
        removed_sources = [info.source for info in self._tenant.documents() if info.source not in sources]
        report = self._tenant.ingest(documents)
        if removed_sources:
            self._tenant.delete(removed_sources)
        with self._lock:
            self._snapshot = None
        return report

    def _is_current(
        self, schemas: Sequence[DatabaseSchema], existing: Sequence[DocumentInfo], acl: tuple[str, ...]
    ) -> bool:
        """Return whether the collection has the same schemas for everyone.

        The acl of documents is not listed: a schema for some readers is written again.
        """
        if acl != (EVERYONE,):
            return False
        names = {schema.name for schema in schemas}
        stored = parse_schemas(info for info in existing if info.metadata.get("database") in names)
        return bool(stored) and {item.fingerprint() for item in stored} == {item.fingerprint() for item in schemas}

    def schemas(self) -> list[DatabaseSchema]:
        """Return the schemas that the reader may read, by name.

        Raises DatabaseError.
        """
        return list(self._load_snapshot().schemas.values())

    def schema(self, database: str) -> DatabaseSchema:
        """Return one of these schemas.

        Raises RequestError if there is no such database that the reader may read, and DatabaseError.
        """
        return get_schema(self._load_snapshot().schemas, database)

    def add_example(
        self, question: str, sql: str, *, database: str, acl: tuple[str, ...] = (EVERYONE,)
    ) -> QueryExample:
        """Store a query that a person accepted for a question.

        It replaces the query of the same question. Raises RequestError, QueryRefused for a query that is not one SELECT
        over the schema, ModelError and DatabaseError.

        Args:
            sql: The accepted query.
        """
        example = create_example(question, sql, self.schema(database))
        report = self._tenant.ingest(example_document(example, acl=acl))
        if report.failed:
            raise RequestError(f"the example cannot be stored: {report.failed[0].message}")
        return example

    def examples(self) -> list[QueryExample]:
        """Return the accepted queries of this reader.

        Sorted by database and id. Raises DatabaseError.
        """
        documents = self._tenant.documents()
        return [example for schema in self.schemas() for example in parse_examples(documents, schema)]

    def suggest_synonyms(self, *, minimum: int = 3) -> list[Suggestion]:
        """Suggest synonyms by the words of accepted questions, for review.

        Raises DatabaseError.

        Args:
            minimum: Least number of questions that agree.
        """
        return suggest_synonyms(
            (
                LoggedQuestion(
                    question=example.question,
                    chosen=tuple(f"{table}.{column}" for table, column in example.columns),
                )
                for example in self.examples()
            ),
            minimum=minimum,
        )

    def ask(
        self,
        question: str,
        k: int = 10,
        *,
        database: str | None = None,
        tables: int = 5,
        max_tokens: int = 700,
    ) -> GroundingResult:
        """Select the tables, columns and joins that a question needs.

        The prompt holds the most important parts within `max_tokens`, the tables of the likeliest database first.
        Raises RequestError, ModelUnavailable and DatabaseError.

        Args:
            k: Maximum number of columns; fewer are returned where the evidence ends.
            database: Restricts the result to one database; None is all.
            tables: Number of tables.
            max_tokens: Token budget of the prompt.
        """
        if k < 1 or tables < 1 or max_tokens < 1:
            raise RequestError(f"k is {k}, tables {tables} and max_tokens {max_tokens}: each must be at least 1")
        query_filter = None if database is None else Filter(where={"metadata.database": database})
        # Quotes are operators of a search; here they mark values, and no document of a schema must hold one.
        search_result = self._tenant.search(question.replace('"', " "), filter=query_filter)
        started = time.perf_counter()
        snapshot = self._load_snapshot()  # after the search: it names nothing that the reader lost meanwhile
        linker = snapshot.linker(database)
        entities = find_entities(
            question,
            values=linker.find_values(question),
            row_names=linker.row_names,
            today=datetime.now(UTC).date(),
        )
        linked = linker.link(question, entities, Similarities.from_hits(search_result.hits), tables=tables, columns=k)
        selection, refs = None, tuple[SchemaRef, ...]()
        prompt, tokens, omitted = "", 0, tuple[tuple[str, str], ...]()
        if linked.tables:
            schema = snapshot.schemas_to_link[linked.tables[0].database]
            excluded = find_exclusions(snapshot.exclusions, question, schema.name)
            linked = exclude_columns(linked, (item.column for item in excluded))
            refs = column_references(schema, linked, k)
            selection = select_parts(
                schema,
                linker,
                linked,
                refs,
                question=question,
                entities=entities,
                docs=search_result.hits,
                exclusions=excluded,
                variants=self._tenant.settings.section(Text2SqlSettings).variants,
            )
            prompt, tokens, omitted = build_prompt(
                selection, linked, snapshot.schemas_to_link, max_tokens=max_tokens, count=self._count
            )
        return GroundingResult(
            question=question,
            docs=search_result.hits,
            tables=linked.tables,
            schema_refs=refs,
            selection=selection,
            entities=entities,
            prompt=prompt,
            tokens=tokens,
            left_out=omitted,
            warnings=(*search_result.warnings, *(() if snapshot.schemas else (NO_SCHEMA,))),
            timings_ms={**search_result.timings_ms, "ground": (time.perf_counter() - started) * 1000},
        )

    def _count(self, text: str) -> int:
        """Count tokens line by line.

        Lines repeat and are cached; no token spans a line break.
        """
        return sum(map(self._tokens_of_line, text.splitlines()))

    def _load_snapshot(self) -> _SchemaSnapshot:
        changes = self._tenant.last_changes()  # before the documents: a change in between is noticed next time
        with self._lock:
            if self._snapshot is None or self._snapshot.changes != changes:
                self._snapshot = _SchemaSnapshot(changes, self._tenant.documents(), self._synonyms, self._weights)
            return self._snapshot
