"""Shortest join trees between selected tables over foreign keys.

That is the Steiner tree problem with edges of length one. Up to `MAX_EXACT_TABLES` tables it is solved exactly, by
the dynamic programme of Dreyfus and Wagner (Networks 1, 1971, p. 195); above that by the tree of shortest paths of
Kou, Markowsky and Berman (Acta Informatica 15, 1981, p. 141), which is at most twice as long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, product

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, ForeignKey
from kosmos_rag.text2sql.catalog.steiner import Edge, Graph, make_edge, shortest_trees

MAX_EXACT_TABLES = 6
MAX_PATHS = 4
MAX_JOINS_BETWEEN = 20
"""Maximum number of joins between two tables. Longer paths are of no use in a query and slow to find."""
_PLAN_CACHE_SIZE = 1_000
"""Questions use the same few combinations of tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Join:
    """A foreign key as a join.

    A composite key is one join with all of its columns.
    """

    table: str
    """Full name of the table that has the key."""
    key: ForeignKey

    @property
    def hint(self) -> str:
        """The join as `program_statistics.program_id -> programs.id`, with ` (guess)` for a guessed key."""
        join = f"{_qualify(self.table, self.key.columns)} -> {_qualify(self.key.table, self.key.target)}"
        return f"{join} (guess)" if self.key.guessed else join

    @property
    def tables(self) -> Edge:
        """Both tables, sorted."""
        return make_edge(self.table, self.key.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinPath:
    """One path that joins the tables of a plan."""

    joins: tuple[Join, ...]
    """In join order: each join shares a table with an earlier one."""
    bridges: tuple[str, ...]
    """Tables between the selected ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinPlan:
    """Selected tables that can be joined, with their shortest join paths.

    Several paths are equally short and differ in meaning.
    """

    tables: tuple[str, ...]
    """The selected tables, in selection order."""
    paths: tuple[JoinPath, ...]
    """At least one; the path of a single table has no join. Paths over keys that are never null come first."""
    more: bool = False
    """Whether there are more shortest paths than `paths` shows."""
    self_joins: tuple[Join, ...] = ()
    """Keys by which a selected table refers to itself."""


def _qualify(table: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{table}.{column}" for column in columns)


class JoinGraph:
    """The foreign keys of a schema as a graph. Thread-safe.

    Keys to tables that the schema lacks are left out.
    """

    def __init__(self, schema: DatabaseSchema) -> None:
        self._schema = schema
        self._keys: dict[Edge, list[Join]] = {}
        self._self_joins: dict[str, list[Join]] = {}
        self._cached_plans = lru_cache(maxsize=_PLAN_CACHE_SIZE)(self._plans)
        for table in schema.tables:
            for key in table.foreign_keys:
                self._add(Join(table=table.full_name, key=key))

    def _add(self, join: Join) -> None:
        if join.table == join.key.table:
            self._self_joins.setdefault(join.table, []).append(join)
        elif self._schema.table(join.key.table) is not None:
            self._keys.setdefault(join.tables, []).append(join)

    @cached_property
    def _graph(self) -> Graph:
        graph: dict[str, set[str]] = {table.full_name: set() for table in self._schema.tables}
        for first, second in self._keys:
            graph[first].add(second)
            graph[second].add(first)
        return {table: tuple(sorted(neighbours)) for table, neighbours in graph.items()}

    def plans(self, tables: Iterable[str]) -> tuple[JoinPlan, ...]:
        """Return one join plan for each connected group of tables.

        A table more than `MAX_JOINS_BETWEEN` joins from the first table of a group is not part of it.

        Raises:
            RequestError: A table is not in the schema.
        """
        selected = tuple(dict.fromkeys(tables))
        if unknown := [table for table in selected if table not in self._graph]:
            raise RequestError(f"the schema has no table {', '.join(unknown)}: take full names of its tables")
        return self._cached_plans(selected)

    def _plans(self, selected: tuple[str, ...]) -> tuple[JoinPlan, ...]:
        return tuple(self._plan(group) for group in self._groups(list(selected)))

    def _groups(self, selected: list[str]) -> list[list[str]]:
        """Split tables by connected component."""
        groups: list[list[str]] = []
        remaining = selected
        while remaining:
            reachable = self._reachable(remaining[0], remaining)
            groups.append([table for table in remaining if table in reachable])
            remaining = [table for table in remaining if table not in reachable]
        return groups

    def _reachable(self, start: str, targets: Iterable[str]) -> set[str]:
        missing = set(targets) - {start}
        visited, frontier = {start}, [start]
        for _ in range(MAX_JOINS_BETWEEN):
            if not (frontier and missing):
                break
            frontier = list({neighbour for table in frontier for neighbour in self._graph[table]} - visited)
            visited.update(frontier)
            missing.difference_update(frontier)
        return visited

    def _plan(self, selected: list[str]) -> JoinPlan:
        # One more than the limit, to know whether there are more.
        trees = shortest_trees(self._graph, selected, exact_up_to=MAX_EXACT_TABLES, limit=MAX_PATHS + 1)
        paths = sorted(
            (path for tree in trees for path in islice(self._paths(tree, selected), MAX_PATHS + 1)), key=self._rank
        )
        return JoinPlan(
            tables=tuple(selected),
            paths=tuple(paths[:MAX_PATHS]),
            more=len(paths) > MAX_PATHS,
            self_joins=tuple(join for table in selected for join in self._self_joins.get(table, ())),
        )

    def _paths(self, tree: frozenset[Edge], selected: list[str]) -> Iterable[JoinPath]:
        """Yield a path for each combination of parallel keys."""
        bridges = tuple(sorted({table for edge in tree for table in edge} - set(selected)))
        for joins in product(*(self._keys[edge] for edge in sorted(tree))):
            yield JoinPath(joins=tuple(_order_joins(list(joins), selected[0])), bridges=bridges)

    def _rank(self, path: JoinPath) -> tuple[int, list[str]]:
        return sum(self._may_be_null(join) for join in path.joins), [join.hint for join in path.joins]

    def _may_be_null(self, join: Join) -> bool:
        table = self._schema.table(join.table)
        columns = (table.column(name) for name in join.key.columns) if table else ()
        return any(column is not None and column.nullable for column in columns)


def _order_joins(joins: list[Join], first: str) -> Iterable[Join]:
    joined, remaining = {first}, joins
    while remaining:
        join = next(join for join in remaining if joined & set(join.tables))
        remaining.remove(join)
        joined.update(join.tables)
        yield join
