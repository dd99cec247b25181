"""Guess the foreign keys of a schema that declares none, by the names of its columns.

Exported schemas often have no keys, and then no join can be found. A guess is marked: `ForeignKey.guessed`.
"""

from collections.abc import Iterator
from dataclasses import replace

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import singular, words
from kosmos_rag.text2sql.catalog.roles import is_measure, is_temporal, label_column

_IDENTIFIERS = frozenset({"id", "code", "key", "pk", "no", "number", "num", "nr", "uuid"})
"""Last words of names that identify a row."""

_BARE = frozenset((word,) for word in _IDENTIFIERS)
"""Names that every table may have, each for its own rows."""

_Name = tuple[str, ...]
_Place = tuple[int, int]
"""Position of the table in the schema, and of the column in the table."""


def guess_keys(schema: DatabaseSchema) -> DatabaseSchema:
    """Return the schema with guessed keys; unchanged if it declares a key.

    A column that identifies rows refers to the table of its name (`student_id` to students), else to the table of the
    shortest name that begins with this column. A table without such a column refers to one that has a text column of
    the same name.
    """
    if any(table.foreign_keys for table in schema.tables):
        return schema
    guesses = _Guesses(schema)
    keys = {number: list(guesses.list_keys(number)) for number in range(len(schema.tables))}
    connected = {number for number in keys if keys[number]} | {
        guesses.numbers[key.table] for table_keys in keys.values() for key in table_keys
    }
    for number in keys.keys() - connected:
        keys[number] += guesses.list_text_keys(number)
    return replace(
        schema,
        tables=tuple(replace(table, foreign_keys=tuple(keys[at])) for at, table in enumerate(schema.tables)),
    )


class _Guesses:
    """The columns of a schema by the words of their names."""

    def __init__(self, schema: DatabaseSchema) -> None:
        self._tables = schema.tables
        self.numbers = {table.full_name: at for at, table in enumerate(schema.tables)}
        self._by_table_name = {_name(table.name): at for at, table in reversed(list(enumerate(schema.tables)))}
        self._places: dict[_Name, list[_Place]] = {}
        for at, table in enumerate(schema.tables):
            for position, column in enumerate(table.columns):
                self._places.setdefault(_name(column.name), []).append((at, position))

    def list_keys(self, number: int) -> Iterator[ForeignKey]:
        """Yield the keys of a table whose columns identify rows of another one."""
        for column in self._tables[number].columns:
            target = self._target(_name(column.name))
            if target is not None and target[0] != number:
                yield self._key(column, target)

    def list_text_keys(self, number: int) -> list[ForeignKey]:
        """Return a key over the first text column that another table has too."""
        table = self._tables[number]
        for column in table.columns:
            places = [place for place in self._places[_name(column.name)] if place[0] != number]
            if places and _is_text(table, column) and all(_is_text(self._tables[at], column) for at, _ in places):
                return [self._key(column, places[0])]
        return []

    def _target(self, name: _Name) -> _Place | None:
        """Return the column that a column of this name refers to."""
        if not _identifies(name):
            return None
        owner = self._by_table_name.get(name[:-1])
        for column_name in (name, name[-1:]) if owner is not None else ():
            if (place := self._place_in(owner, column_name)) is not None:
                return place
        places = self._places.get(name, [])
        if len({at for at, _ in places}) > 1 and name not in _BARE:
            return min(places, key=lambda place: (place[1] > 0, len(words(self._tables[place[0]].name)), place))
        # `current_address_id` refers to what `address_id` refers to.
        shorter = name[1:]
        return self._target(shorter) or self._only_first(shorter) if len(shorter) > 1 else None

    def _only_first(self, name: _Name) -> _Place | None:
        places = self._places.get(name, [])
        return places[0] if len(places) == 1 and places[0][1] == 0 else None

    def _place_in(self, number: int | None, name: _Name) -> _Place | None:
        return next((place for place in self._places.get(name, ()) if place[0] == number), None)

    def _key(self, column: ColumnSchema, target: _Place) -> ForeignKey:
        table = self._tables[target[0]]
        return ForeignKey(
            columns=(column.name,), table=table.full_name, target=(table.columns[target[1]].name,), guessed=True
        )


def _name(name: str) -> _Name:
    """Return the words of a name, each in the singular."""
    return tuple(singular(word) for word in words(name))


def _identifies(name: _Name) -> bool:
    """Return whether a name ends as names of identifiers do: `student_id`, `pid`."""
    last = name[-1] if name else ""
    return last in _IDENTIFIERS or (len(last) == len("pid") and last.endswith("id"))


def _is_text(table: TableSchema, column: ColumnSchema) -> bool:
    """Return whether a column may name what another table has rows of."""
    bare = _name(column.name) in _BARE
    return not (bare or is_measure(table, column) or is_temporal(column) or label_column(table) == column)
