"""A value of a wrong type never leaves a public call as an error of Python."""

import inspect
import typing
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import fields
from datetime import timedelta
from typing import Any

import numpy as np
import psycopg
import pytest

from kosmos_rag import Engine, Filter, KosmosError, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import AuditKind, AuditOutcome, Rating
from kosmos_rag.core.types.indexes import Space
from kosmos_rag.engine.uploads import StoredUpload

WRONG: tuple[Any, ...] = (None, 5, object(), [None], b"bytes")
PARTS = ("access", "api_keys", "audit", "collections", "events", "indexes", "jobs", "spaces", "uploads")
VECTOR = np.zeros(384, dtype=np.float32)
# Of parameters without a default: a value for each type, and for some names.
OF_TYPE: tuple[tuple[type, Any], ...] = (
    (str, "a"), (bytes, b"a"), (float, 1.0), (int, 1), (uuid.UUID, uuid.uuid4()), (timedelta, timedelta(hours=1)),
    (SourceDocument, SourceDocument(source="a", data=b"x")), (AuditKind, AuditKind.QUERY), (Rating, Rating.UP),
    (AuditOutcome, AuditOutcome.HITS), (StoredUpload, StoredUpload(id=uuid.uuid4(), sha256="a", size=1)),
    (Space, Space(id=uuid.uuid4(), model="a", dimensions=384, normalized=True, probe=VECTOR)),
)  # fmt: skip
OF_NAME: dict[str, Any] = {
    "context": [], "changes": {"a": 1}, "data": {"a": 1}, "feed": {"a": 1}, "identity": {"a": 1}, "payload": {"a": 1},
    "ids": [uuid.uuid4()], "queries": [VECTOR], "questions": ["a"], "quotes": [], "vector": VECTOR, "preset": "default",
    "principals": ["a"], "scopes": ["read"], "sources": ["a"], "texts": ["a"], "key": None,
}  # fmt: skip


def _list_calls(part: str) -> list[str]:
    """Return the public methods of a part of a tenant; "" is the tenant."""
    kind = Tenant if not part else typing.get_type_hints(inspect.getattr_static(Tenant, part).fget)["return"]
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


def _value(name: str, hint: Any) -> Any:
    if name in OF_NAME:
        return OF_NAME[name]
    return next(value for kind, value in OF_TYPE if kind is hint or kind in typing.get_args(hint))


def _use(result: Any) -> None:
    """Take what a call returns late."""
    if inspect.isgenerator(result):
        next(result, None)


@pytest.mark.parametrize(("part", "name"), [(part, name) for part in ("", *PARTS) for name in _list_calls(part)])
def test_call__refuses_values_of_wrong_types(part: str, name: str, engine: Engine, tenant_name: str) -> None:
    """Each parameter in turn has a wrong value, and the others have a right one, or their default."""
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source="a", data=b"Some words about churn."))
    call: Callable[..., Any] = getattr(getattr(scope, part) if part else scope, name)
    hints = typing.get_type_hints(inspect.unwrap(call))
    parameters = inspect.signature(call).parameters.values()
    required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    for parameter in parameters:
        for wrong in WRONG:
            with suppress(KosmosError), ExitStack() as stack:
                arguments = {
                    each: stack.enter_context(scope.sessions.write())
                    if hints[each] is psycopg.Connection
                    else _value(each, hints[each])
                    for each in required
                    if each != parameter.name
                }
                _use(call(**arguments | {parameter.name: wrong}))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tenant: tenant.delete(None), r"DocumentWriting\.delete takes no NoneType as sources; give str \|"),
        (lambda tenant: tenant.jobs.enqueue(None), r"TenantJobs\.enqueue takes no NoneType as item; give .*Path"),
        (lambda tenant: tenant.count_tokens(b"x"), r"count_tokens takes no bytes as text; give str$"),
        (lambda tenant: tenant.documents(after=(1,)), "documents takes no tuple as after"),
        (lambda tenant: tenant.document_texts(["a"]), r"document_texts takes no list as ids; give .*UUID"),
        (lambda tenant: tenant.check_citations("a", "b"), "check_citations takes no str as context"),
        (lambda tenant: tenant.jobs.retry("a"), "retry takes no str as ids"),
        (lambda tenant: tenant.jobs.find(states="dead"), "find takes no str as states"),
        (lambda tenant: tenant.jobs.find(states=["ded"]), "find takes no list as states"),
        (lambda tenant: tenant.search(b"a"), r"the question is b'a'; give a text, or a list"),
        (lambda tenant: tenant.search("a", facets="title"), "facets are 'title'; give a list of fields"),
        (lambda tenant: tenant.answer("a", history=[("a", "b")]), r"the history has \('a', 'b'\); give turns"),
        (lambda tenant: tenant.answer("a", history=None), "answer takes no NoneType as history"),
    ],
)
def test_message__names_the_argument_and_what_it_takes(
    call: Callable[[Tenant], object], message: str, engine: Engine, tenant_name: str
) -> None:
    with pytest.raises(RequestError, match=message):
        call(engine.tenant(tenant_name))


def test_search__takes_the_questions_of_a_generator(engine: Engine, tenant_name: str) -> None:
    tenant = engine.tenant(tenant_name)
    tenant.ingest([SourceDocument(source=word, data=f"The {word} of the quarter.".encode()) for word in ("a1", "b2")])
    hits = tenant.search(question for question in ("a1", "b2")).hits  # type: ignore[arg-type]
    assert {hit.source for hit in hits} == {"a1", "b2"}


def test_error__of_right_arguments_stays_what_it_is(engine: Engine, tenant_name: str) -> None:
    """A fault of a callback, or of ours, is no fault of the caller's arguments."""

    def fail(*_: object) -> None:
        raise ValueError("of the callback")

    scope = engine.tenant(tenant_name)
    with pytest.raises(ValueError, match="of the callback"):
        scope.ingest(SourceDocument(source="a", data=b"text"), on_progress=fail)
    with pytest.raises(TypeError, match="missing 1 required"):
        scope.delete()  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_records_and_settings__refuse_values_of_wrong_types(wrong: Any) -> None:
    calls: list[Callable[[], object]] = [lambda: Settings.load(wrong), lambda: Settings.load(overrides=wrong)]
    calls += [lambda name=field.name: Filter(**{name: wrong}) for field in fields(Filter)]
    right: dict[str, Any] = {"source": "a", "data": b"x"}
    calls += [lambda name=field.name: SourceDocument(**right | {name: wrong}) for field in fields(SourceDocument)]
    for call in calls:
        with suppress(KosmosError):
            call()
