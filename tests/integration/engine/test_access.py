"""Access reviews: the rights of a review are those that row-level security grants."""

import csv
import io
import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import AccessGrant
from kosmos_rag.engine.access import export_csv, export_json_lines
from tests.integration.variants import opened

HR, BOARD = "department:hr", "department:board"


@pytest.fixture
def acme(engine: Engine, tenant_name: str) -> Tenant:
    return engine.tenant(tenant_name)


def _ingest(tenant: Tenant, **acls: tuple[str, ...]) -> None:
    tenant.ingest([SourceDocument(source=f"{name}.md", data=name.encode(), acl=acl) for name, acl in acls.items()])


def _rows(grants: list[AccessGrant] | None) -> list[tuple[str, str, str]]:
    assert grants is not None
    return [(grant.source, grant.principal, str(grant.origin)) for grant in grants]


def _review(tenant: Tenant, source: str) -> list[AccessGrant] | None:
    (document_id,) = tenant.document_ids([source])
    return tenant.access.review_document(document_id)


def test_document__has_the_principals_of_its_list_and_the_keys_that_have_them(acme: Tenant) -> None:
    _ingest(acme, leave=(HR, BOARD), open=("everyone",))
    acme.api_keys.create("intranet", scopes=["read"], principals=[HR])
    acme.api_keys.create("archive", scopes=["read"])
    ended = acme.api_keys.create("ended", scopes=["read"], principals=[HR])
    acme.api_keys.revoke(uuid.UUID(ended.split(".")[2]))
    soon = datetime.now(UTC) + timedelta(hours=1)
    acme.api_keys.create("soon", scopes=["read"], principals=[BOARD], expires_at=soon)
    grants = _review(acme, "leave.md")
    assert _rows(grants) == [("leave.md", BOARD, "list"), ("leave.md", HR, "list")]
    assert [grant.keys for grant in grants or ()] == [("soon",), ("intranet",)]
    (everyone,) = _review(acme, "open.md") or ()
    assert everyone.keys == ("intranet", "archive", "soon")
    assert acme.access.review_document(uuid.uuid4()) is None


def test_reader__may_read_what_the_database_shows(engine: Engine, acme: Tenant) -> None:
    """An access review of a reader has the documents that the reader gets, and no others."""
    _ingest(acme, board=(BOARD,), leave=(HR, "user:anna"), notes=("user:anna",), open=("everyone",))
    grants, after = acme.access.review_reader([HR, "user:anna"])
    assert after is None
    assert _rows(grants) == [
        ("leave.md", HR, "list"),
        ("leave.md", "user:anna", "list"),
        ("notes.md", "user:anna", "list"),
        ("open.md", "everyone", "list"),
    ]
    reader = engine.tenant(acme.name, principals=["everyone", HR, "user:anna"])
    assert {grant.source for grant in grants} == {document.source for document in reader.documents()}
    pages, after = [], None
    while True:
        page, after = acme.access.review_reader([HR, "user:anna"], after=after, limit=1)
        pages.append(page)
        if after is None:
            break
    assert [len(page) for page in pages] == [2, 1, 1]
    assert [grant for page in pages for grant in page] == grants == list(acme.access.iter_reader([HR, "user:anna"]))


@pytest.mark.own_database
def test_rights__are_what_the_policy_grants_whatever_the_acl_says(settings: Settings, tenant_name: str) -> None:
    """An access review asks the database as the reader, and does not compute rights from the acl."""
    with opened(settings, {}) as engine:
        acme = engine.tenant(tenant_name)
        _ingest(acme, leave=(HR, BOARD), open=("everyone",))
        assert len(_review(acme, "leave.md") or ()) == 2, "the checks before the first query are done"
        policy = f"NOT ('{HR}' = ANY (kosmos.current_principals()))"
        with psycopg.connect(str(settings.database.admin_url), autocommit=True) as connection:
            connection.execute(
                f"CREATE POLICY no_hr ON kosmos.documents AS RESTRICTIVE FOR SELECT TO kosmos_app USING ({policy})"
            )
        assert _rows(_review(acme, "leave.md")) == [("leave.md", BOARD, "list")]
        assert acme.access.review_reader([HR]) == ([], None)


def test_origin__is_the_department_where_the_settings_derive_it(acme: Tenant) -> None:
    acme.collections.create("policies", preset="corporate-enforced")
    policies = acme.with_collection("policies")
    policies.ingest(
        [
            SourceDocument(source="hr/leave.md", data=b"Leave."),
            SourceDocument(source="hr/plan.md", data=b"A plan.", acl=("user:anna",)),
            SourceDocument(source="general/canteen.md", data=b"Noon."),
        ]
    )
    origins = {(grant.principal, str(grant.origin)) for grant in _review(policies, "hr/leave.md") or ()}
    assert (HR, "department") in origins
    assert {origin for _, origin in origins} == {"department"}
    assert _rows(_review(policies, "hr/plan.md")) == [("hr/plan.md", "user:anna", "list")]
    assert _rows(_review(policies, "general/canteen.md")) == [("general/canteen.md", "everyone", "department")]


def test_origin__is_the_feed_that_names_the_readers(acme: Tenant, tmp_path: Path) -> None:
    _ingest(acme, leave=("everyone",), forgotten=("kosmos:permission-feed",))
    feed = tmp_path / "feed.jsonl"
    feed.write_text(json.dumps({"document": "leave.md", "principals": [HR]}) + "\n")
    acme.sync_permissions({"kind": "json_lines", "name": "wiki", "path": str(feed)})
    grants = _review(acme, "leave.md")
    assert _rows(grants) == [("leave.md", HR, "feed")]
    assert [grant.feed for grant in grants or ()] == ["wiki"]
    assert [grant for grant in _review(acme, "forgotten.md") or () if grant.principal == "everyone"] == []
    assert acme.access.review_reader([]) == ([], None)


def test_searchable__is_what_the_condition_of_searches_lets_through(acme: Tenant, tmp_path: Path) -> None:
    preset = tmp_path / "approved.yaml"
    preset.write_text("rag: {retrieval: {require_approved: true}}\n")
    acme.collections.create("approved", preset=preset)
    approved = acme.with_collection("approved")
    approved.ingest(
        [
            SourceDocument(source="draft.md", data=b"A draft."),
            SourceDocument(source="final.md", data=b"Final.", metadata={"approved": True}),
        ]
    )
    _ingest(acme, plain=("everyone",))
    grants, _ = acme.access.review_reader([])
    assert {grant.source: grant.searchable for grant in grants} == {
        "draft.md": False,
        "final.md": True,
        "plain.md": True,
    }


def test_exports__have_a_row_for_each_right(acme: Tenant) -> None:
    _ingest(acme, **{"=cmd": (HR,), "leave": (HR, BOARD)})
    acme.api_keys.create("a", scopes=["read"], principals=[HR])
    acme.api_keys.create("b", scopes=["read"], principals=[HR])
    grants, _ = acme.access.review_reader([HR, BOARD])
    rows = list(csv.DictReader(io.StringIO(export_csv(grants))))
    assert [(row["source"], row["principal"], row["keys"]) for row in rows] == [
        ("'=cmd.md", HR, "a, b"),
        ("leave.md", BOARD, ""),
        ("leave.md", HR, "a, b"),
    ]
    lines = [json.loads(line) for line in export_json_lines(grants).splitlines()]
    assert [AccessGrant.from_dict(line) for line in lines] == grants


def test_reader__of_a_key_or_of_malformed_principals(acme: Tenant) -> None:
    acme.api_keys.create("intranet", scopes=["read"], principals=[HR])
    assert acme.access.principals_of_key("intranet") == (HR,)
    with pytest.raises(RequestError, match="no valid key 'nobody'"):
        acme.access.principals_of_key("nobody")
    with pytest.raises(RequestError, match="principals are"):
        acme.access.review_reader("department:hr")


def test_key__with_an_end_or_an_overlap_that_is_no_time_is_refused(acme: Tenant) -> None:
    with pytest.raises(RequestError, match="which has no time zone; give it one"):
        acme.api_keys.create("site", scopes=["read"], expires_at=datetime(2030, 1, 1))
    for overlap in (timedelta.max, timedelta(seconds=-1)):
        with pytest.raises(RequestError, match="give 0 to 365 days"):
            acme.api_keys.rotate(uuid.uuid4(), overlap=overlap)
