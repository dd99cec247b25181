"""The section `evaluation`: metrics of retrieval, and the values they must reach."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import Field, Strict

from kosmos_rag.core.section import Section, Share


class EvaluationSettings(Section):
    """What `kosmos-rag eval` measures."""

    measures: tuple[str, ...] = Field(
        default=("nDCG@10", "R@10", "RR@10", "AP@10", "Success@1"),
        min_length=1,
        description="Measures as ir-measures names them; RR is the reciprocal rank (MRR), AP is for MAP.",
    )
    depth: Annotated[int, Strict(), Ge(1), Le(1000)] = Field(
        default=30, description="Number of hits for each question; a document has the rank of its best one."
    )
    targets: Mapping[str, Share] = Field(
        default={"R@10": 0.8, "RR@10": 0.6},
        description="Minimum of a measure: `eval gate` exits with 1 below it.",
    )
    alerts: Mapping[str, Share] = Field(
        default={"R@10": 0.7, "RR@10": 0.5},
        description="Alert threshold of a measure: `eval gate --alert` exits with 1 below it.",
    )
