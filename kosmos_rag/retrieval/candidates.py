"""What a leg gives back: candidates, best first, with an account."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kosmos_rag.core.types import Candidate, RetrieverStats

DENSE, LEXICAL = "dense", "lexical"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leg:
    """Candidates of one leg, best first, and what was done to find them."""

    candidates: tuple[Candidate, ...]
    explain: RetrieverStats


def without_plan(account: RetrieverStats) -> RetrieverStats:
    """Return the account without what depends on documents that its reader may not read."""
    return replace(account, plan="not told", read={})


def leg(
    scored: Iterable[tuple[uuid.UUID, float]], *, depth: int, plan: str, read: Mapping[str, int], reason: str | None
) -> Leg:
    """Rank candidates, best first; equal scores by id, so that an order never depends on how rows were found."""
    # By number, which compares in C, where an id does so in Python: of alike texts thousands may tie.
    ordered = sorted(scored, key=lambda entry: (-entry[1], entry[0].int))[:depth]
    return Leg(
        candidates=tuple(
            Candidate(chunk_id=chunk_id, score=score, rank=rank)
            for rank, (chunk_id, score) in enumerate(ordered, start=1)
        ),
        explain=RetrieverStats(asked=depth, returned=len(ordered), plan=plan, read=dict(read), reason=reason),
    )
