"""The section `guard`: how the recall of live questions is watched."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Field, Strict

from kosmos_rag.core.config.values import MAX_INTEGER, Count, File, Section, Switch

Seconds = Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)]


class MonitorSettings(Section):
    """What the guard keeps of questions, how often it measures them again, and what it may do about it."""

    sample: Switch = Field(
        default=True, description="Keep vectors of some of the questions that a vector index answers."
    )
    samples: Annotated[int, Strict(), Ge(30), Le(1000)] = Field(
        default=50, description="Samples of a collection and space between two runs at most, and measured in one run."
    )
    keep_questions: Switch = Field(
        default=False, description="Keep the text of a sampled question beside its vector, for people to read."
    )
    every_s: Seconds = Field(default=600.0, description="Seconds between two runs over a tenant at least.")
    database_share: Annotated[float, Strict(), Gt(0), Le(1)] = Field(
        default=0.02, description="Share of the time of one connection that all runs together may take."
    )
    statement_timeout_ms: Count = Field(
        default=5_000, description="Milliseconds after which a statement of the guard is given up."
    )
    act: Switch = Field(
        default=True, description="Let maintenance search an index further, or build it again, where recall is low."
    )
    questions: Mapping[str, File] = Field(
        default={}, description="Question files with known answers, by tenant or `tenant/collection`."
    )
    permission_every_s: Seconds | None = Field(
        default=300.0,
        description="Seconds between two tries to read another tenant's secret; null tries none.",
    )
