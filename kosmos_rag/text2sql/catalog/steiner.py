"""Steiner trees: shortest trees that connect chosen nodes of a graph.

All edges have length one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

Edge = tuple[str, str]
"""Two nodes, sorted."""
Graph = Mapping[str, tuple[str, ...]]
"""The neighbours of each node, sorted."""
_Trees = frozenset[frozenset[Edge]]


def make_edge(first: str, second: str) -> Edge:
    """Return two nodes as an edge."""
    return (first, second) if first < second else (second, first)


def shortest_trees(graph: Graph, nodes: Sequence[str], *, exact_up_to: int, limit: int) -> list[frozenset[Edge]]:
    """Return up to `limit` shortest trees that connect the nodes.

    With more nodes than `exact_up_to`, returns one tree that is at most twice as long as the shortest. Deterministic.

    Args:
        graph: Neighbours of each node.
        nodes: Nodes to connect; they must be in one connected component.
        exact_up_to: Largest number of nodes that is solved exactly.
    """
    if len(nodes) == 1:
        return [frozenset()]
    distances = [_distances(graph, node, until=set(nodes)) for node in nodes]
    heuristic = _tree_of_shortest_paths(graph, nodes, distances)
    if len(nodes) > exact_up_to:
        return [heuristic]
    bound = len(heuristic)
    trees = _Solver(graph, nodes, _candidate_nodes(graph, nodes, bound), bound, limit).solve()
    return sorted(trees, key=sorted)[:limit]


def _candidate_nodes(graph: Graph, nodes: Sequence[str], bound: int) -> list[str]:
    """Return the nodes that a tree within the bound can contain.

    The order is stable.
    """
    distances = [_distances(graph, node, limit=bound) for node in nodes]
    far, first, second = max((distances[a][nodes[b]], a, b) for a, b in combinations(range(len(nodes)), 2))

    def is_reachable(node: str) -> bool:
        lengths = [distance.get(node, bound + 1) for distance in distances]
        # A tree with three nodes is at least half as long as the way around them.
        return sum(sorted(lengths)[:2]) <= bound and lengths[first] + lengths[second] + far <= 2 * bound

    return [node for node in dict.fromkeys(node for distance in distances for node in distance) if is_reachable(node)]


def _distances(graph: Graph, start: str, *, until: set[str] | None = None, limit: int | None = None) -> dict[str, int]:
    """Measure distances until all `until` nodes or the limit is reached."""
    lengths, frontier, distance = {start: 0}, [start], 0
    missing = None if until is None else until - {start}
    while frontier and distance != limit and missing != set():
        distance += 1
        frontier = list(
            dict.fromkeys(neighbour for node in frontier for neighbour in graph[node] if neighbour not in lengths)
        )
        lengths.update(dict.fromkeys(frontier, distance))
        if missing is not None:
            missing.difference_update(frontier)
    return lengths


def _tree_of_shortest_paths(
    graph: Graph, nodes: Sequence[str], distances: Sequence[Mapping[str, int]]
) -> frozenset[Edge]:
    """Connect the nearest pairs by shortest paths (Kou, Markowsky, Berman)."""
    pairs = sorted(combinations(range(len(nodes)), 2), key=lambda pair: (distances[pair[0]][nodes[pair[1]]], pair))
    edges: set[Edge] = set()
    components = _DisjointSets(nodes)
    for first, second in pairs:
        if components.join(nodes[first], nodes[second]):
            edges.update(_path(graph, nodes[second], distances[first]))
    return _prune(edges, set(nodes))


def _path(graph: Graph, end: str, distances: Mapping[str, int]) -> Iterable[Edge]:
    while distances[end] > 0:
        previous = next(neighbour for neighbour in graph[end] if distances.get(neighbour) == distances[end] - 1)
        yield make_edge(end, previous)
        end = previous


def _prune(edges: Iterable[Edge], nodes: set[str]) -> frozenset[Edge]:
    """Remove cycles, then leaves that are not among the nodes."""
    components = _DisjointSets(())
    tree = {edge for edge in sorted(edges) if components.join(*edge)}
    while True:
        ends = [node for edge in tree for node in edge]
        leaves = {node for node in ends if ends.count(node) == 1} - nodes
        if not leaves:
            return frozenset(tree)
        tree = {edge for edge in tree if not leaves & set(edge)}


class _DisjointSets:
    """Disjoint sets of nodes."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._parent = {node: node for node in nodes}

    def join(self, first: str, second: str) -> bool:
        """Merge the sets of two nodes. Returns whether they were different."""
        first, second = self._root(first), self._root(second)
        self._parent[first] = second
        return first != second

    def _root(self, node: str) -> str:
        while (parent := self._parent.setdefault(node, node)) != node:
            node = parent
        return node


class _Solver:
    """Dynamic programme over sets of nodes (Dreyfus and Wagner).

    For each set it holds the length of the shortest trees that connect the set with each node. Lengths come first;
    trees are then reconstructed backwards, only the shortest ones.
    """

    def __init__(self, graph: Graph, nodes: Sequence[str], candidates: Sequence[str], bound: int, limit: int) -> None:
        self._nodes = nodes
        self._bound = bound
        self._limit = limit
        allowed = set(candidates)
        self._graph = {node: [neighbour for neighbour in graph[node] if neighbour in allowed] for node in candidates}
        self._lengths: dict[int, dict[str, int]] = {}
        self._trees: dict[tuple[int, str], _Trees] = {}

    def solve(self) -> _Trees:
        """Return the shortest trees that connect all nodes."""
        full_set = (1 << (len(self._nodes) - 1)) - 1
        for group in range(1, full_set + 1):
            single = group.bit_count() == 1
            start = {self._nodes[group.bit_length() - 1]: 0} if single else self._merge(group)
            self._lengths[group] = self._grow(start)
        return self._reconstruct(full_set, self._nodes[-1])

    def _merge(self, group: int) -> dict[str, int]:
        """Combine trees of two subsets that meet in a node."""
        lengths: dict[str, int] = {}
        for part in _partitions(group):
            first, second = self._lengths[part], self._lengths[group ^ part]
            for node in first.keys() & second.keys():
                length = first[node] + second[node]
                if length <= lengths.get(node, self._bound):
                    lengths[node] = length
        return lengths

    def _grow(self, lengths: dict[str, int]) -> dict[str, int]:
        """Extend trees along edges, shortest first."""
        for length in range(self._bound):
            for node in [node for node, current in lengths.items() if current == length]:
                for neighbour in self._graph[node]:
                    if lengths.get(neighbour, self._bound + 1) > length + 1:
                        lengths[neighbour] = length + 1
        return lengths

    def _reconstruct(self, group: int, node: str) -> _Trees:
        """Return trees of the computed length, at most the limit."""
        if (group, node) not in self._trees:
            trees: set[frozenset[Edge]] = set()
            length = self._lengths[group][node]
            if length == 0:
                trees.add(frozenset())
            for neighbour in self._graph[node]:
                if self._lengths[group].get(neighbour) == length - 1:
                    edge = make_edge(node, neighbour)
                    trees |= {tree | {edge} for tree in self._reconstruct(group, neighbour)}
            for part in _partitions(group):
                first, second = self._lengths[part].get(node), self._lengths[group ^ part].get(node)
                if first is not None and second is not None and first + second == length:
                    others = self._reconstruct(group ^ part, node)
                    trees |= {tree | other for tree in self._reconstruct(part, node) for other in others}
            shortest = sorted((tree for tree in trees if len(tree) == length), key=sorted)
            self._trees[group, node] = frozenset(shortest[: self._limit])
        return self._trees[group, node]


def _partitions(group: int) -> Iterable[int]:
    """Yield one half of each partition of a set in two."""
    part = (group - 1) & group
    while part > group ^ part:
        yield part
        part = (part - 1) & group
