"""The section of the configuration that is about ingestion workers."""

from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import Field, Strict

from kosmos_rag.core.section import MAX_INTEGER, Count, Section

Seconds = Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)]


class WorkerSettings(Section):
    """Worker processes: number, batch sizes, timeouts and retention."""

    processes: Count = Field(default=1, description="Processes that run jobs. Each loads its own models.")
    batch: Count = Field(
        default=64, description="Jobs that a process claims at once; documents of a batch are embedded together."
    )
    lease_s: Annotated[float, Strict(), Ge(0.3), Le(MAX_INTEGER)] = Field(
        default=60.0, description="Seconds after which the jobs of a lost worker are released to others."
    )
    poll_s: Seconds = Field(
        default=2.0,
        description="Seconds between two polls of the queue, for workers behind a pooler without notifications.",
    )
    max_attempts: Count = Field(default=3, description="Attempts after which a job that fails is dead.")
    max_lost: Count = Field(
        default=3, description="Number of workers that may end while they run a job, before it is dead."
    )
    stuck_s: Seconds = Field(
        default=900.0, description="Seconds without any progress after which a process is ended and replaced."
    )
    memory_mb: Annotated[int, Strict(), Ge(64), Le(MAX_INTEGER)] = Field(
        default=4096,
        description="Memory in megabytes above which a process is ended; above three quarters, after its batch.",
    )
    drain_s: Seconds = Field(
        default=25.0, description="Seconds that running jobs may take to finish when the worker stops."
    )
    maintenance_every_s: Seconds = Field(
        default=300.0,
        description="Seconds between two rounds of maintenance of a tenant: indexes, leftovers, old jobs.",
    )
    keep_days: Count = Field(default=7, description="Retention of finished jobs, runs and events, in days.")
    keep_dead_days: Count = Field(default=90, description="Retention of dead jobs, in days.")
    keep_audit_months: Count = Field(
        default=12, description="Retention of the audit log, in months before the current one."
    )
    keep_experiment_days: Count = Field(
        default=30, description="Retention of results of experiments, and of stopped experiments, in days."
    )
    health_port: Annotated[int, Strict(), Ge(1), Le(65535)] | None = Field(
        default=None, description="Port of /livez, /readyz and /metrics; null opens none."
    )
