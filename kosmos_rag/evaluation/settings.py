"""The sections `evaluation`, `monitor`, `gaps` and `answer_checks`."""

from collections.abc import Mapping
from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Field, Strict

from kosmos_rag.core.section import MAX_INTEGER, Count, File, Section, Share, Switch

Seconds = Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)]


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
        default={},
        description="Question files with known answers, by tenant or `tenant/collection`; `judged`: the accepted ones.",
    )
    isolation_interval_s: Seconds | None = Field(
        default=300.0,
        description="Seconds between two runs of the isolation canary; null disables it.",
    )


class GapSettings(Section):
    """Questions that find nothing or are refused: what people ask and the documents do not answer."""

    record: Switch = Field(default=False, description="Store such questions with their text and reader.")
    min_readers: Annotated[int, Strict(), Ge(1), Le(1000)] = Field(
        default=3, description="Named readers that a group of questions, and each word of it, needs to be shown."
    )
    max_questions: Annotated[int, Strict(), Ge(10), Le(2000)] = Field(
        default=1000, description="Maximum number of stored questions of a tenant; maintenance deletes the oldest."
    )
    keep_days: Count = Field(default=90, description="Retention of a question after it was last asked, in days.")


class AnswerCheckSettings(Section):
    """A share of delivered answers, whose citations maintenance checks again."""

    share: Share = Field(default=0.0, description="Share of answers that are stored for a check; 0 stores none.")
    max_answers: Annotated[int, Strict(), Ge(10), Le(100_000)] = Field(
        default=1000, description="Maximum number of stored answers of a tenant; maintenance deletes the oldest."
    )
    keep_days: Count = Field(default=30, description="Retention of the result of a check, in days.")
