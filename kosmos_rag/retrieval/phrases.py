"""Questions with phrases in quotes that few hits hold: those first, then the best of the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kosmos_rag.retrieval.candidates import Leg
from kosmos_rag.retrieval.fusion import Fused

PHRASE = "phrase"
"""The share in the fused score of a hit that holds the phrases, where others do not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """Candidates in their fused order, and the lists that proposed them."""

    retrievers: dict[str, Leg]
    fused: list[Fused]


def filled_up(holding: Ranked, all_of: Ranked, phrases: Sequence[str]) -> tuple[Ranked, str | None]:
    """Return those that hold the phrases, then the others if there are any, and a note that says so.

    The first are given the best score of the others, so that the order is still that of the scores.
    """
    held = {entry.chunk_id for entry in holding.fused}
    others = [entry for entry in all_of.fused if entry.chunk_id not in held]
    if not others:
        return holding, None
    ahead = others[0].score
    first = [
        replace(entry, score=entry.score + ahead, score_contributions={**entry.score_contributions, PHRASE: ahead})
        for entry in holding.fused
    ]
    quoted = ", ".join(f'"{phrase}"' for phrase in phrases)
    count = f"{len(first)} chunks hold {quoted}, the other hits do not" if first else f"no chunk holds {quoted}"
    legs = {**all_of.retrievers, **{f"{name} quoted": leg for name, leg in holding.retrievers.items()}}
    return Ranked(retrievers=legs, fused=[*first, *others]), f"{count}; put + before the quotes to have no others"
