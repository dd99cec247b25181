"""Runs the jobs of a process with one engine.

Each kind of job has a handler.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
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


class _LazyHandler:
    """Creates a handler with its first job, which an error of the creation fails."""

    def __init__(self, create_handler: Callable[[], WingJobHandler | JobHandler]) -> None:
        self._create_handler = create_handler

    @cached_property
    def _handler(self) -> WingJobHandler | JobHandler:
        return self._create_handler()

    def run(self, job: Job, channel: SupervisorChannel) -> JobCounts | None:
        """Run and finish a job."""
        return self._handler.run(job, channel)


class _WingHandler:
    """Runs jobs of a wing under the preset of their enqueuing."""

    def __init__(self, handler: JobHandler, pipeline: IngestPipeline) -> None:
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
        self._tasks = wings.maintenance
        self._maintenance = _LazyHandler(self._create_maintenance)
        self._handlers: dict[str, JobHandler] = {
            kinds.SYNC: sync.SyncHandler(engine.database, engine.ingest_pipeline),
            kinds.PERMISSIONS: permissions.PermissionsHandler(engine.database, engine.settings.ingestion),
        }
        for kind in wings.kinds:
            handler = _LazyHandler(partial(kind.create_handler, engine))
            self._handlers[kind.name] = _WingHandler(handler, engine.ingest_pipeline)

    def _create_maintenance(self) -> JobHandler:
        engine = self._engine
        tasks = [task.create_handler(engine) for task in self._tasks]
        return maintenance.MaintenanceHandler(engine.database, engine.indexes, tasks, engine.settings.worker)

    def _get_handler(self, kind: str) -> JobHandler | None:
        return self._maintenance if kind in kinds.UPKEEP else self._handlers.get(kind)

    def run(self, jobs: Sequence[Job], channel: SupervisorChannel) -> None:
        """Run document jobs in batches and the others one by one.

        Release those past the time slice.
        """
        deadline = time.monotonic() + documents.BATCH_TIME_SLICE_S
        self._documents.run([job for job in jobs if job.kind == kinds.DOCUMENT], channel, deadline)
        pairs = [(job, handler) for job in jobs if (handler := self._get_handler(job.kind)) is not None]
        for number, (job, handler) in enumerate(pairs):
            if channel.stopping or (number and time.monotonic() > deadline):
                channel.release([job])
            elif channel.is_revoked(job):
                channel.report_ended([job])
            else:
                with tracing.start_entry_span(f"kosmos.job.{job.kind}", [job.payload.get("traceparent")]):
                    run_job(handler, job, channel)

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
    """
    engine = Engine(settings)
    engine.ingest_pipeline.processor.warm_up()
    return EngineJobRunner(engine, wings)
