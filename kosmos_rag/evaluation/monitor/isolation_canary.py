"""The permission canary: two tenants with secrets, each asked for the other's as anybody would, by the public library.

Of each tenant one secret is for everyone in it and one for a department. What finds its own shows that the question
could have found the other's.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kosmos_rag.core.types import EVERYONE, IngestReport, SearchResult, SourceDocument
from kosmos_rag.evaluation.monitor.verdict import Verdict, judged_permission

TENANTS = ("kosmos-canary-a", "kosmos-canary-b")
_DEPARTMENT = "department:kosmos-canary"
_NAMESPACE = uuid.UUID("4d4e8f7a-9a0e-5b51-8c55-0f1f6ad5a3c2")
_K = 10


class Scope(Protocol):
    """One tenant as one reader sees it: a Tenant is one."""

    def ingest(self, items: Sequence[SourceDocument]) -> IngestReport:
        """Ingest documents; unchanged ones are passed over."""
        ...

    def search(self, question: str, k: int | None = None) -> SearchResult:
        """Return the best passages for a question."""
        ...


class OpenScope(Protocol):
    """Opens tenants: an Engine's `tenant` does."""

    def __call__(self, name: str, *, principals: Sequence[str]) -> Scope:
        """Return a tenant as a reader with these principals sees it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Secret:
    tenant: str
    reader: str

    @property
    def words(self) -> str:
        return f"canary{uuid.uuid5(_NAMESPACE, f'{self.tenant}/{self.reader}').hex}"

    @property
    def document(self) -> SourceDocument:
        text = f"The secret word of {self.tenant} for {self.reader} is {self.words}."
        return SourceDocument(source=self.reader, data=text.encode(), acl=(self.reader,))


SECRETS = tuple(_Secret(tenant=name, reader=reader) for name in TENANTS for reader in (EVERYONE, _DEPARTMENT))


def check(open_scope: OpenScope) -> Verdict:
    """Put the secrets in place where they are not, and ask every reader for all of them. Raises what asking raises."""
    for name in TENANTS:
        open_scope(name, principals=(EVERYONE,)).ingest([one.document for one in SECRETS if one.tenant == name])
    leaks, missed = [], []
    for name, reader in ((name, reader) for name in TENANTS for reader in (EVERYONE, _DEPARTMENT)):
        scope = open_scope(name, principals=(reader,))
        for secret in SECRETS:
            own = (secret.tenant, secret.reader) == (name, reader)
            seen = secret.words in " ".join(_texts(scope, secret))
            if seen and not own:
                leaks.append(f"{reader} of {name} found the secret of {secret.tenant} for {secret.reader}")
            elif own and not seen:
                missed.append(f"{reader} of {name} did not find the own secret")
    return judged_permission(leaks, missed)


def _texts(scope: Scope, secret: _Secret) -> Iterator[str]:
    for hit in scope.search(f"secret word {secret.words}", _K).hits:
        yield hit.text
