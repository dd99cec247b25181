"""The table from error to problem."""

import json

import pytest

from kosmos_rag.apps.errors import Overloaded, TooManyRequests
from kosmos_rag.apps.http.toolkit.errors import INTERNAL, encode_problem, public_detail, response_headers, to_problem
from kosmos_rag.apps.problem_details import PROBLEMS
from kosmos_rag.core import errors
from kosmos_rag.core.errors import KosmosError

ERROR_MODULES = {"kosmos_rag.core.errors", "kosmos_rag.apps.errors"}


def _all(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _all(child))]


def test_problems__cover_every_error() -> None:
    kinds = [kind for kind in _all(KosmosError) if kind.__module__ in ERROR_MODULES]
    without = [
        kind.__name__ for kind in kinds if kind is not KosmosError and not any(up in PROBLEMS for up in kind.__mro__)
    ]
    # The branch has none of its own, each of its leaves does; but one, which is of those who find no service.
    assert without == ["ServiceError", "ServiceUnreachable"]


def test_problems__are_told_apart_by_their_types() -> None:
    types = [problem.type for problem in PROBLEMS.values()]
    assert len(types) == len(set(types))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.SourceError("too_large", "x"), 422),
        (errors.StatementFailed("x", sqlstate="57014"), 504),
        (errors.StatementFailed("x", sqlstate="23505"), 500),
        (errors.EmbeddingSpaceMismatch("x"), 503),
        (errors.ModelError("x"), 502),
        (ValueError("x"), 500),
    ],
)
def test_problem_of__is_that_of_the_nearest_class(error: Exception, status: int) -> None:
    assert to_problem(error).status == status


def test_told__keeps_to_itself_what_is_wrong_inside() -> None:
    away = errors.DatabaseUnavailable("cannot connect to PostgreSQL: 10.0.0.7 refused")
    assert "10.0.0.7" not in public_detail(away, to_problem(away))
    assert public_detail(ValueError("secret"), INTERNAL) == INTERNAL.title
    busy = Overloaded("at capacity: 5 calls in flight")
    assert public_detail(busy, to_problem(busy)) == "at capacity: 5 calls in flight"


def test_headers_of__say_when_to_come_again() -> None:
    slow = TooManyRequests("x", retry_after_s=7)
    assert response_headers(slow, to_problem(slow)) == {"retry-after": "7"}
    away = errors.DatabaseUnavailable("x")
    assert response_headers(away, to_problem(away)) == {"retry-after": "1"}


def test_body__is_a_document_of_rfc_9457() -> None:
    problem = PROBLEMS[errors.NotFound]
    assert json.loads(encode_problem(problem, "nö")) == {
        "type": "urn:kosmos-rag:problem:not-found",
        "title": problem.title,
        "status": 404,
        "detail": "nö",
    }
