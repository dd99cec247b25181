"""The work of the processes of benchmarks.worker: nothing, or a worker without a model."""

from collections.abc import Sequence

from kosmos_rag import Engine, Settings
from kosmos_rag.core.types import Job, Outcome
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.database import Database
from kosmos_rag.worker.channel import SupervisorChannel
from kosmos_rag.worker.handlers import EngineJobRunner


class Nothing:
    """Finishes jobs at once."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def run(self, jobs: Sequence[Job], channel: SupervisorChannel) -> None:
        """Finish a batch as documents are finished: together."""
        channel.queue.finish({job.token: Outcome.DONE for job in jobs})
        channel.report_ended(jobs)

    def close(self) -> None:
        """Close the connections."""
        self.database.close()


def open_nothing(settings: Settings) -> Nothing:
    """Open work that does nothing."""
    return Nothing(Database(settings.database))


def create_hashing_runner(settings: Settings) -> EngineJobRunner:
    """Open the worker's own work over an embedder that costs almost nothing."""
    return EngineJobRunner(Engine(settings, embedder=HashingEmbedder()))


def create_wide_hashing_runner(settings: Settings) -> EngineJobRunner:
    """Open the same with vectors as long as those of the configured model."""
    embedder = HashingEmbedder(dimensions=settings.rag.embedding.dimensions)
    return EngineJobRunner(Engine(settings, embedder=embedder))
