"""The rows of a query as a source."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, ConfigError, SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.listing import Backlog, Changes, Entry, Listing, build_failure, drop_duplicates
from kosmos_rag.ingestion.sources.outbox import Outbox, SqlChanges
from kosmos_rag.ingestion.sources.outbox.reading import OutboxDatabase, OutboxWatch, open_outbox, take_changes
from kosmos_rag.ingestion.sources.rows import (
    Fields,
    build_row_document,
    compute_row_etag,
    list_readers,
    narrow_acl,
    read_row_id,
)
from kosmos_rag.ingestion.sources.spec import DocumentOptions, Name, NotBlank, Variable
from kosmos_rag.ingestion.sources.sql_connection import ROWS_AT_ONCE, connect, escape_colons, read_only_engine

if TYPE_CHECKING:
    from sqlalchemy import Connection, Subquery

_MAX_NAME = 40
"""Longest name of a source with changes: 63 bytes of PostgreSQL, less what is put around it."""


class SqlSpec(DocumentOptions):
    """A query, with the roles of its columns.

    The URL stays in the environment, because it contains a password.
    """

    kind: Literal["sql"] = "sql"
    name: Name
    """Begins the names of the documents; of two queries of one database each needs its own."""
    url_env: Variable
    """The variable of the environment that holds the URL."""
    query: NotBlank
    id_column: NotBlank = "id"
    text_column: NotBlank = "text"
    title_column: NotBlank | None = None
    metadata_columns: tuple[NotBlank, ...] = ()
    acl_column: NotBlank | None = None
    """The principals of the row, an array of text or a JSON array; instead of `acl` and `permissions`."""
    version_column: NotBlank | None = None
    """Changes with the row, as a time of change does: a pass then reads no text of unchanged rows."""
    changes: SqlChanges | None = None
    """The tables whose changes are followed between passes."""

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.acl_column is not None and {"acl", "permissions"} & self.model_fields_set:
            raise ValueError("leave out acl and permissions: acl_column has the readers of each row")
        if self.changes is not None and len(self.name) > _MAX_NAME:
            raise ValueError(f"name must have up to {_MAX_NAME} characters: names in PostgreSQL begin with it")
        return self


class SqlSource:
    """The rows of a query.

    A document is named by the source and its id, and located by its id.
    """

    def __init__(self, spec: SqlSpec, settings: IngestionSettings) -> None:
        """Create the engine; raises ConfigError if the variable contains no usable URL."""
        self._spec = spec
        self._root = f"sql://{spec.name}/"
        self._max_bytes = settings.max_file_bytes
        self._fields = Fields(
            id=spec.id_column,
            text=spec.text_column,
            title=spec.title_column,
            metadata=spec.metadata_columns,
            acl=spec.acl_column,
            version=spec.version_column,
        )
        self._engine = read_only_engine(spec.url_env)

    def listing(self) -> Listing:
        """Start a listing in one transaction, in the order of the query."""
        return Listing(self._root, drop_duplicates(self._entries()), lambda source: source.startswith(self._root))

    def load(self, entry: Entry) -> SourceDocument:
        """Read the row of an entry. Raises SourceError.

        Its readers are those that it has now and had when it was listed.
        """
        from sqlalchemy import bindparam, select
        from sqlalchemy.types import NullType

        rows = self._rows(self._fields.names)
        # Without a type: the server knows the column's, and text would not compare with a uuid.
        row_id_parameter = bindparam("id", entry.locator["id"], type_=NullType())
        with connect(self._engine, self._spec.url_env, entry.source) as connection:
            rows_found = (
                connection.execute(select(rows).where(rows.c[self._fields.id] == row_id_parameter))
                .mappings()
                .fetchmany(2)
            )
        if not rows_found:
            raise SourceError(GONE, f"{entry.source} was removed after it was listed")
        if len(rows_found) > 1:
            raise SourceError("duplicate", f"{entry.source} is several rows; make {self._fields.id} unique")
        row = {str(key): value for key, value in rows_found[0].items()}
        document = build_row_document(row, self._fields, self._spec, source=entry.source, max_bytes=self._max_bytes)
        # A pass compares the readers of its listing with those of the jobs that have not ended.
        return document if entry.readers is None else replace(document, acl=narrow_acl(document.acl, entry.readers))

    def take_changes(self) -> AbstractContextManager[Changes]:
        """Take the oldest changes of the outbox. Raises SourceError, ConfigError."""
        return take_changes(self.open_outbox(), self)

    def measure_backlog(self) -> Backlog:
        """Return how old the changes of the outbox are. Raises SourceError, ConfigError."""
        return self.open_outbox().measure_backlog()

    def watch(self) -> OutboxWatch:
        """Listen to the outbox. Raises SourceError, ConfigError."""
        return OutboxWatch(self.open_outbox())

    def open_outbox(self) -> OutboxDatabase:
        """Return the outbox. Raises ConfigError without `changes`."""
        if self._spec.changes is None:
            raise ConfigError(f"the source {self._spec.name} has no changes; name its tables under changes")
        return open_outbox(Outbox(source=self._spec.name, changes=self._spec.changes), self._spec.url_env)

    def list_keys(self, connection: "Connection", limit: int, *, at_random: bool) -> list[str]:
        """Return the ids of some rows.

        Args:
            at_random: whether to choose them from all rows, which takes longer.
        """
        from sqlalchemy import func, select

        keys = select(self._rows([self._fields.id]).c[self._fields.id]).limit(limit)
        ids = connection.execute(keys.order_by(func.random()) if at_random else keys).scalars()
        return [str(key) for key in ids if key is not None]

    def read_entries(self, connection: "Connection", keys: Sequence[str]) -> list[Entry | IngestFailure]:
        """Return the entries of the rows with these ids."""
        from sqlalchemy import bindparam, select
        from sqlalchemy.types import NullType

        rows = self._rows(self._fields.listed_names)
        # As in `load`: without a type.
        parameter = bindparam("keys", list(keys), type_=NullType(), expanding=True)
        result = connection.execute(select(rows).where(rows.c[self._fields.id].in_(parameter))).mappings()
        return [self._build_entry(number, row) for number, row in enumerate(result, start=1)]

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        from sqlalchemy import select

        statement = select(self._rows(self._fields.listed_names)).execution_options(yield_per=ROWS_AT_ONCE)
        with (
            connect(self._engine, self._spec.url_env, self._root) as connection,
            closing(connection.execute(statement)) as result,
        ):
            for number, mapping in enumerate(result.mappings(), start=1):
                yield self._build_entry(number, mapping)

    def _build_entry(self, number: int, mapping: Mapping[Any, Any]) -> Entry | IngestFailure:
        row = {str(key): value for key, value in mapping.items()}
        try:
            key = read_row_id(row, self._fields.id)
            etag = compute_row_etag(row, self._fields, self._spec)
            readers = list_readers(row, self._fields)
            return Entry(source=f"{self._root}{key}", etag=etag, locator={"id": key}, readers=readers)
        except SourceError as error:
            location = f"{self._root}, row {number}"
            return build_failure(location, SourceError(error.code, one_line(f"{location}: {error}")))

    def _rows(self, names: Sequence[str]) -> "Subquery":
        """Return the query as a table of these columns."""
        from sqlalchemy import column, text

        query = escape_colons(self._spec.query)
        return text(query).columns(*(column(name) for name in names)).subquery("documents")
