"""Runs the jobs of a process with one engine.

Each kind of job has a handler.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError, NodeUnavailable
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import Job
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import NO_WINGS, JobCounts, WingJobHandler, WingJobs
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.channel import CounterBuffer, JobInterrupted, SupervisorChannel
from kosmos_rag.worker.handlers import documents, maintenance, permissions, sync


class JobHandler(Protocol):
    """Runs jobs of some kinds."""

    def run(self, job: Job, channel: SupervisorChannel) -> JobCounts | None:
        """Run and finish a job; return counters to add.

        Errors release or fail the job.
        """
        ...


class _WingHandler:
    """Runs jobs of a wing under the preset of their enqueuing."""

    def __init__(self, handler: WingJobHandler, pipeline: IngestPipeline) -> None:
        self._handler = handler
        self._pipeline = pipeline

    def run(self, job: Job, channel: SupervisorChannel) -> JobCounts | None:
        """Run and finish a job.

        Raises IngestionError if the collection has another preset now.
        """
        if (preset := job.payload.get("preset")) is not None:
            self._pipeline.require_preset(TenantRef(id=job.tenant_id, name=job.tenant), job.collection, preset)
        return self._handler.run(job, channel)


class EngineJobRunner:
    """Runs all kinds of jobs with one engine."""

    def __init__(self, engine: Engine, wings: WingJobs = NO_WINGS) -> None:
        self._engine = engine
        self.database = engine.database
        counters = CounterBuffer()
        engine.observe(counters)
        self._documents = documents.DocumentHandler(engine.database, engine.ingest_pipeline, counters)
        self._sync = sync.SyncHandler(engine.database, engine.ingest_pipeline)
        self._permissions = permissions.PermissionsHandler(engine.database, engine.settings.ingestion)
        self._wings = {
            kind.name: _WingHandler(kind.create_handler(engine), engine.ingest_pipeline) for kind in wings.kinds
        }
        tasks = [task.create_handler(engine) for task in wings.maintenance]
        self._maintenance = maintenance.MaintenanceHandler(
            engine.database, engine.indexes, tasks, engine.settings.worker
        )

    def run(self, jobs: Sequence[Job], channel: SupervisorChannel) -> None:
        """Run document jobs in batches and the others one by one.

        Release those past the time slice.
        """
        deadline = time.monotonic() + documents.BATCH_TIME_SLICE_S
        self._documents.run([job for job in jobs if job.kind == kinds.DOCUMENT], channel, deadline)
        handlers: dict[str, JobHandler] = {
            kinds.SYNC: self._sync,
            kinds.PERMISSIONS: self._permissions,
            kinds.MAINTAIN: self._maintenance,
            kinds.RECONCILE: self._maintenance,
            kinds.AUDIT: self._maintenance,
            **self._wings,
        }
        for number, job in enumerate(job for job in jobs if job.kind in handlers):
            if channel.stopping or (number and time.monotonic() > deadline):
                channel.release([job])
            elif channel.is_revoked(job):
                channel.report_ended([job])
            else:
                with tracing.start_entry_span(f"kosmos.job.{job.kind}", [job.payload.get("traceparent")]):
                    run_job(handlers[job.kind], job, channel)

    def close(self) -> None:
        """Wait for started batches, and close the engine."""
        self._documents.close()
        self._engine.close()


def run_job(handler: JobHandler, job: Job, channel: SupervisorChannel) -> None:
    """Run a job, and report how it ended.

    Args:
        handler: the handler of the job's kind.
        channel: the supervisor's channel.
    """
    try:
        counts = handler.run(job, channel)
    except NodeUnavailable as error:
        # Released, it would be claimed at once, again and again, until the node returns.
        return documents.fail(channel, job, error)
    except (JobInterrupted, DatabaseUnavailable):
        return channel.release([job])
    except KosmosError as error:
        return documents.fail(channel, job, error)
    except Exception as error:  # noqa: BLE001 — logged, and the worker continues
        return documents.fail_unexpected(channel, job, error)
    return channel.report_ended([job], counts)


def create_runner(settings: Settings, wings: WingJobs = NO_WINGS) -> EngineJobRunner:
    """Open an engine and load its model.

    A process needs the model before its first job. Raises ModelUnavailable.

    Args:
        wings: what wings add.
    """
    engine = Engine(settings)
    engine.ingest_pipeline.processor.warm_up()
    return EngineJobRunner(engine, wings)
