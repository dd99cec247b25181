"""The components of a service, which its routes share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from kosmos_rag.apps.auth.directory_lookup import DirectoryLookup
from kosmos_rag.apps.auth.identity import Authenticator
from kosmos_rag.apps.auth.key_verifier import KeyVerifier
from kosmos_rag.apps.auth.openid import OpenIdClient
from kosmos_rag.apps.http.toolkit.concurrency import ConcurrencyLimiter
from kosmos_rag.apps.http.toolkit.metrics import ServiceMetrics
from kosmos_rag.apps.http.toolkit.rate_limit import RateLimiter
from kosmos_rag.apps.http.toolkit.readiness import Readiness
from kosmos_rag.apps.http.toolkit.streaming import Streams
from kosmos_rag.apps.http.toolkit.uploads import Uploads
from kosmos_rag.core.config import Settings
from kosmos_rag.engine.aio import AsyncEngine

T = TypeVar("T")


class SharedObjects:
    """Objects of a service that wings create on first use. Thread-safe."""

    def __init__(self) -> None:
        self._objects: dict[Callable[[], Any], Any] = {}
        self._lock = threading.Lock()

    def get(self, create: Callable[[], T]) -> T:
        """Return the one object of a class or function."""
        with self._lock:
            if create not in self._objects:
                self._objects[create] = create()
            return cast("T", self._objects[create])


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The components that the routes use."""

    settings: Settings
    engine: AsyncEngine
    limiter: ConcurrencyLimiter
    streams: Streams
    uploads: Uploads
    authenticator: Authenticator
    rate_limiter: RateLimiter
    metrics: ServiceMetrics
    readiness: Readiness
    openid: OpenIdClient | None
    """None where the console offers no sign-in by OpenID Connect."""
    directory: DirectoryLookup | None
    """None where no wing knows the groups of readers."""
    shared: SharedObjects = field(default_factory=SharedObjects)


def create_service(engine: AsyncEngine, *, audience: str | None = None, console: bool = True) -> Service:
    """Create the service for an open engine. Raises ConfigError.

    Args:
        audience: required audience of tokens; None for `service.tokens.audience`.
        console: Whether users sign in to the console, for which the provider's secrets are needed.
    """
    settings = engine.settings
    metrics, limiter = ServiceMetrics(settings.observability), ConcurrencyLimiter(engine, settings)
    engine.sync_engine.observe(metrics.observer)
    streams = Streams(settings.service)
    metrics.register_gauges(calls=lambda: limiter.in_flight, streams=lambda: streams.in_flight)
    keys = KeyVerifier(engine.sync_engine.open_key_reader, settings.service)
    directory = None
    if engine.sync_engine.has_directory:
        directory = DirectoryLookup(engine.sync_engine.open_directory_reader, settings.service)
    return Service(
        settings=settings,
        engine=engine,
        limiter=limiter,
        streams=streams,
        uploads=Uploads(settings.service),
        authenticator=Authenticator(settings, keys, audience=audience),
        rate_limiter=RateLimiter(settings.service),
        metrics=metrics,
        readiness=Readiness(engine.sync_engine),
        openid=OpenIdClient(settings) if console and settings.service.openid.issuer is not None else None,
        directory=directory,
    )
