"""Join trees over foreign keys."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.joins import MAX_PATHS, JoinGraph, JoinPlan
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.steiner import Edge, shortest_trees
from kosmos_rag.text2sql.sql.quoting import join_condition
from tests.unit.text2sql.catalog.worlds import database, table


def _hints(plan: JoinPlan) -> list[list[str]]:
    return [[join.hint for join in path.joins] for path in plan.paths]


def test_plan__of_the_seeds_example(example: DatabaseSchema) -> None:
    (plan,) = JoinGraph(example).plans(["program_statistics", "programs"])
    assert _hints(plan) == [["program_statistics.program_id -> programs.id"]]
    assert not plan.more


def test_plan__has_the_tables_between(example: DatabaseSchema) -> None:
    (plan,) = JoinGraph(example).plans(["tags", "users"])
    (path,) = plan.paths
    assert path.bridges == ("program_tags", "programs")
    assert [join.hint for join in path.joins] == [
        "program_tags.tag_id -> tags.id",
        "program_tags.program_id -> programs.id",
        "programs.owner_id -> users.id",
    ]


def test_plan__keeps_composite_keys_whole(example: DatabaseSchema) -> None:
    (plan,) = JoinGraph(example).plans(["output_reviews", "run_outputs", "program_runs"])
    (path,) = plan.paths
    assert path.joins[0].hint == (
        "output_reviews.run_id, output_reviews.position -> run_outputs.run_id, run_outputs.position"
    )
    assert join_condition(example, path.joins[0]) == (
        "output_reviews.run_id = run_outputs.run_id AND output_reviews.position = run_outputs.position"
    )
    assert path.joins[1].hint == "run_outputs.run_id -> program_runs.id"


def test_plan__reports_ties_with_keys_that_are_never_null_first() -> None:
    schema = database(table("team"), table("game", "home", "away", keys={"home": "team.id", "away": "team.id"}))
    (plan,) = JoinGraph(schema).plans(["game", "team"])
    assert _hints(plan) == [["game.away -> team.id"], ["game.home -> team.id"]]


def test_plan__reports_several_bridges() -> None:
    schema = database(
        table("a"), table("d"),
        table("b", "a_id", "d_id", keys={"a_id": "a.id", "d_id": "d.id"}),
        table("c", "a_id", "d_id", keys={"a_id": "a.id", "d_id": "d.id"}),
    )  # fmt: skip
    (plan,) = JoinGraph(schema).plans(["a", "d"])
    assert [path.bridges for path in plan.paths] == [("b",), ("c",)]


def test_plan__shows_a_few_of_many_ties_and_says_that_there_are_more() -> None:
    middle = [table(f"m{n}", "a_id", "z_id", keys={"a_id": "a.id", "z_id": "z.id"}) for n in range(MAX_PATHS + 3)]
    (plan,) = JoinGraph(database(table("a"), table("z"), *middle)).plans(["a", "z"])
    assert len(plan.paths) == MAX_PATHS
    assert plan.more


def test_plan__of_tables_that_nothing_connects_is_one_for_each_group() -> None:
    schema = database(table("a"), table("b", keys={"id": "a.id"}), table("c"), table("d", "x", keys={"x": "gone.id"}))
    plans = JoinGraph(schema).plans(["c", "b", "d", "a", "c"])
    assert [plan.tables for plan in plans] == [("c",), ("b", "a"), ("d",)]
    assert [len(plan.paths[0].joins) for plan in plans] == [0, 1, 0]


def test_plan__of_tables_that_thousands_lie_between_is_one_for_each_group() -> None:
    chain = [table("t0"), *(table(f"t{n}", keys={"id": f"t{n - 1}.id"}) for n in range(1, 3000))]
    near, far = JoinGraph(database(*chain)).plans(["t0", "t5", "t2999"])
    assert near.tables == ("t0", "t5")
    assert [len(path.joins) for path in near.paths] == [5]
    assert far.tables == ("t2999",)


def test_plan__names_self_joins_and_survives_circles() -> None:
    schema = database(
        table("employee", "boss", "dept", keys={"boss": "employee.id", "dept": "department.id"}),
        table("department", "head", keys={"head": "employee.id"}),
    )
    (alone,) = JoinGraph(schema).plans(["employee"])
    assert [join.hint for join in alone.self_joins] == ["employee.boss -> employee.id"]
    (both,) = JoinGraph(schema).plans(["employee", "department"])
    assert sorted(_hints(both)) == [["department.head -> employee.id"], ["employee.dept -> department.id"]]


def test_plan__of_an_unknown_table_is_refused() -> None:
    with pytest.raises(RequestError, match="no table nope"):
        JoinGraph(database(table("a"))).plans(["a", "nope"])


def test_condition__quotes_what_is_not_plain() -> None:
    schema = database(table("order", schema="sales"), table('li"ne 🙂', "Order", keys={"Order": "sales.order.id"}))
    (plan,) = JoinGraph(schema).plans(['li"ne 🙂', "sales.order"])
    assert join_condition(schema, plan.paths[0].joins[0]) == '"li""ne 🙂"."Order" = sales."order".id'


Graph = dict[str, tuple[str, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[str]]:
    """A connected graph of a few nodes, and some of them."""
    size = draw(st.integers(2, 8))
    nodes = [chr(97 + number) for number in range(size)]
    edges = {(nodes[draw(st.integers(0, at - 1))], nodes[at]) for at in range(1, size)}
    edges |= set(draw(st.lists(st.sampled_from(list(combinations(nodes, 2))), max_size=6)))
    graph = {node: tuple(sorted({a if b == node else b for a, b in edges if node in (a, b)})) for node in nodes}
    return graph, draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=5, unique=True))


def _connects(edges: frozenset[Edge], nodes: list[str]) -> bool:
    reached, grew = {nodes[0]}, True
    while grew:
        more = {node for edge in edges if reached & set(edge) for node in edge} - reached
        reached |= more
        grew = bool(more)
    return set(nodes) <= reached and {node for edge in edges for node in edge} <= reached


def _all_shortest(graph: Graph, nodes: list[str]) -> set[frozenset[Edge]]:
    """Try every set of edges, the smallest first."""
    edges = sorted({(min(a, b), max(a, b)) for a, beside in graph.items() for b in beside})
    for size in range(len(edges) + 1):
        if result := {frozenset(tried) for tried in combinations(edges, size) if _connects(frozenset(tried), nodes)}:
            return result
    raise AssertionError


@given(graphs())
def test_trees__are_all_of_the_shortest(world: tuple[Graph, list[str]]) -> None:
    graph, nodes = world
    assert set(shortest_trees(graph, nodes, exact_up_to=6, limit=1000)) == _all_shortest(graph, nodes)


@given(graphs())
def test_tree__of_shortest_paths_connects_and_is_at_most_twice_as_long(world: tuple[Graph, list[str]]) -> None:
    graph, nodes = world
    (tree,) = shortest_trees(graph, nodes, exact_up_to=1, limit=1)
    assert _connects(tree, nodes) or len(nodes) == 1
    assert len(tree) <= 2 * len(next(iter(_all_shortest(graph, nodes))))
