"""Changed rows of PostgreSQL: triggers write ids into an outbox, and passes take them.

An operator applies the script of `create_script` to the database of the source.
"""

from dataclasses import dataclass
from functools import cached_property

from psycopg import sql
from pydantic import Field

from kosmos_rag.core.section import Section
from kosmos_rag.core.statements import Statements
from kosmos_rag.ingestion.sources.spec import Name, NotBlank

MAX_ROWS = 1_000_000
"""Changes after which an outbox that nobody reads grows no more; the next pass compares all documents."""
_LOCK_CLASS = 1_802_464_120
"""Class of the advisory locks of outboxes, which have the oid of a table; other users of the database have others."""
_STATEMENTS = Statements(__package__)
_EVENTS = ("insert", "update", "delete", "truncate")


class SqlChanges(Section):
    """The tables whose changes a source follows by an outbox. PostgreSQL only."""

    tables: dict[NotBlank, NotBlank] = Field(min_length=1)
    """By table, which may have its schema before a dot: the column that has the id of the document."""
    outbox_schema: Name = "public"


@dataclass(frozen=True, kw_only=True)
class Outbox:
    """Names and statements of the outbox of a source."""

    source: str
    """Name of the source."""
    changes: SqlChanges
    max_rows: int = MAX_ROWS

    @property
    def name(self) -> str:
        """The name of the table and of the channel of its notifications."""
        return f"kosmos_rag_{self.source}"

    @cached_property
    def _identifiers(self) -> dict[str, sql.Composable]:
        outbox = sql.Identifier(self.changes.outbox_schema, self.name)
        return {
            "outbox": outbox,
            "outbox_name": sql.Literal(outbox.as_string(None)),
            "lock_class": sql.Literal(_LOCK_CLASS),
            "schema": sql.Identifier(self.changes.outbox_schema),
            "channel": sql.Literal(self.name),
            "listening": sql.Identifier(self.name),
            "max_rows": sql.Literal(self.max_rows),
        }

    def statement(self, name: str) -> str:
        """Return a statement of outbox.sql with the names of this outbox."""
        return self._compose(name, {})

    def create_script(self, reader: str) -> str:
        """Return the script that creates the outbox and its triggers. It may be applied again.

        Args:
            reader: The role that the source connects as.
        """
        steps = [self._compose("create_outbox", {"reader": sql.Identifier(reader)})]
        for number, (table, column) in enumerate(self.changes.tables.items(), start=1):
            names: dict[str, sql.Composable] = {
                "function": sql.Identifier(self.changes.outbox_schema, f"{self.name}_{number}"),
                "table": sql.Identifier(*table.split(".")),
                "column": sql.Identifier(column),
                **{f"on_{event}": sql.Identifier(f"{self.name}_{event}") for event in _EVENTS},
            }
            steps.append(self._compose("create_triggers", names))
        return "\n\n".join(["BEGIN;", *steps, "COMMIT;", ""])

    def _compose(self, name: str, names: dict[str, sql.Composable]) -> str:
        text = "\n".join(line for line in _STATEMENTS.get(name).splitlines() if not line.startswith("--"))
        return sql.SQL(text).format(**self._identifiers, **names).as_string(None)
