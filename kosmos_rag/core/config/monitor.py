"""The section `monitor`: how the recall of live queries is measured."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Field, Strict

from kosmos_rag.core.section import MAX_INTEGER, Count, File, Section, Switch

Seconds = Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)]


class MonitorSettings(Section):
    """Sampling of live queries, frequency of the measurements, and automatic repairs."""

    sample: Switch = Field(default=True, description="Sample the vectors of live queries that use a vector index.")
    samples_per_run: Annotated[int, Strict(), Ge(30), Le(1000)] = Field(
        default=50, description="Maximum number of samples of a collection and space between two runs and in one run."
    )
    keep_questions: Switch = Field(
        default=False, description="Store the text of a sampled query with its vector, for people to read."
    )
    interval_s: Seconds = Field(default=600.0, description="Minimum seconds between two runs over a tenant.")
    database_share: Annotated[float, Strict(), Gt(0), Le(1)] = Field(
        default=0.02, description="Maximum share of the time of one connection that all runs together use."
    )
    statement_timeout_ms: Count = Field(default=5_000, description="Timeout of a statement of a run, in milliseconds.")
    auto_repair: Switch = Field(
        default=True, description="Widen the search of an index, or rebuild it, when its recall is low."
    )
    questions: Mapping[str, File] = Field(
        default={}, description="Question files with known answers, by tenant or `tenant/collection`."
    )
    isolation_interval_s: Seconds | None = Field(
        default=300.0,
        description="Seconds between two runs of the isolation canary; null disables it.",
    )
