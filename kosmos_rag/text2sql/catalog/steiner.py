"""Shortest trees that connect chosen nodes of a graph whose edges all have length one."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

Edge = tuple[str, str]
"""Two nodes, sorted."""
Graph = Mapping[str, tuple[str, ...]]
"""The neighbours of each node, sorted."""
_Trees = frozenset[frozenset[Edge]]


def edge_of(one: str, other: str) -> Edge:
    """Return two nodes as an edge."""
    return (one, other) if one < other else (other, one)


def shortest_trees(graph: Graph, nodes: Sequence[str], *, exact_up_to: int, most: int) -> list[frozenset[Edge]]:
    """Return up to `most` of the shortest trees that connect nodes, which must be connected.

    With more nodes than `exact_up_to`, one tree that is at most twice as long as the shortest. Deterministic.
    """
    if len(nodes) == 1:
        return [frozenset()]
    distances = [_distances(graph, node, until=set(nodes)) for node in nodes]
    heuristic = _tree_of_shortest_paths(graph, nodes, distances)
    if len(nodes) > exact_up_to:
        return [heuristic]
    bound = len(heuristic)
    trees = _Solver(graph, nodes, _near(graph, nodes, bound), bound, most).solve()
    return sorted(trees, key=sorted)[:most]


def _near(graph: Graph, nodes: Sequence[str], bound: int) -> list[str]:
    """Return the nodes that a tree no longer than the bound may have, in a stable order."""
    distances = [_distances(graph, node, limit=bound) for node in nodes]
    far, one, other = max((distances[a][nodes[b]], a, b) for a, b in combinations(range(len(nodes)), 2))

    def may_be(node: str) -> bool:
        found = [distance.get(node, bound + 1) for distance in distances]
        # A tree with three nodes is at least half as long as the way around them.
        return sum(sorted(found)[:2]) <= bound and found[one] + found[other] + far <= 2 * bound

    return [node for node in dict.fromkeys(node for distance in distances for node in distance) if may_be(node)]


def _distances(graph: Graph, start: str, *, until: set[str] | None = None, limit: int | None = None) -> dict[str, int]:
    """Measure how far nodes are, until all of `until` are found or the limit is reached."""
    found, front, length = {start: 0}, [start], 0
    missing = None if until is None else until - {start}
    while front and length != limit and missing != set():
        length += 1
        front = list(dict.fromkeys(beside for node in front for beside in graph[node] if beside not in found))
        found.update(dict.fromkeys(front, length))
        if missing is not None:
            missing.difference_update(front)
    return found


def _tree_of_shortest_paths(
    graph: Graph, nodes: Sequence[str], distances: Sequence[Mapping[str, int]]
) -> frozenset[Edge]:
    """Join the nearest pairs of nodes by shortest paths until all are connected (Kou, Markowsky and Berman)."""
    pairs = sorted(combinations(range(len(nodes)), 2), key=lambda pair: (distances[pair[0]][nodes[pair[1]]], pair))
    edges: set[Edge] = set()
    part = _Parts(nodes)
    for one, other in pairs:
        if part.join(nodes[one], nodes[other]):
            edges.update(_path(graph, nodes[other], distances[one]))
    return _pruned(edges, set(nodes))


def _path(graph: Graph, end: str, distances: Mapping[str, int]) -> Iterable[Edge]:
    while distances[end] > 0:
        nearer = next(beside for beside in graph[end] if distances.get(beside) == distances[end] - 1)
        yield edge_of(end, nearer)
        end = nearer


def _pruned(edges: Iterable[Edge], nodes: set[str]) -> frozenset[Edge]:
    """Leave out what makes a circle, and then the ends that nobody chose."""
    part = _Parts(())
    tree = {edge for edge in sorted(edges) if part.join(*edge)}
    while True:
        ends = [node for edge in tree for node in edge]
        loose = {node for node in ends if ends.count(node) == 1} - nodes
        if not loose:
            return frozenset(tree)
        tree = {edge for edge in tree if not loose & set(edge)}


class _Parts:
    """Disjoint sets of nodes."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._above = {node: node for node in nodes}

    def join(self, one: str, other: str) -> bool:
        """Make two nodes' sets one; whether they were two."""
        one, other = self._top(one), self._top(other)
        self._above[one] = other
        return one != other

    def _top(self, node: str) -> str:
        while (above := self._above.setdefault(node, node)) != node:
            node = above
        return node


class _Solver:
    """The dynamic programme: for each set of chosen nodes, how long the shortest trees that connect it with a node are.

    Lengths come first, and trees are then read off them backwards: only those that are shortest are ever made.
    """

    def __init__(self, graph: Graph, nodes: Sequence[str], near: Sequence[str], bound: int, most: int) -> None:
        self._nodes = nodes
        self._bound = bound
        self._most = most
        allowed = set(near)
        self._graph = {node: [beside for beside in graph[node] if beside in allowed] for node in near}
        self._lengths: dict[int, dict[str, int]] = {}
        self._trees: dict[tuple[int, str], _Trees] = {}

    def solve(self) -> _Trees:
        """Return the shortest trees over all chosen nodes: those of all but the last, connected with the last."""
        whole = (1 << (len(self._nodes) - 1)) - 1
        for group in range(1, whole + 1):
            single = group.bit_count() == 1
            start = {self._nodes[group.bit_length() - 1]: 0} if single else self._merged(group)
            self._lengths[group] = self._grown(start)
        return self._read_off(whole, self._nodes[-1])

    def _merged(self, group: int) -> dict[str, int]:
        """Put the trees of two parts of a group together where they meet."""
        found: dict[str, int] = {}
        for part in _splits(group):
            one, other = self._lengths[part], self._lengths[group ^ part]
            for node in one.keys() & other.keys():
                length = one[node] + other[node]
                if length <= found.get(node, self._bound):
                    found[node] = length
        return found

    def _grown(self, found: dict[str, int]) -> dict[str, int]:
        """Let trees grow along edges, the shortest first."""
        for length in range(self._bound):
            for node in [node for node, own in found.items() if own == length]:
                for beside in self._graph[node]:
                    if found.get(beside, self._bound + 1) > length + 1:
                        found[beside] = length + 1
        return found

    def _read_off(self, group: int, node: str) -> _Trees:
        """Return trees of the length that was found, bounded: the first by name are kept."""
        if (group, node) not in self._trees:
            found: set[frozenset[Edge]] = set()
            length = self._lengths[group][node]
            if length == 0:
                found.add(frozenset())
            for beside in self._graph[node]:
                if self._lengths[group].get(beside) == length - 1:
                    edge = edge_of(node, beside)
                    found |= {tree | {edge} for tree in self._read_off(group, beside)}
            for part in _splits(group):
                one, other = self._lengths[part].get(node), self._lengths[group ^ part].get(node)
                if one is not None and other is not None and one + other == length:
                    rest = self._read_off(group ^ part, node)
                    found |= {tree | more for tree in self._read_off(part, node) for more in rest}
            whole = sorted((tree for tree in found if len(tree) == length), key=sorted)
            self._trees[group, node] = frozenset(whole[: self._most])
        return self._trees[group, node]


def _splits(group: int) -> Iterable[int]:
    """Give one part of each way to split a group in two."""
    part = (group - 1) & group
    while part > group ^ part:
        yield part
        part = (part - 1) & group
