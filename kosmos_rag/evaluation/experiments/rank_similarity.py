"""Similarity of two rankings of one query.

From 0 (disjoint) to 1 (equal).
"""

from collections.abc import Hashable, Sequence

_PERSISTENCE = 0.9
"""Probability to continue to the next rank: the first ten ranks have 86 % of the weight."""


def overlap(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return the share of the longer ranking that both contain.

    In any order; 1 for two empty rankings.
    """
    longer = max(len(first), len(second))
    return len(set(first) & set(second)) / longer if longer else 1.0


def rank_biased_overlap(
    first: Sequence[Hashable], second: Sequence[Hashable], *, persistence: float = _PERSISTENCE
) -> float:
    """Return the extrapolated rank-biased overlap of two rankings.

    Rankings have no repetitions.

    Source: Webber, Moffat and Zobel, "A similarity measure for indefinite rankings" (2010), equation 32.

    Args:
        first: One ranking, best first.
        second: The other ranking.
        persistence: Weight of depth, 0 to 1: the probability that a reader continues to the next rank.
    """
    shorter, longer = sorted((first, second), key=len)
    if not shorter:
        return 0.0 if longer else 1.0
    items_short: set[Hashable] = set()
    items_long: set[Hashable] = set()
    shared_by_depth = []
    for depth, item in enumerate(longer):
        items_long.add(item)
        if depth < len(shorter):
            items_short.add(shorter[depth])
        shared_by_depth.append(len(items_short & items_long))
    short, long = len(shorter), len(longer)
    shared_short, shared_long = shared_by_depth[short - 1], shared_by_depth[-1]
    agreement = sum(shared / depth * persistence**depth for depth, shared in enumerate(shared_by_depth, start=1))
    agreement += sum(
        shared_short * (depth - short) / (short * depth) * persistence**depth for depth in range(short + 1, long + 1)
    )
    beyond = ((shared_long - shared_short) / long + shared_short / short) * persistence**long
    return (1 - persistence) / persistence * agreement + beyond
