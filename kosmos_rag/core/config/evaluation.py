"""The section `evaluation`: what is measured of retrieval, and what it has to reach."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import Field, Strict

from kosmos_rag.core.config.values import Section, Share


class EvaluationSettings(Section):
    """What `kosmos-rag eval` measures."""

    measures: tuple[str, ...] = Field(
        default=("nDCG@10", "R@10", "RR@10", "AP@10", "Success@1"),
        min_length=1,
        description="Measures as ir-measures names them; RR is the reciprocal rank (MRR), AP is for MAP.",
    )
    depth: Annotated[int, Strict(), Ge(1), Le(1000)] = Field(
        default=30, description="Hits that a question asks for; a document stands at the rank of its best one."
    )
    targets: Mapping[str, Share] = Field(
        default={"R@10": 0.8, "RR@10": 0.6},
        description="What a measure has to reach: `eval gate` exits with 1 below it.",
    )
    alerts: Mapping[str, Share] = Field(
        default={"R@10": 0.7, "RR@10": 0.5},
        description="Where a measure is so low that somebody is to be told: `eval gate --alert` exits with 1 below it.",
    )
