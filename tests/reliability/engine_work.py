"""The worker's own work over an embedder that needs no model: these tests are about the queue, not about vectors."""

from kosmos_rag import Engine
from kosmos_rag.core.config import Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.worker.handlers import EngineJobRunner


def create_runner(settings: Settings) -> EngineJobRunner:
    engine = Engine(settings, embedder=HashingEmbedder())
    engine.ingest_pipeline.processor.warm_up()
    return EngineJobRunner(engine)
