"""HTTP problem types of errors: status, name and title (RFC 9457, problem+json)."""

from dataclasses import dataclass

from kosmos_rag.apps.errors import (
    NotAuthenticated,
    NotPermitted,
    Overloaded,
    PayloadTooLarge,
    SignInUnavailable,
    TimedOut,
    TooManyRequests,
)
from kosmos_rag.core import errors

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:kosmos-rag:problem:"
"""Prefix of each problem's type URI; its name follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A problem type: what a client sees of a kind of error."""

    status: int
    name: str
    """The last part of the type URI."""
    title: str

    @property
    def type(self) -> str:
        """The URI that identifies the problem type."""
        return f"{TYPE}{self.name}"


def _problem(status: int, name: str, title: str) -> Problem:
    return Problem(status=status, name=name, title=title)


PROBLEMS: dict[type[errors.KosmosError], Problem] = {
    NotAuthenticated: _problem(401, "not-authenticated", "Credentials are missing or not valid"),
    NotPermitted: _problem(403, "not-permitted", "The scope is missing"),
    errors.NotFound: _problem(404, "not-found", "The resource does not exist"),
    errors.LimitReached: _problem(429, "limit-reached", "A limit of usage is reached"),
    errors.BudgetReached: _problem(402, "budget-reached", "The budget is used up"),
    PayloadTooLarge: _problem(413, "payload-too-large", "The body is too large"),
    TooManyRequests: _problem(429, "too-many-requests", "The rate limit is exceeded"),
    Overloaded: _problem(503, "overloaded", "The service is at capacity"),
    TimedOut: _problem(504, "timed-out", "It took too long"),
    SignInUnavailable: _problem(502, "sign-in-unavailable", "The identity provider does not answer"),
    errors.RequestError: _problem(422, "request-invalid", "The request is invalid"),
    errors.IngestionError: _problem(422, "document-invalid", "The document cannot be ingested"),
    errors.EmbeddingSpaceChanged: _problem(409, "embedding-space-changed", "Another embedding model is live now"),
    errors.IndexLocked: _problem(409, "index-locked", "The indexes are under maintenance"),
    errors.LeaseLost: _problem(409, "lease-lost", "Another worker has the job"),
    errors.ModelUnavailable: _problem(503, "model-unavailable", "A model cannot be used"),
    errors.EmbeddingSpaceMismatch: _problem(
        503, "embedding-space-mismatch", "The documents belong to another embedding model"
    ),
    errors.ModelError: _problem(502, "model-failed", "A model failed"),
    errors.NodeUnavailable: _problem(503, "node-unavailable", "The database server of this tenant is unavailable"),
    errors.DatabaseUnavailable: _problem(503, "database-unavailable", "The database is unavailable"),
    errors.DatabaseNotReady: _problem(503, "database-not-ready", "The database is not ready to serve"),
    errors.DatabaseError: _problem(500, "database-failed", "The database failed"),
    errors.ConfigError: _problem(500, "configuration-invalid", "The service is not configured for this"),
}
"""By error class; a subclass has the problem type of its nearest base class here."""
