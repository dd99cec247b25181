"""Errors as they are told over HTTP: one table from error to status, name and title (RFC 9457, problem+json)."""

from dataclasses import dataclass

from kosmos_rag.core import errors

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:kosmos-rag:problem:"
"""What the type URI of each problem begins with; its name follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What a kind of error is to whoever sent the request."""

    status: int
    name: str
    """The last part of the type URI."""
    title: str

    @property
    def type(self) -> str:
        """The URI that programs tell it by."""
        return f"{TYPE}{self.name}"


def _problem(status: int, name: str, title: str) -> Problem:
    return Problem(status=status, name=name, title=title)


PROBLEMS: dict[type[errors.KosmosError], Problem] = {
    errors.NotAuthenticated: _problem(401, "not-authenticated", "Credentials are missing or not valid"),
    errors.NotPermitted: _problem(403, "not-permitted", "The scope is missing"),
    errors.NotFound: _problem(404, "not-found", "There is nothing of that name"),
    errors.PayloadTooLarge: _problem(413, "too-large", "The body is too large"),
    errors.TooManyRequests: _problem(429, "too-many-requests", "The rate is used up"),
    errors.Overloaded: _problem(503, "overloaded", "No turn was free"),
    errors.TimedOut: _problem(504, "timed-out", "It took too long"),
    errors.RequestError: _problem(422, "request-invalid", "The request cannot be answered as it stands"),
    errors.IngestionError: _problem(422, "document-invalid", "The document cannot be taken"),
    errors.EmbeddingSpaceChanged: _problem(409, "space-switched", "Another embedding model has become live"),
    errors.IndexLocked: _problem(409, "indexes-busy", "The indexes are being worked on"),
    errors.LeaseLost: _problem(409, "lease-lost", "The job is another worker's"),
    errors.ModelUnavailable: _problem(503, "model-unavailable", "A model cannot be used"),
    errors.EmbeddingSpaceMismatch: _problem(503, "space-mismatch", "The documents belong to another embedding model"),
    errors.ModelError: _problem(502, "model-failed", "A model failed"),
    errors.DatabaseUnavailable: _problem(503, "database-unavailable", "The database is away"),
    errors.DatabaseNotReady: _problem(503, "database-not-ready", "The database is not one to serve from"),
    errors.DatabaseError: _problem(500, "database-failed", "The database failed"),
    errors.ConfigError: _problem(500, "configuration-invalid", "The service is not set up for this"),
}
"""By the error's class, or the nearest one above it that is here."""
