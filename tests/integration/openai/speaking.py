"""Clients of OpenAI's interface: the official SDK, unmodified."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from kosmos_rag import Tenant
from kosmos_rag.core.types import JobState
from tests.integration.apps.http.serving import Running
from tests.lazy_imports import import_on_use

if TYPE_CHECKING:
    import openai
else:
    openai = import_on_use("openai")

UNFINISHED = [JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING]


class Speaking:
    """Clients of one tenant."""

    def __init__(self, running: Running, tenant_name: str, work: Callable[[], None]) -> None:
        self.running = running
        self.tenant_name = tenant_name
        self._work = work
        self._clients = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    @property
    def tenant(self) -> Tenant:
        return self.running.service.engine.sync_engine.tenant(self.tenant_name)

    def client(self, *scopes: str, name: str = "app", principals: tuple[str, ...] = ()) -> "openai.OpenAI":
        """Return the SDK with a key of these scopes; `ingest` and `read` by default."""
        granted = scopes or ("ingest", "read")
        key = self.running.key(name, *granted, tenant_name=self.tenant_name, principals=principals)
        return self.with_key(key)

    def with_key(self, key: str) -> "openai.OpenAI":
        return self._clients.enter_context(
            openai.OpenAI(api_key=key, base_url=f"{self.running.url}/openai/v1", max_retries=0, timeout=30)
        )

    def work(self) -> None:
        """Do the tenant's jobs, as a worker does."""
        while any(job.every_s is None for job in self.tenant.jobs.find(states=UNFINISHED)):
            self._work()
