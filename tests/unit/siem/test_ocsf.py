"""Events for a SIEM, against the published schema of OCSF."""

import json
import uuid
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jsonschema
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema  # type: ignore[import-untyped]

from kosmos_rag.core.types import AuditKind, AuditOutcome, AuditPassage, AuditRecord
from kosmos_rag.engine.audit import ErasureRecord
from kosmos_rag.siem.ocsf import OCSF_VERSION, convert_erasure, convert_log_line, convert_record

AT = datetime(2026, 11, 27, 8, 30, 0, 123_000, tzinfo=UTC)
MILLISECONDS = 1_795_768_200_123


@cache
def _schema() -> OcsfJsonSchemaEmbedded:
    return OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION))


def _validate(event: dict[str, Any]) -> None:
    name = _schema().lookup_class_name_from_uid(class_uid=event["class_uid"])
    jsonschema.validate(json.loads(json.dumps(event)), _schema().get_class_schema(class_name=name, profiles=[]))
    assert event["category_uid"] == event["class_uid"] // 1000
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]


def _passage(rank: int, *, in_context: bool = True) -> AuditPassage:
    return AuditPassage(
        rank=rank, shown=in_context, document_id=uuid.UUID(int=rank), version_id=uuid.UUID(int=9), version=rank,
        source=f"{rank}.md", chunk_ids=(uuid.UUID(int=7),), score=0.5,
    )  # fmt: skip


def _record(**changes: Any) -> AuditRecord:
    values: dict[str, Any] = {
        "id": uuid.UUID(int=1), "at": AT, "kind": AuditKind.ANSWER, "outcome": AuditOutcome.HITS, "collection": "hr",
        "subject": "ada", "principals": ("ada", "group:hr"), "question": "How many days?", "question_sha256": "0" * 64,
        "search_query": None, "settings": "abc", "cached": False, "milliseconds": 3.5, "follows": None,
        "passages": (_passage(1), _passage(2, in_context=False)),
    }  # fmt: skip
    return AuditRecord(**(values | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"subject": None, "principals": (), "collection": None, "passages": ()},
        {"outcome": AuditOutcome.REFUSED, "follows": uuid.UUID(int=3), "search_query": "days of leave"},
        {"question": None, "passages": tuple(_passage(rank) for rank in range(1, 300))},
    ],
)
def test_record__is_an_api_activity_of_the_schema(changes: dict[str, Any]) -> None:
    _validate(convert_record("acme", _record(**changes)))


def test_record__says_who_read_what_and_when() -> None:
    event = convert_record("acme", _record())
    assert (event["class_uid"], event["activity_id"], event["type_uid"]) == (6003, 2, 600302)
    assert event["time"] == MILLISECONDS
    assert event["actor"] == {"user": {"name": "ada", "groups": [{"name": "group:hr"}]}}
    assert event["api"]["operation"] == "answer"
    assert [(resource["name"], resource["version"]) for resource in event["resources"]] == [("1.md", "1")]
    assert event["metadata"]["tenant_uid"] == "acme"
    assert event["metadata"]["uid"] == str(uuid.UUID(int=1))


def test_erasure__is_an_entity_management_of_the_schema() -> None:
    erasure = ErasureRecord(
        number=2, at=AT, kind="subject", selector_sha256="1" * 64, erased={"feedback": 3}, retained={}, sha256="2" * 64
    )
    event = convert_erasure("acme", erasure)
    _validate(event)
    assert (event["class_uid"], event["type_uid"]) == (3004, 300404)
    assert event["entity"] == {"type": "subject", "uid": "1" * 64}


@pytest.mark.parametrize(
    ("entry", "type_uids"),
    [
        ({"action": "sign_in", "tenant": "acme", "subject": "ada", "scopes": "ask read"}, [300201, 300301]),
        ({"action": "sign_in_refused", "message": "a sign-in was refused: expired"}, [300201]),
        ({"action": "request", "method": "GET", "route": "/v1/search", "status": 401}, [300201]),
        ({"action": "request", "method": "GET", "route": "/v1/keys", "status": 403, "request_id": "r1"}, [600399]),
        ({"action": "request", "method": "GET", "route": "/v1/search", "status": 200}, []),
        ({"action": "published"}, []),
    ],
)
def test_log_entry__is_authentication_session_or_refused_request(entry: dict[str, Any], type_uids: list[int]) -> None:
    events = list(convert_log_line(json.dumps({"time": "2026-11-27 08:30:00,123", **entry}).encode()))
    assert [event["type_uid"] for event in events] == type_uids
    for event in events:
        _validate(event)
    if entry["action"] == "sign_in":
        assert events[1]["privileges"] == ["ask", "read"]
    assert all(event["status_id"] == (1 if entry["action"] == "sign_in" else 2) for event in events)


def test_log_line__has_the_same_uids_again_whatever_id_the_client_has_chosen() -> None:
    entry = {"time": "2026-11-27 08:30:00,123", "action": "sign_in", "subject": "ada", "request_id": "chosen"}
    lines = [json.dumps(entry | {"time": time}).encode() + b"\n" for time in ("2026-11-27 08:30:00,123", "2026-11-28")]
    events, repeated = ([event for line in lines for event in convert_log_line(line)] for _ in range(2))
    assert events == repeated
    assert len({event["metadata"]["uid"] for event in events}) == 4
    assert {event["metadata"]["correlation_uid"] for event in events} == {"chosen"}


@pytest.mark.parametrize(
    "line",
    [
        b"started\n", b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'{"action": "sign_in"}',
        b'{"action": "sign_in", "time": "yesterday"}', b'{"action": "sign_in", "time": 5}',
    ],
)  # fmt: skip
def test_line__of_something_else_has_no_event(line: bytes) -> None:
    assert list(convert_log_line(line)) == []
