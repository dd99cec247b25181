"""How chosen tables hang together: the shortest join trees over foreign keys, with the tables between them.

That is the Steiner tree problem with edges of length one. Up to `EXACT_TABLES` chosen tables it is solved exactly, by
the dynamic programme of Dreyfus and Wagner (Networks 1, 1971, p. 195); above that by the tree of shortest paths of
Kou, Markowsky and Berman (Acta Informatica 15, 1981, p. 141), which is at most twice as long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, product

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, ForeignKey
from kosmos_rag.text2sql.catalog.steiner import Edge, Graph, edge_of, shortest_trees

EXACT_TABLES = 6
MOST_PATHS = 4
MOST_APART = 20
"""Joins from one table to another that a plan may need: a query over more is nobody's, and finding it takes long."""
_KEPT_PLANS = 1_000
"""Questions need the same few tables together again and again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Join:
    """A foreign key as a join. A composite key is one join, always with all of its columns."""

    table: str
    """Full name of the table that has the key."""
    key: ForeignKey

    @property
    def hint(self) -> str:
        """The join as `program_statistics.program_id -> programs.id`."""
        return f"{_listed(self.table, self.key.columns)} -> {_listed(self.key.table, self.key.target)}"

    @property
    def tables(self) -> Edge:
        """Both tables, sorted."""
        return edge_of(self.table, self.key.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinPath:
    """One way to join the tables of a plan."""

    joins: tuple[Join, ...]
    """In an order in which each one meets a table that is there already."""
    bridges: tuple[str, ...]
    """Tables that nobody chose and that lie between those chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinPlan:
    """Chosen tables that can be joined, and how. Several paths: all are shortest, and mean different things."""

    tables: tuple[str, ...]
    """The chosen ones, in the order in which they were chosen."""
    paths: tuple[JoinPath, ...]
    """At least one; that of a table alone has no join. Those over keys that are never null come first."""
    more: bool = False
    """Whether there are more shortest paths than `paths` shows."""
    self_joins: tuple[Join, ...] = ()
    """Keys by which a chosen table refers to itself."""


def _listed(table: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{table}.{column}" for column in columns)


class JoinGraph:
    """The foreign keys of a schema as a graph, without keys to tables that the schema does not have. Thread-safe."""

    def __init__(self, schema: DatabaseSchema) -> None:
        self._schema = schema
        self._keys: dict[Edge, list[Join]] = {}
        self._own: dict[str, list[Join]] = {}
        self._kept_plans = lru_cache(maxsize=_KEPT_PLANS)(self._plans)
        for table in schema.tables:
            for key in table.foreign_keys:
                self._add(Join(table=table.full_name, key=key))

    def _add(self, join: Join) -> None:
        if join.table == join.key.table:
            self._own.setdefault(join.table, []).append(join)
        elif self._schema.table(join.key.table) is not None:
            self._keys.setdefault(join.tables, []).append(join)

    @cached_property
    def _graph(self) -> Graph:
        graph: dict[str, set[str]] = {table.full_name: set() for table in self._schema.tables}
        for one, other in self._keys:
            graph[one].add(other)
            graph[other].add(one)
        return {table: tuple(sorted(beside)) for table, beside in graph.items()}

    def plans(self, tables: Iterable[str]) -> tuple[JoinPlan, ...]:
        """Return how tables are joined: one plan for each group of them that keys connect, by the first table.

        Tables that are more than `MOST_APART` joins from the first one are not of its group.

        Raises RequestError on a table that the schema does not have.
        """
        chosen = tuple(dict.fromkeys(tables))
        if unknown := [table for table in chosen if table not in self._graph]:
            raise RequestError(f"the schema has no table {', '.join(unknown)}: take full names of its tables")
        return self._kept_plans(chosen)

    def _plans(self, chosen: tuple[str, ...]) -> tuple[JoinPlan, ...]:
        return tuple(self._plan(group) for group in self._groups(list(chosen)))

    def _groups(self, chosen: list[str]) -> list[list[str]]:
        """Split tables by the connected part of the graph that they lie in."""
        groups: list[list[str]] = []
        left = chosen
        while left:
            reached = self._reachable(left[0], left)
            groups.append([table for table in left if table in reached])
            left = [table for table in left if table not in reached]
        return groups

    def _reachable(self, start: str, wanted: Iterable[str]) -> set[str]:
        missing = set(wanted) - {start}
        seen, front = {start}, [start]
        for _ in range(MOST_APART):
            if not (front and missing):
                break
            front = list({beside for table in front for beside in self._graph[table]} - seen)
            seen.update(front)
            missing.difference_update(front)
        return seen

    def _plan(self, chosen: list[str]) -> JoinPlan:
        # One more than is shown, to know whether there are more.
        trees = shortest_trees(self._graph, chosen, exact_up_to=EXACT_TABLES, most=MOST_PATHS + 1)
        found = sorted(
            (path for tree in trees for path in islice(self._paths(tree, chosen), MOST_PATHS + 1)), key=self._rank
        )
        return JoinPlan(
            tables=tuple(chosen),
            paths=tuple(found[:MOST_PATHS]),
            more=len(found) > MOST_PATHS,
            self_joins=tuple(join for table in chosen for join in self._own.get(table, ())),
        )

    def _paths(self, tree: frozenset[Edge], chosen: list[str]) -> Iterable[JoinPath]:
        """Give a path for each choice among keys between the same two tables."""
        bridges = tuple(sorted({table for edge in tree for table in edge} - set(chosen)))
        for joins in product(*(self._keys[edge] for edge in sorted(tree))):
            yield JoinPath(joins=tuple(_in_order(list(joins), chosen[0])), bridges=bridges)

    def _rank(self, path: JoinPath) -> tuple[int, list[str]]:
        return sum(self._may_be_null(join) for join in path.joins), [join.hint for join in path.joins]

    def _may_be_null(self, join: Join) -> bool:
        table = self._schema.table(join.table)
        columns = (table.column(name) for name in join.key.columns) if table else ()
        return any(column is not None and column.nullable for column in columns)


def _in_order(joins: list[Join], first: str) -> Iterable[Join]:
    reached, left = {first}, joins
    while left:
        join = next(join for join in left if reached & set(join.tables))
        left.remove(join)
        reached.update(join.tables)
        yield join
