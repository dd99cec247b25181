"""The rows of a query as a source."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.listing import Entry, Listing, build_failure, drop_duplicates
from kosmos_rag.ingestion.sources.rows import Fields, build_row_document, compute_row_etag, read_row_id
from kosmos_rag.ingestion.sources.spec import DocumentOptions, Name, NotBlank, Variable
from kosmos_rag.ingestion.sources.sql_connection import ROWS_AT_ONCE, connect, escape_colons, read_only_engine

if TYPE_CHECKING:
    from sqlalchemy import Subquery


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
            id=spec.id_column, text=spec.text_column, title=spec.title_column, metadata=spec.metadata_columns
        )
        self._engine = read_only_engine(spec.url_env)

    def listing(self) -> Listing:
        """Start a listing in one transaction, in the order of the query."""
        return Listing(self._root, drop_duplicates(self._entries()), lambda source: source.startswith(self._root))

    def load(self, entry: Entry) -> SourceDocument:
        """Read the row of an entry. Raises SourceError."""
        from sqlalchemy import bindparam, select
        from sqlalchemy.types import NullType

        rows = self._rows()
        # Without a type: the server knows the column's, and text would not compare with a uuid.
        row_id_parameter = bindparam("id", entry.locator["id"], type_=NullType())
        with connect(self._engine, self._spec.url_env, entry.source) as connection:
            rows_found = (
                connection.execute(select(rows).where(rows.c[self._fields.id] == row_id_parameter))
                .mappings()
                .fetchmany(2)
            )
        if not rows_found:
            raise SourceError("not_found", f"{entry.source} is no longer there; list the source again")
        if len(rows_found) > 1:
            raise SourceError("duplicate", f"{entry.source} is several rows; make {self._fields.id} unique")
        row = {str(key): value for key, value in rows_found[0].items()}
        return build_row_document(row, self._fields, self._spec, source=entry.source, max_bytes=self._max_bytes)

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        from sqlalchemy import select

        statement = select(self._rows()).execution_options(yield_per=ROWS_AT_ONCE)
        with (
            connect(self._engine, self._spec.url_env, self._root) as connection,
            closing(connection.execute(statement)) as result,
        ):
            for number, mapping in enumerate(result.mappings(), start=1):
                row = {str(key): value for key, value in mapping.items()}
                try:
                    key = read_row_id(row, self._fields.id)
                    etag = compute_row_etag(row, self._fields, self._spec)
                    yield Entry(source=f"{self._root}{key}", etag=etag, locator={"id": key})
                except SourceError as error:
                    location = f"{self._root}, row {number}"
                    yield build_failure(location, SourceError(error.code, one_line(f"{location}: {error}")))

    def _rows(self) -> "Subquery":
        """Return the query as a table of the columns that are used."""
        from sqlalchemy import column, text

        query = escape_colons(self._spec.query)
        return text(query).columns(*(column(name) for name in self._fields.names)).subquery("documents")
