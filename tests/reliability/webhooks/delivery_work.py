"""A worker with the deliveries of events, and a service that takes documents: processes that a test kills.

python -m tests.reliability.webhooks.delivery_work PORT   # the service
"""

import asyncio
import socket
import sys

from kosmos_rag import AsyncEngine, Engine
from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.toolkit.server import Server
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.core.config import Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.webhooks import delivery
from kosmos_rag.wings import load_wing_jobs
from kosmos_rag.worker.handlers import EngineJobRunner

delivery.FIRST_DELAY_S = 0.1  # a test has no hour


def create_runner(settings: Settings) -> EngineJobRunner:
    engine = Engine(settings, embedder=HashingEmbedder())
    engine.ingest_pipeline.processor.warm_up()
    return EngineJobRunner(engine, load_wing_jobs())


def serve(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        engine = Engine(Settings.load(), embedder=HashingEmbedder())
        service = create_service(AsyncEngine(engine))
        asyncio.run(Server(service, create_app(service)).serve(sockets=[listening]))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
