"""Records of a database schema."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property

from kosmos_rag.text2sql.errors import SchemaInvalid


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnSchema:
    """A column of a table or a view."""

    name: str
    type: str = ""
    """As the database writes it; empty if the source has no types."""
    nullable: bool = True
    default: str | None = None
    """The expression that the server evaluates."""
    comment: str | None = None
    enum: tuple[str, ...] = ()
    """All allowed values, from an enum type or a check constraint."""
    labels: tuple[tuple[str, str], ...] = ()
    """Values that are codes, each with its meaning: `("AK", "Alaska")`."""
    samples: tuple[str, ...] = ()
    """Sample values, read only on request."""
    aliases: tuple[str, ...] = ()
    """Names in use for it, as the source lists them; without those derived from the column name."""

    @property
    def values(self) -> tuple[str, ...]:
        """All known values, or samples of them."""
        return self.enum or tuple(value for value, _ in self.labels) or self.samples


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignKey:
    """Columns that reference a row of a table."""

    columns: tuple[str, ...]
    table: str
    """Full name of the referenced table, which may be outside of the schema."""
    target: tuple[str, ...]
    """Its columns, in the order of `columns`."""
    guessed: bool = False
    """Whether it was guessed by names, and not declared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relationship:
    """An attribute of a model that references another model."""

    name: str
    table: str
    """Full name of the other model's table."""


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """A table or a view, with its mapped class if any."""

    name: str
    schema: str | None = None
    """Namespace within the database; None is the default one."""
    model: str | None = None
    """Name of the class, or of the dbt model."""
    module: str | None = None
    """Where the class is defined: the first part of the ids of its documents."""
    source_file: str | None = None
    comment: str | None = None
    aliases: tuple[str, ...] = ()
    columns: tuple[ColumnSchema, ...] = ()
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    relationships: tuple[Relationship, ...] = ()

    @cached_property
    def full_name(self) -> str:
        """`schema.name`, or the name alone; used by foreign keys and documents."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @cached_property
    def _columns(self) -> dict[str, ColumnSchema]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> ColumnSchema | None:
        """Return the column of that name."""
        return self._columns.get(name)

    @cached_property
    def key_columns(self) -> frozenset[str]:
        """Columns that identify rows, here or elsewhere."""
        return frozenset(self.primary_key).union(*(key.columns for key in self.foreign_keys))

    def identifies(self, columns: Iterable[str]) -> bool:
        """Return whether values of these columns identify at most one row."""
        names = set(columns)
        return any(names >= set(key) for key in (self.primary_key, *self.unique) if key)


@dataclass(frozen=True, kw_only=True)
class DatabaseSchema:
    """The tables of one database.

    Raises SchemaInvalid if a name is empty, or if two tables, or two columns of a table, share one.
    """

    name: str
    dialect: str | None = None
    """As sqlglot and SQLAlchemy name it: `postgresql`, `sqlite`."""
    comment: str | None = None
    tables: tuple[TableSchema, ...] = ()

    def __post_init__(self) -> None:
        problems = [] if self.name else ["it has no name"]
        problems += [
            f"two tables are named {name}" for name in _find_duplicates(item.full_name for item in self.tables)
        ]
        for table in self.tables:
            problems += [] if table.name else ["a table has no name"]
            names = [column.name for column in table.columns]
            problems += [f"{table.full_name}: a column has no name"] if "" in names else []
            problems += [f"{table.full_name}: two columns are named {name}" for name in _find_duplicates(names)]
        if problems:
            raise SchemaInvalid(f"schema {self.name}", problems)

    @cached_property
    def _tables(self) -> dict[str, TableSchema]:
        return {table.full_name: table for table in self.tables}

    def table(self, full_name: str) -> TableSchema | None:
        """Return the table of that full name."""
        return self._tables.get(full_name)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the schema, hexadecimal, independent of table order."""
        content = asdict(self)
        content["tables"] = sorted(content["tables"], key=lambda table: (table["schema"] or "", table["name"]))
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _find_duplicates(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
