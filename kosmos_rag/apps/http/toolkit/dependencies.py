"""The caller of a request: its identity and its tenant."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends, Request, Security
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import Scope

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.errors import NotAuthenticated, TooManyRequests
from kosmos_rag.apps.http.toolkit.service import Service
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import JobInfo, is_text
from kosmos_rag.engine.api_keys import ADMIN, INGEST, KEY_SUBJECT, OPERATE, READ
from kosmos_rag.engine.tenant import Tenant

P = ParamSpec("P")
R = TypeVar("R")

_REFUSAL_DELAY_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The caller of a request; library calls run with its identity."""

    identity: Identity
    service: Service

    def tenant(self, collection: str | None = None, *, read_your_writes: bool = False) -> Tenant:
        """Open the tenant with the caller's principals.

        Raises RequestError on a malformed collection.
        """
        identity = self.identity
        return self.service.engine.sync_engine.tenant(
            identity.tenant,
            principals=identity.principals,
            collection=collection,
            subject=identity.subject,
            read_your_writes=read_your_writes,
            is_watched=identity.viewed_reader is not None,
        )

    def collection(self, name: str | None) -> str | None:
        """Return the collection of a request; None for all.

        It is the named one, else the default one of the key.
        """
        return self.identity.default_collection if name is None else name

    def scope(self, collection: str | None, *, read_your_writes: bool = False) -> Tenant:
        """Open the collection of a request.

        Without one, open the default collection of its key, or all. Raises RequestError on a malformed collection.
        """
        return self.tenant(self.collection(collection), read_your_writes=read_your_writes)

    def redact_job(self, job: JobInfo) -> JobInfo:
        """Return a job without its error to those who manage no documents.

        The error may quote a document: model servers repeat what they refuse.
        """
        return job if self.identity.has(INGEST) else replace(job, error=None)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call of the library in one slot of the tenant.

        Raises Overloaded, TimedOut, and its own errors.
        """
        return await self.run_at_cost(1, call, *args, **kwargs)

    async def run_at_cost(self, cost: int, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call of the library in `cost` slots of the tenant.

        See `question_cost`. Raises as `run`.

        Args:
            cost: number of slots.
            call: the function; further arguments are passed to it.
        """
        return await self.service.limiter.run(self.identity.tenant, cost, call, *args, **kwargs)


async def authenticate(service: Service, scope: Scope, authorization: str | None) -> Identity:
    """Authenticate a request and count it for the rate limits.

    Raises NotAuthenticated, TooManyRequests, Overloaded, TimedOut, DatabaseError.

    Args:
        scope: the ASGI scope of the request, for the client's address.
    """
    client = scope.get("client")
    needs_lookup = service.authenticator.needs_lookup(authorization)
    try:
        with service.rate_limiter.count_refused_credentials(
            client[0] if client else None, anonymous=authorization is None, needs_lookup=needs_lookup
        ):
            identity = await service.authenticator.identify(authorization)
    except TooManyRequests:
        # A client that tries again at once would cost as much as one that is served.
        await asyncio.sleep(_REFUSAL_DELAY_S)
        raise
    service.rate_limiter.count(identity)
    return await add_groups(service, identity)


async def add_groups(service: Service, identity: Identity) -> Identity:
    """Return the identity with the groups that a directory knows now.

    Raises NotAuthenticated for a reader that the directory refuses, TimedOut, DatabaseError.
    """
    if service.directory is None or identity.subject.startswith(KEY_SUBJECT):
        return identity
    membership = await service.directory.find(identity.tenant, identity.subject)
    if membership is None:
        return identity
    if not membership.active:
        raise NotAuthenticated(
            "the directory does not know the user, or the user is deactivated there; ask its administrator"
        )
    return replace(identity, principals=tuple(dict.fromkeys((*identity.principals, *membership.principals))))


_bearer = HTTPBearer(auto_error=False, description="A token (JWT) or a key of `kosmos-rag api-key create`.")


def _require_scope(*scopes: str) -> Callable[..., Awaitable[Caller]]:
    async def caller(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Caller:
        service: Service = request.app.state.service
        identity = await authenticate(service, request.scope, request.headers.get("authorization"))
        identity.require(*scopes)
        _check_parameters(request)
        return Caller(identity=identity, service=service)

    return caller


def _check_parameters(request: Request) -> None:
    """Raise RequestError for an unknown query parameter, and for a NUL.

    A document whose readers come under a wrong name would be open to everyone. The database stores no NUL.
    """
    parameters = list(_query_parameters(request.scope["route"].dependant))
    if unknown := sorted(request.query_params.keys() - set(parameters)):
        allowed = f"use {', '.join(parameters)}" if parameters else "this route has none"
        raise RequestError(f"there is no query parameter {unknown[0][:60]!r}; {allowed}")
    for name, value in [*request.path_params.items(), *request.query_params.multi_items()]:
        if not is_text(value):
            raise RequestError(f"{name} is {value[:60]!r}; remove the NUL")


def _query_parameters(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a route and of its dependencies."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from _query_parameters(dependency)


Reader = Annotated[Caller, Security(_require_scope(READ), scopes=[READ])]
Writer = Annotated[Caller, Security(_require_scope(INGEST), scopes=[INGEST])]
JobManager = Annotated[Caller, Security(_require_scope(INGEST, OPERATE), scopes=[INGEST, OPERATE])]
Operator = Annotated[Caller, Security(_require_scope(OPERATE), scopes=[OPERATE])]
Administrator = Annotated[Caller, Security(_require_scope(ADMIN), scopes=[ADMIN])]
