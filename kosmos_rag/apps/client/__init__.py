"""A client of the HTTP service: calls go in, the library's records and errors come out.

`Client` waits, `AsyncClient` is awaited. Both send what `calls.py` defines; neither needs the engine.
"""

from kosmos_rag.apps.client.clients import AsyncClient, Client
from kosmos_rag.apps.client.transport import Grounding, Page, Stats

__all__ = ["AsyncClient", "Client", "Grounding", "Page", "Stats"]
