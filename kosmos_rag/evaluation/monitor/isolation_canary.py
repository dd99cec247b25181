"""The isolation canary: two tenants with secrets.

Every reader searches for all secrets through the public library.

Each tenant has one secret for everyone and one for a department. A reader that retrieves its own secret shows that the
query could have retrieved the others.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kosmos_rag.core.types import EVERYONE, IngestReport, SearchResult, SourceDocument
from kosmos_rag.evaluation.monitor.verdict import MonitorVerdict, judge_isolation

TENANTS = ("kosmos-canary-a", "kosmos-canary-b")
_DEPARTMENT = "department:kosmos-canary"
_NOBODY = "kosmos:canary"
"""A principal that no reader has."""
_NAMESPACE = uuid.UUID("4d4e8f7a-9a0e-5b51-8c55-0f1f6ad5a3c2")
_K = 10


class CanaryTenant(Protocol):
    """One tenant as one reader sees it: a Tenant is one."""

    def ingest(self, items: Sequence[SourceDocument]) -> IngestReport:
        """Ingest documents; skip unchanged ones."""
        ...

    def search(self, question: str, k: int | None = None) -> SearchResult:
        """Return the best passages for a query."""
        ...


class OpenCanaryTenant(Protocol):
    """Opens tenants: an Engine's `tenant` does."""

    def __call__(self, name: str, *, principals: Sequence[str]) -> CanaryTenant:
        """Return a tenant as a reader with these principals sees it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Secret:
    tenant: str
    reader: str

    @property
    def word(self) -> str:
        return f"canary{uuid.uuid5(_NAMESPACE, f'{self.tenant}/{self.reader}').hex}"

    @property
    def document(self) -> SourceDocument:
        text = f"The secret word of {self.tenant} for {self.reader} is {self.word}."
        # The settings of the process may derive acls, except own ones, and may require approved documents.
        return SourceDocument(
            source=self.reader, data=text.encode(), acl=(self.reader, _NOBODY), metadata={"approved": True}
        )


SECRETS = tuple(_Secret(tenant=name, reader=reader) for name in TENANTS for reader in (EVERYONE, _DEPARTMENT))


def check_isolation(open_tenant: OpenCanaryTenant) -> MonitorVerdict:
    """Ingest the secrets, then search for all of them as every reader.

    Raises what ingestion and search raise.
    """
    for name in TENANTS:
        documents = [secret.document for secret in SECRETS if secret.tenant == name]
        open_tenant(name, principals=(EVERYONE,)).ingest(documents)
    leaks, missed = [], []
    for name, reader in ((name, reader) for name in TENANTS for reader in (EVERYONE, _DEPARTMENT)):
        tenant = open_tenant(name, principals=(reader,))
        for secret in SECRETS:
            is_own = (secret.tenant, secret.reader) == (name, reader)
            retrieved = _retrieves(tenant, secret)
            if retrieved and not is_own:
                leaks.append(f"{reader} of {name} found the secret of {secret.tenant} for {secret.reader}")
            elif is_own and not retrieved:
                missed.append(f"{reader} of {name} did not find the own secret")
    return judge_isolation(leaks, missed)


def _retrieves(tenant: CanaryTenant, secret: _Secret) -> bool:
    hits = tenant.search(f"secret word {secret.word}", _K).hits
    return secret.word in " ".join(hit.text for hit in hits)
