"""Clients of the HTTP service.

They return the records of the library and raise its errors.

`Client` is synchronous, `AsyncClient` asynchronous; both have the calls of calls.py and those of wings, and
neither imports the engine.
"""

from kosmos_rag.apps.client.clients import AsyncClient, Client
from kosmos_rag.apps.client.transport import Page
from kosmos_rag.core.types import Stats

__all__ = ["AsyncClient", "Client", "Page", "Stats"]
