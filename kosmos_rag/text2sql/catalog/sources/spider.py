"""Spider's tables.json as a source, with many databases in one file.

Yu et al. 2018, arXiv:1809.08887. Files of other sets in this layout may lack natural names and keys (AmbiDB), or have
descriptions and values as well (KaggleDBQA: Lee et al. 2021, arXiv:2106.11455).
"""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import humanize, words
from kosmos_rag.text2sql.catalog.sources.schema_json import read_json
from kosmos_rag.text2sql.errors import SchemaInvalid


def from_spider(path: Path) -> list[DatabaseSchema]:
    """Read every database of a file.

    Raises:
        SchemaInvalid: A database cannot be used; lists all of them with the reason.
    """
    databases = read_json(path)
    if not isinstance(databases, list):
        raise SchemaInvalid(f"file {path}", ["it must be a list of databases"])
    schemas, problems = [], []
    for number, database in enumerate(databases):
        try:
            schemas.append(_schema(database))
        except SchemaInvalid as fault:
            problems += [f"[{number}]: {problem}" for problem in fault.problems]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            problems.append(f"[{number}]: {type(error).__name__} {error}: it is not in Spider's layout")
    if problems:
        raise SchemaInvalid(f"file {path}", problems)
    return schemas


def _schema(database: dict[str, Any]) -> DatabaseSchema:
    columns = [(int(table), str(name)) for table, name in database["column_names_original"]]
    names = [str(name) for name in database["table_names_original"]]
    records = _columns(database, columns)
    primary = _primary_columns(database)
    keys = list(_foreign_keys(database.get("foreign_keys", []), columns, names))
    tables = []
    for number, (name, alias) in enumerate(zip(names, database.get("table_names", names), strict=True)):
        # Some files list a column twice: the first one counts.
        positions = {columns[at][1]: at for at in reversed(range(len(columns))) if columns[at][0] == number}
        tables.append(
            TableSchema(
                name=name,
                aliases=_aliases(name, str(alias)),
                columns=tuple(records[at] for at in sorted(positions.values())),
                primary_key=tuple(columns[at][1] for at in sorted(positions.values()) if at in primary),
                foreign_keys=tuple(key for table, key in keys if table == number),
            )
        )
    return DatabaseSchema(
        name=str(database["db_id"]),
        dialect="sqlite",
        comment=database.get("db_overview") or None,
        tables=tuple(tables),
    )


def _columns(database: dict[str, Any], columns: list[tuple[int, str]]) -> list[ColumnSchema]:
    """Return the record of each column of the file."""
    primary = _primary_columns(database)
    natural = [
        [str(name) for _, name in database[key]]
        for key in ("column_names", "column_names_manually_normalized_alternative")
        if key in database
    ]
    descriptions = database.get("column_descriptions") or [""] * len(columns)
    labels = _value_labels(database.get("value_enums") or {})
    types = _column_types(database, len(columns))
    return [
        ColumnSchema(
            name=name,
            type=types[at],
            nullable=at not in primary,
            comment=_comment(str(descriptions[at]), name, str(database["table_names_original"][table])),
            labels=tuple(labels.get(name, {}).items()),
            aliases=_aliases(name, *(names[at] for names in natural)),
        )
        for at, (table, name) in enumerate(columns)
    ]


def _column_types(database: dict[str, Any], size: int) -> list[str]:
    """Return the type of each column; some files have no type for the first column, `*`."""
    types = [str(name) for name in database["column_types"]]
    return types if len(types) == size else ["", *types]


def _comment(description: str, *names: str) -> str | None:
    """Return a description that says more than these names: `the year of the salary` does not."""
    repeated = {word for name in names for word in humanize(name).split()} | {"the", "of"}
    return description if set(humanize(description).split()) - repeated else None


def _value_labels(enums: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the codes of each column with their meanings.

    A list that columns of different kinds have describes none of them.
    """
    kinds: dict[str, set[str]] = {}
    for name, labels in enums.items():
        kinds.setdefault(json.dumps(labels, sort_keys=True), set()).add(words(name)[-1] if words(name) else name)
    return {
        name: {str(code): str(meaning) for code, meaning in labels.items()}
        for name, labels in enums.items()
        if len(kinds[json.dumps(labels, sort_keys=True)]) == 1
    }


def _primary_columns(database: dict[str, Any]) -> set[int]:
    keys = database.get("primary_keys", [])
    return {number for key in keys for number in (key if isinstance(key, list) else [key])}


def _aliases(name: str, *natural: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(alias for alias in natural if alias.lower() != name.lower()))


def _foreign_keys(
    pairs: list[list[int]], columns: list[tuple[int, str]], names: list[str]
) -> Iterator[tuple[int, ForeignKey]]:
    """Yield each key with the number of its table.

    The file has pairs of columns. Those that follow each other between the same tables are one composite key, unless
    they repeat a column: `home_team` and `away_team` both refer to `team.id`, and are two keys.
    """
    for (child, parent), run in groupby(pairs, key=lambda pair: (columns[pair[0]][0], columns[pair[1]][0])):
        members = list(run)
        composite = (
            len({child_column for child_column, _ in members})
            == len({parent_column for _, parent_column in members})
            == len(members)
        )
        for group in [members] if composite else [[pair] for pair in members]:
            source, target = (tuple(columns[pair[side]][1] for pair in group) for side in (0, 1))
            yield child, ForeignKey(columns=source, table=names[parent], target=target)
