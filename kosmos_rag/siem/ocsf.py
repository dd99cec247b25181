"""Map records to events of the Open Cybersecurity Schema Framework (OCSF) 1.5.0, https://schema.ocsf.io/1.5.0."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from kosmos_rag.core.types import AuditRecord
from kosmos_rag.core.version import __version__
from kosmos_rag.engine.audit import ErasureRecord

OCSF_VERSION = "1.5.0"
AUTHENTICATION, AUTHORIZE_SESSION, ENTITY_MANAGEMENT, API_ACTIVITY = 3002, 3003, 3004, 6003
"""`class_uid` of the events; the thousands are `category_uid`."""
_LOGON, _ASSIGN_PRIVILEGES, _DELETE, _READ, _OTHER = 1, 1, 4, 2, 99
_INFORMATIONAL, _LOW, _MEDIUM = 1, 2, 3
_SUCCESS, _FAILURE = 1, 2
_STATUS_NAMES = {_SUCCESS: "Success", _FAILURE: "Failure"}
_UNKNOWN = "unknown"
_MAX_RESOURCES = 100
"""Documents that one event names."""


def convert_record(tenant: str, record: AuditRecord) -> dict[str, Any]:
    """Return the API activity of a record of the audit log: what a reader got."""
    documents = {passage.document_id: passage for passage in record.passages if passage.shown}
    event = _event(
        API_ACTIVITY, _READ, record.at, uid=str(record.id), tenant=tenant, severity=_INFORMATIONAL, status=_SUCCESS
    )
    return event | {
        "message": f"{record.kind}: {record.outcome}",
        "status_detail": str(record.outcome),
        "actor": {"user": _user(record.subject, record.principals)},
        "api": {"operation": str(record.kind), "service": {"name": "kosmos_rag"}, "request": {"uid": str(record.id)}},
        "src_endpoint": {"name": _UNKNOWN},
        "resources": [
            {
                "uid": str(document_id),
                "name": passage.source,
                "type": "document",
                "version": str(passage.version),
                **({"namespace": record.collection} if record.collection else {}),
            }
            for document_id, passage in list(documents.items())[:_MAX_RESOURCES]
        ],
        "unmapped": {
            "collection": record.collection,
            "documents": len(documents),
            "question": record.question,
            "question_sha256": record.question_sha256,
            "search_query": record.search_query,
            "settings": record.settings,
            "follows": None if record.follows is None else str(record.follows),
        },
    }


def convert_erasure(tenant: str, erasure: ErasureRecord) -> dict[str, Any]:
    """Return the entity management of an erasure; its record has no name of what was erased."""
    event = _event(
        ENTITY_MANAGEMENT, _DELETE, erasure.at, uid=f"erasure-{erasure.number}-{erasure.sha256}", tenant=tenant,
        severity=_LOW, status=_SUCCESS,
    )  # fmt: skip
    return event | {
        "message": f"erased: {erasure.kind}",
        "entity": {"type": erasure.kind, "uid": erasure.selector_sha256},
        "unmapped": {"erased": dict(erasure.erased), "retained": dict(erasure.retained), "sha256": erasure.sha256},
    }


def convert_log_line(line: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events of a line of the service's log.

    They are sign-ins, their rights, and requests that were refused; other lines have none. The uid of an event is a
    hash of the line and the class, because a client may choose the id of its request.
    """
    try:
        entry = json.loads(line)
        datetime.fromisoformat(entry["time"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return
    for event in _convert_entry(entry):
        uid = sha256(b"%d %s" % (event["class_uid"], line.strip())).hexdigest()
        yield event | {"metadata": event["metadata"] | {"uid": uid}}


def has_requests(line: bytes) -> bool:
    """Return whether a line shows that its log has requests: one, or the level INFO."""
    try:
        entry = json.loads(line)
        return bool(entry.get("level") == "INFO" or entry.get("action") == "request")
    except (ValueError, AttributeError, RecursionError):
        return False


def _convert_entry(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    action, status = entry.get("action"), entry.get("status")
    if action == "sign_in":
        yield _sign_in(entry, _SUCCESS)
        yield _session(entry)
    elif action == "sign_in_refused" or (action == "request" and status == HTTPStatus.UNAUTHORIZED):
        yield _sign_in(entry, _FAILURE)
    elif action == "request" and status == HTTPStatus.FORBIDDEN:
        yield _refused_request(entry)


def _sign_in(entry: Mapping[str, Any], status: int) -> dict[str, Any]:
    severity = _INFORMATIONAL if status == _SUCCESS else _MEDIUM
    return _log_event(entry, AUTHENTICATION, _LOGON, severity, status) | {
        "user": _user(entry.get("subject"), ()),
        "service": {"name": "kosmos_rag"},
        "is_remote": True,
    }


def _session(entry: Mapping[str, Any]) -> dict[str, Any]:
    return _log_event(entry, AUTHORIZE_SESSION, _ASSIGN_PRIVILEGES, _INFORMATIONAL, _SUCCESS) | {
        "user": _user(entry.get("subject"), ()),
        "privileges": str(entry.get("scopes", _UNKNOWN)).split(),
    }


def _refused_request(entry: Mapping[str, Any]) -> dict[str, Any]:
    return _log_event(entry, API_ACTIVITY, _OTHER, _MEDIUM, _FAILURE) | {
        "activity_name": "refused",
        "actor": {"user": _user(entry.get("subject"), ())},
        "api": {"operation": f"{entry.get('method')} {entry.get('route')}", "service": {"name": "kosmos_rag"}},
        "src_endpoint": {"name": _UNKNOWN},
        "http_response": {"code": HTTPStatus.FORBIDDEN},
    }


def _log_event(
    entry: Mapping[str, Any], class_uid: int, activity_id: int, severity: int, status: int
) -> dict[str, Any]:
    at, tenant = datetime.fromisoformat(entry["time"]), entry.get("tenant")
    event = _event(class_uid, activity_id, at, uid="", tenant=tenant, severity=severity, status=status)
    if request_id := entry.get("request_id") or entry.get("trace_id"):
        event["metadata"]["correlation_uid"] = str(request_id)
    return event | {"message": str(entry.get("message", entry["action"]))}


def _event(
    class_uid: int, activity_id: int, at: datetime, *, uid: str, tenant: str | None, severity: int, status: int
) -> dict[str, Any]:
    """Return the attributes that every event has."""
    metadata = {
        "version": OCSF_VERSION,
        "uid": uid,
        "product": {"name": "kosmos_rag", "vendor_name": "kosmos_rag", "version": __version__},
    }
    return {
        "class_uid": class_uid,
        "category_uid": class_uid // 1000,
        "activity_id": activity_id,
        "type_uid": class_uid * 100 + activity_id,
        "severity_id": severity,
        "status_id": status,
        "status": _STATUS_NAMES[status],
        "time": int(at.timestamp() * 1000),
        "metadata": metadata if tenant is None else metadata | {"tenant_uid": tenant},
    }


def _user(subject: object, principals: tuple[str, ...]) -> dict[str, Any]:
    """Return a reader; without a name the reader is unknown."""
    groups = [{"name": principal} for principal in principals if principal != subject]
    return {"name": str(subject or _UNKNOWN), **({"groups": groups} if groups else {})}
