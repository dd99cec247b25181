"""Spider's questions in two parts, by database: one for tuning, one held out."""

import random
from collections.abc import Sequence

from kosmos_rag.text2sql.sql.gold import GoldQuestion

_SEED = 0
TUNED_ON, HELD_OUT, ALL = "tuned on", "held out", "all"


def parts(questions: Sequence[GoldQuestion]) -> dict[str, list[GoldQuestion]]:
    """Return the questions by part, without parts that have none.

    Half of the databases is held out; which ones, a seed decides.
    """
    databases = sorted({gold.database for gold in questions})
    random.Random(_SEED).shuffle(databases)
    first = set(databases[: len(databases) // 2])
    split = {
        TUNED_ON: [gold for gold in questions if gold.database in first],
        HELD_OUT: [gold for gold in questions if gold.database not in first],
        ALL: list(questions),
    }
    return {part: members for part, members in split.items() if members}
