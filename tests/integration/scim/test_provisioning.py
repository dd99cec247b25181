"""Users and groups by the requests that Entra, Okta and Keycloak document, and what they change for questions."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest
from scim2_models import Group, ScimFilter, UniquenessException

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.engine.query_hooks import Membership, QueryHooks, TenantRef
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.scim.protocol import parse_patch
from kosmos_rag.scim.sql import statement
from kosmos_rag.scim.store import EnterpriseAccount, ScimStore
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.variants import changed
from tests.statements import recorded_statements
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("tenant_name")

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
LONG = b"a" * 400
ENTRA_USER = {
    "schemas": [USER, ENTERPRISE],
    "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
    "userName": "ann@example.org",
    "active": True,
    "emails": [{"primary": True, "type": "work", "value": "ann@example.org"}],
    "meta": {"resourceType": "User"},
    "name": {"formatted": "Ann Lee", "familyName": "Lee", "givenName": "Ann"},
    "roles": [],
}
OKTA_USER = {
    "schemas": [USER],
    "userName": "ann@example.org",
    "name": {"givenName": "Ann", "familyName": "Lee"},
    "emails": [{"primary": True, "value": "ann@example.org", "type": "work"}],
    "displayName": "Ann Lee",
    "locale": "en-US",
    "externalId": "00ujl29u0le5T6Aj10h7",
    "groups": [],
    "password": "1mz050nq",
    "active": True,
}


@pytest.fixture(scope="module")
def service(loaded_settings: Settings, shared_database: DatabaseSettings, signer: Signer) -> Iterator[Running]:
    """A service with a directory, for tests that have a tenant each."""
    settings = changed(loaded_settings, {"database": shared_database, "scim.enabled": True})
    limitless = with_tokens(settings, signer, **{"rates.refused_per_minute": 0})
    with Engine(limitless, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        yield running


@pytest.fixture
def served(service: Running, tenant_name: str) -> Running:
    return replace(service, tenant_name=tenant_name)


@pytest.fixture
def client(served: Running) -> Iterator[httpx.Client]:
    with served.client(served.key("directory", "admin")) as client:
        client.headers["content-type"] = "application/scim+json"
        yield client


def _patch(client: httpx.Client, path: str, *operations: dict[str, Any], **options: Any) -> httpx.Response:
    return client.patch(f"/scim/v2/{path}", json={"schemas": [PATCH], "Operations": list(operations)}, **options)


def _create(client: httpx.Client, user: dict[str, Any]) -> str:
    response = client.post("/scim/v2/Users", json=user)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def _create_group(client: httpx.Client, name: str, *members: str) -> str:
    body = {"schemas": [GROUP], "displayName": name, "members": [{"value": member} for member in members]}
    response = client.post("/scim/v2/Groups", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def _sources(served: Running, subject: str = "ann@example.org") -> list[str]:
    with served.client(sub=subject, scope="read") as reader:
        response = reader.post("/v1/search", json={"question": "leave"})
        assert response.status_code == 200, response.text
        return sorted(hit["source"] for hit in response.json()["hits"])


def _find(client: httpx.Client, kind: str, condition: str, **params: Any) -> list[dict[str, Any]]:
    response = client.get(f"/scim/v2/{kind}", params={"filter": condition, **params})
    assert response.status_code == 200, response.text
    resources: list[dict[str, Any]] = response.json().get("Resources", [])
    return resources


def test_membership__takes_effect_at_the_next_question(served: Running, client: httpx.Client) -> None:
    served.tenant().ingest([
        SourceDocument(source="all.md", data=b"Leave for all."),
        SourceDocument(source="hr.md", data=b"Leave of HR.", acl=("group:HR",)),
    ])  # fmt: skip
    ann = _create(client, ENTRA_USER)
    _create(client, OKTA_USER | {"userName": "bob@example.org", "externalId": "bob"})
    hr = _create_group(client, "HR")
    assert _sources(served) == ["all.md"]
    addition = {"op": "Add", "path": "members", "value": [{"value": ann}]}
    assert _patch(client, f"Groups/{hr}", addition).status_code == 204
    assert _sources(served) == ["all.md", "hr.md"]
    assert _sources(served, "ANN@example.org") == ["all.md", "hr.md"]
    assert _sources(served, "bob@example.org") == ["all.md"]
    removal = {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": ann, "display": "Ann"}]}
    assert _patch(client, f"Groups/{hr}", removal).status_code == 204
    assert _sources(served) == ["all.md"]
    _patch(client, f"Groups/{hr}", {"op": "add", "path": "members", "value": [{"value": ann}]})
    assert client.delete(f"/scim/v2/Groups/{hr}").status_code == 204
    assert _sources(served) == ["all.md"]


def test_deactivated_user__is_refused_at_the_next_question(served: Running, client: httpx.Client) -> None:
    ann = _create(client, ENTRA_USER)
    with served.client(sub="ann@example.org", scope="read") as reader:
        assert reader.get("/v1/stats").status_code == 200
        _patch(client, f"Users/{ann}", {"op": "Replace", "path": "active", "value": "False"})
        assert reader.get("/v1/stats").status_code == 401
        _patch(client, f"Users/{ann}", {"op": "replace", "value": {"active": True}})
        assert reader.get("/v1/stats").status_code == 200
        client.put(f"/scim/v2/Users/{ann}", json=OKTA_USER | {"active": False})
        assert reader.get("/v1/stats").status_code == 401


def _status(served: Running, subject: str) -> int:
    with served.client(sub=subject, scope="read") as reader:
        return reader.get("/v1/stats").status_code


def test_unknown_subject__is_refused(served: Running, client: httpx.Client) -> None:
    assert _status(served, "ann@example.org") == 401
    ann = _create(client, ENTRA_USER | {"active": False})
    renaming = {"op": "replace", "path": "userName", "value": "left@example.org"}
    assert _patch(client, f"Users/{ann}", renaming).status_code == 200
    assert _status(served, "ann@example.org") == 401
    assert client.delete(f"/scim/v2/Users/{ann}").status_code == 204
    assert _status(served, "left@example.org") == 401


@pytest.mark.parametrize(
    ("subject", "former", "renamings"),
    [
        ("user_name", "Ann@example.org", ({"userName": "b@example.org"}, {"userName": "c@example.org"})),
        ("external_id", ENTRA_USER["externalId"], ({"externalId": "b"}, {"externalId": "c"})),
    ],
)
def test_unknown_allowed__former_subjects_of_deactivated_users_are_refused(
    settings: Settings,
    signer: Signer,
    tenant_name: str,
    subject: str,
    former: str,
    renamings: tuple[dict[str, str], ...],
) -> None:
    values = {"scim.enabled": True, "scim.unknown": "allow", "scim.subject": subject}
    with (
        Engine(with_tokens(changed(settings, values), signer), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
        running.client(running.key("directory", "admin", tenant_name=tenant_name)) as client,
    ):
        served = replace(running, tenant_name=tenant_name)
        ann = _create(client, ENTRA_USER)
        for renaming in renamings:
            assert _patch(client, f"Users/{ann}", {"op": "replace", "value": renaming}).status_code == 200
        assert (_status(served, former), _status(served, "unknown")) == (200, 200)
        _patch(client, f"Users/{ann}", {"op": "replace", "path": "active", "value": False})
        assert (_status(served, former), _status(served, "unknown")) == (401, 200)
        _create(client, ENTRA_USER | {"userName": former})
        assert _status(served, former) == 200


@pytest.mark.parametrize("is_active", [True, False])
def test_active__is_kept_by_changes_without_it(client: httpx.Client, is_active: bool) -> None:
    ann = _create(client, OKTA_USER | {"active": is_active})
    path = f"/scim/v2/Users/{ann}"
    without = {key: value for key, value in OKTA_USER.items() if key != "active"}
    assert client.put(path, json=without).json()["active"] is is_active
    assert client.put(path, json=without | {"active": None}).json()["active"] is is_active
    for operation in (
        {"op": "remove", "path": "active"},
        {"op": "replace", "path": "active", "value": None},
        {"op": "replace", "value": {"active": None, "displayName": "A"}},
    ):
        assert _patch(client, f"Users/{ann}", operation).status_code == 200, operation
        assert client.get(path).json()["active"] is is_active, operation


def test_active__is_true_for_a_new_user_without_it(client: httpx.Client) -> None:
    ann = _create(client, {key: value for key, value in OKTA_USER.items() if key != "active"})
    assert client.get(f"/scim/v2/Users/{ann}").json()["active"] is True


def test_names__of_two_subjects_do_not_match(served: Running, client: httpx.Client) -> None:
    _create(client, OKTA_USER | {"userName": "Wei\u00dfkate"})
    assert _status(served, "WEI\u00dfKATE") == 200
    assert _status(served, "weisskate") == 401
    _create(client, OKTA_USER | {"userName": "weisskate"})
    _create(client, OKTA_USER | {"userName": "Caf\u00e9"})
    assert _status(served, "cafe\u0301") == 200
    assert _find(client, "Users", 'userName eq "CAFE\u0301"')
    assert client.post("/scim/v2/Users", json=OKTA_USER | {"userName": "cafe\u0301"}).status_code == 409


def test_entra__finds_creates_and_changes_a_user(client: httpx.Client) -> None:
    assert (
        client.get("/scim/v2/Users", params={"filter": 'userName eq "non-existent user"'}).json()["totalResults"] == 0
    )
    ann = _create(client, ENTRA_USER)
    assert [user["id"] for user in _find(client, "Users", 'userName eq "ANN@example.org"')] == [ann]
    assert [user["id"] for user in _find(client, "Users", f'externalId eq "{ENTRA_USER["externalId"]}"')] == [ann]
    changes = (
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "new@example.org"},
        {"op": "Replace", "path": "name.familyName", "value": "Long"},
        {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "HR"},
        {"op": "Add", "path": 'phoneNumbers[type eq "work"].value', "value": "123"},
    )
    response = _patch(client, f"Users/{ann}", *changes, params={"aadOptscim062020": ""})
    assert response.status_code == 200, response.text
    user = client.get(f"/scim/v2/Users/{ann}").json()
    assert user["emails"][0]["value"] == "new@example.org"
    assert user["name"]["familyName"] == "Long"
    assert user[ENTERPRISE]["department"] == "HR"
    assert user["phoneNumbers"] == [{"type": "work", "value": "123"}]
    group = _create_group(client, "HR", ann)
    listed = client.get(f"/scim/v2/Groups/{group}", params={"excludedAttributes": "members"}).json()
    assert "members" not in listed
    assert listed["displayName"] == "HR"
    user = client.get(f"/scim/v2/Users/{ann}", params={"excludedAttributes": "members"}).json()
    assert [entry["value"] for entry in user["groups"]] == [group], "users have no members"
    assert [entry["id"] for entry in _find(client, "Groups", 'displayName eq "hr"', excludedAttributes="members")] == [
        group
    ]


def test_okta__creates_renames_and_fills_a_group(client: httpx.Client) -> None:
    ann = _create(client, OKTA_USER)
    user = client.get(f"/scim/v2/Users/{ann}").json()
    assert "password" not in user
    assert user["displayName"] == "Ann Lee"
    group = _create_group(client, "Test SCIM")
    renaming = {"op": "replace", "value": {"id": group, "displayName": "Test SCIMv2"}}
    assert _patch(client, f"Groups/{group}", renaming).status_code == 200
    filling = {"op": "add", "path": "members", "value": [{"value": ann, "display": "ann@example.org"}]}
    assert _patch(client, f"Groups/{group}", filling).status_code == 204
    filled = client.get(f"/scim/v2/Groups/{group}").json()
    assert (filled["displayName"], [member["value"] for member in filled["members"]]) == ("Test SCIMv2", [ann])
    assert client.get(f"/scim/v2/Users/{ann}").json()["groups"][0]["display"] == "Test SCIMv2"
    emptying = {"op": "remove", "path": f'members[value eq "{ann}"]'}
    assert _patch(client, f"Groups/{group}", emptying).status_code == 204
    assert "members" not in client.get(f"/scim/v2/Groups/{group}").json()
    replaced = client.put(
        f"/scim/v2/Groups/{group}",
        json={"schemas": [GROUP], "id": group, "displayName": "Test SCIMv2", "members": [{"value": ann}]},
    )
    assert [member["value"] for member in replaced.json()["members"]] == [ann]


def test_keycloak__replaces_a_user_and_deletes_it(client: httpx.Client) -> None:
    """The extension scim-for-keycloak sends whole resources."""
    body = {
        "schemas": [USER],
        "userName": "ann",
        "externalId": "6f1c",
        "active": True,
        "emails": [{"value": "a@b.org"}],
    }
    ann = _create(client, body)
    replaced = client.put(f"/scim/v2/Users/{ann}", json=body | {"id": ann, "displayName": "Ann"})
    assert (replaced.status_code, replaced.json()["displayName"]) == (200, "Ann")
    group = _create_group(client, "HR", ann)
    assert client.delete(f"/scim/v2/Users/{ann}").status_code == 204
    assert client.get(f"/scim/v2/Users/{ann}").status_code == 404
    assert "members" not in client.get(f"/scim/v2/Groups/{group}").json()


def test_pages__begin_at_one_and_count_all(client: httpx.Client) -> None:
    for number in range(5):
        _create(client, OKTA_USER | {"userName": f"user{number}", "externalId": str(number)})
    page = client.get("/scim/v2/Users", params={"startIndex": 2, "count": 2}).json()
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (5, 2, 2)
    assert [user["userName"] for user in page["Resources"]] == ["user1", "user2"]
    assert client.get("/scim/v2/Users", params={"count": 0}).json()["totalResults"] == 5
    assert client.get("/scim/v2/Users", params={"startIndex": 99}).json()["itemsPerPage"] == 0
    names = [user["userName"] for user in _find(client, "Users", 'userName sw "USER" and not (userName eq "user3")')]
    assert names == ["user0", "user1", "user2", "user4"]


def test_pages__keep_their_order_and_read_the_rows_of_one_page(served: Running, client: httpx.Client) -> None:
    for number in range(12):
        _create(client, OKTA_USER | {"userName": f"user{number:02}", "externalId": str(number), "title": "clerk"})
    pages: list[str] = []
    for start in range(1, 13, 4):
        page = client.get("/scim/v2/Users", params={"startIndex": start, "count": 4}).json()
        pages += [user["userName"] for user in page["Resources"]]
        _create(client, OKTA_USER | {"userName": f"new{start}", "externalId": f"new{start}"})
    assert pages == [f"user{number:02}" for number in range(12)]
    store = ScimStore(served.tenant(), "http://localhost")
    condition = ScimFilter[EnterpriseAccount]('title eq "clerk" and userName sw "user"')
    last = store.find(EnterpriseAccount, condition, start=11, count=5)
    assert (last.total, [user.user_name for user in last.resources]) == (12, ["user10", "user11"])
    assert store.find(EnterpriseAccount, None, start=2**40, count=5).resources == []


def test_search__has_its_filter_in_the_body(client: httpx.Client) -> None:
    for name in ("ann", "bob"):
        _create(client, OKTA_USER | {"userName": name, "externalId": name})
    schema = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
    body: dict[str, Any] = {"schemas": [schema], "filter": 'userName sw "b"', "attributes": ["userName"]}
    listed = client.post("/scim/v2/Users/.search", json=body).json()
    assert (listed["totalResults"], [set(user) for user in listed["Resources"]]) == (1, [{"schemas", "id", "userName"}])
    for condition in ("(" * 2001, "userName xx", 5):
        response = client.post("/scim/v2/Users/.search", json=body | {"filter": condition})
        assert response.status_code == 400, response.text


def test_definitions__are_found_by_name_and_have_no_other_methods(client: httpx.Client) -> None:
    assert client.get("/scim/v2/ResourceTypes/User").json()["endpoint"] == "/Users"
    assert client.get(f"/scim/v2/Schemas/{GROUP}").json()["name"] == "Group"
    assert client.get("/scim/v2/Schemas/urn:x").status_code == 404
    for path in ("ServiceProviderConfig", "ResourceTypes", "Schemas"):
        refused = client.post(f"/scim/v2/{path}", json={})
        assert (refused.status_code, refused.json()["schemas"]) == (405, [ERROR])


class SlowDirectory:
    """A directory whose database takes two seconds for each reader but one."""

    def find(self, connection: psycopg.Connection, owner: TenantRef, subject: str) -> Membership:
        if subject != "ann":
            connection.execute("SELECT pg_sleep(2)").fetchone()
        return Membership(active=True, principals=())


def test_flood_of_lookups__leaves_connections_and_threads_to_others(
    settings: Settings, signer: Signer, tenant_name: str
) -> None:
    configured = with_tokens(settings, signer, timeout_s=1.0)
    hooks = QueryHooks(directory=SlowDirectory())
    with (
        Engine(configured, embedder=HashingEmbedder(), query_hooks=lambda _: hooks) as engine,
        serving(engine, signer) as running,
        ThreadPoolExecutor(40) as threads,
    ):
        served = replace(running, tenant_name=tenant_name)
        flood = [threads.submit(_status, served, f"reader{number}") for number in range(40)]
        with served.client(served.key("reader", "read")) as reader:
            assert reader.get("/readyz").status_code == 200
            assert reader.get("/v1/stats").status_code == 200
        assert {future.result() for future in flood} == {504}
        eventually(lambda: _status(served, "ann") == 200)


def test_etag__of_another_version_is_refused(client: httpx.Client) -> None:
    response = client.post("/scim/v2/Users", json=OKTA_USER)
    ann, etag = response.json()["id"], response.headers["etag"]
    assert response.headers["location"].endswith(f"/scim/v2/Users/{ann}")
    change = {"op": "replace", "path": "displayName", "value": "A"}
    assert _patch(client, f"Users/{ann}", change, headers={"if-match": etag}).status_code == 200
    refused = _patch(client, f"Users/{ann}", change, headers={"if-match": etag})
    assert (refused.status_code, refused.json()["schemas"]) == (412, [ERROR])


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "invalidSyntax"),
        (b"[]", 400, "invalidSyntax"),
        (b"[" * 100_000, 400, "invalidSyntax"),
        (b"{}", 400, "invalidValue"),
        (b'{"schemas": ["urn:x"], "userName": 5}', 400, "invalidValue"),
        (b'{"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "a\\u0000b"}', 400, "invalidValue"),
        (b'{"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "a\\nb"}', 400, "invalidValue"),
        (b'{"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "%b"}' % LONG, 400, "invalidValue"),
    ],
)  # fmt: skip
def test_hostile_body__is_refused(client: httpx.Client, body: bytes, status: int, kind: str) -> None:
    response = client.post("/scim/v2/Users", content=body)
    assert (response.status_code, response.json().get("scimType")) == (status, kind), response.text
    assert client.get("/scim/v2/Users").json()["totalResults"] == 0


def test_hostile_requests__are_refused_and_change_nothing(client: httpx.Client) -> None:
    ann = _create(client, OKTA_USER)
    assert client.post("/scim/v2/Users", json=OKTA_USER | {"userName": "ANN@example.org"}).status_code == 409
    bob = _create(client, OKTA_USER | {"userName": "bob"})
    conflict = _patch(client, f"Users/{bob}", {"op": "replace", "path": "userName", "value": "Ann@example.org"})
    assert (conflict.status_code, conflict.json()["scimType"]) == (409, "uniqueness")
    group = _create_group(client, "HR", ann)
    for member in ("00000000-0000-0000-0000-000000000000", "x", group):
        response = _patch(client, f"Groups/{group}", {"op": "add", "path": "members", "value": [{"value": member}]})
        assert (response.status_code, response.json()["scimType"]) == (400, "invalidValue"), member
    for condition in ("userName eq", 'userName xx "a"', '(userName eq "a"', "'; DROP TABLE", "(" * 900):
        response = client.get("/scim/v2/Users", params={"filter": condition})
        assert (response.status_code, response.json()["scimType"]) == (400, "invalidFilter"), condition
    for path, status in (("Users/x", 404), ("Robots", 404), ("Users?startIndex=x", 400), ("Users?tenant=other", 400)):
        response = client.get(f"/scim/v2/{path}")
        assert (response.status_code, response.json()["schemas"]) == (status, [ERROR]), path
    for operations in ([], [{"op": "drop"}], [{"op": "remove"}], [{"op": "replace", "path": "id", "value": "x"}]):
        assert _patch(client, f"Users/{ann}", *operations).status_code == 400, operations
    assert [member["value"] for member in client.get(f"/scim/v2/Groups/{group}").json()["members"]] == [ann]


def test_resources__are_of_one_tenant_and_for_administrators(served: Running, client: httpx.Client) -> None:
    ann = _create(client, OKTA_USER)
    with served.client(served.key("other", "admin", tenant_name=f"{served.tenant_name}-other")) as other:
        assert other.get(f"/scim/v2/Users/{ann}").status_code == 404
        assert other.get("/scim/v2/Users").json()["totalResults"] == 0
        assert other.delete(f"/scim/v2/Users/{ann}").status_code == 404
        body = {"schemas": [GROUP], "displayName": "HR", "members": [{"value": ann}]}
        assert other.post("/scim/v2/Groups", json=body).status_code == 400
    for credentials, status in ((served.key("loader", "ingest"), 403), ("wrong", 401)):
        with served.client(credentials) as reader:
            response = reader.get("/scim/v2/Users")
            assert (response.status_code, response.json()["schemas"]) == (status, [ERROR])


def test_etag__is_one_of_a_list_and_heeded_by_delete(client: httpx.Client) -> None:
    ann = _create(client, OKTA_USER)
    change = {"op": "replace", "path": "displayName", "value": "A"}
    assert _patch(client, f"Users/{ann}", change, headers={"if-match": 'W/"1", W/"9"'}).status_code == 200
    for etag, status in (('W/"1", W/"9"', 412), ('W/"1"', 412), ('W/"9", W/"2"', 204)):
        assert client.delete(f"/scim/v2/Users/{ann}", headers={"if-match": etag}).status_code == status, etag


@pytest.mark.parametrize("text", ["a\u0000b", "a\ud800b"])
def test_text_that_cannot_be_stored__is_refused(client: httpx.Client, text: str) -> None:
    ann = _create(client, OKTA_USER)
    quoted = json.dumps(text)
    for user in ({"title": text}, {"name": {"familyName": text}}, {"emails": [{"value": text}]}, {text: 1}):
        response = client.post("/scim/v2/Users", content=json.dumps(OKTA_USER | {"userName": "bob"} | user))
        assert (response.status_code, response.json()["scimType"]) == (400, "invalidValue"), user
    path = f"emails[type eq {quoted}].value"
    response = _patch(client, f"Users/{ann}", {"op": "add", "path": path, "value": "a@b.org"})
    assert response.status_code == 400
    for attribute in ("userName", "externalId"):
        response = client.get("/scim/v2/Users", params={"filter": f"{attribute} eq {quoted}"})
        assert response.status_code == 400, attribute


def test_patch__has_bounds(client: httpx.Client) -> None:
    ann = _create(client, OKTA_USER)
    refused = _patch(client, f"Users/{ann}", {"op": "add", "path": "x" * 2001, "value": "1"})
    assert (refused.status_code, refused.json()["scimType"]) == (400, "invalidSyntax")
    renaming = {"op": "replace", "path": "displayName", "value": "HR"}
    group = _create_group(client, "HR")
    assert _patch(client, f"Groups/{group}", *[renaming] * 100).status_code == 200
    assert _patch(client, f"Groups/{group}", *[renaming] * 101).status_code == 400


def test_patch__of_many_members_takes_no_time_for_each_of_all() -> None:
    additions = [{"op": "Add", "path": "members", "value": [{"value": f"a{number}"}]} for number in range(500)]
    removals = [{"op": "remove", "path": f'members[value eq "{number}"]'} for number in range(500)]
    began = time.process_time()
    members = parse_patch(Group, {"schemas": [PATCH], "Operations": [*additions, *removals]}).members
    assert time.process_time() - began < 2.0
    assert members is not None
    assert (members.replaces, len(members.added), len(members.removed)) == (False, 500, 500)
    rename = {"op": "replace", "value": {"displayName": "HR2", "members": [{"value": "last"}]}}
    patch = parse_patch(Group, {"schemas": [PATCH], "Operations": [*additions[:99], rename, *removals]})
    assert patch.members is not None
    assert (patch.members.replaces, patch.members.added) == (True, ["last"])
    assert patch.apply(Group, Group(display_name="HR")).display_name == "HR2"


def test_patch__of_members_reads_no_others(client: httpx.Client) -> None:
    users = [_create(client, OKTA_USER | {"userName": name, "externalId": name}) for name in ("ann", "bob", "eve")]
    group = _create_group(client, "HR", *users[:2])
    adding = {"op": "add", "path": "members", "value": [{"value": users[2]}]}
    removing = {"op": "remove", "path": "members", "value": [{"value": users[0]}, {"value": "x"}]}
    with recorded_statements() as statements:
        response = _patch(client, f"Groups/{group}", adding, removing, headers={"if-match": 'W/"1"'})
    assert statement("list_members") not in statements
    assert (response.status_code, response.content, response.headers["etag"]) == (204, b"", 'W/"2"')
    members = {member["value"] for member in client.get(response.headers["location"]).json()["members"]}
    assert members == set(users[1:])
    response = _patch(client, f"Groups/{group}", adding, params={"attributes": "members"})
    assert len(response.json()["members"]) == 2  # with `attributes` the standard requires an answer
    with recorded_statements() as statements:
        client.get(f"/scim/v2/Groups/{group}", params={"excludedAttributes": "members"})
        _find(client, "Groups", 'displayName eq "HR"', excludedAttributes="members")
        _patch(client, f"Groups/{group}", removing, params={"excludedAttributes": "Members"})
    assert statement("list_members") not in statements


@pytest.mark.parametrize("key", ["group", "role", "user"])
def test_department_key__is_no_kind_of_principal_of_scim(settings: Settings, key: str) -> None:
    values = {"scim.enabled": True, "rag.access.key": key}
    with pytest.raises(ConfigError, match=r"rag\.access\.key"):
        Engine(changed(settings, values), embedder=HashingEmbedder())


def test_concurrent_requests__are_refused_as_conflicts(served: Running) -> None:
    store = ScimStore(served.tenant(), "http://localhost")
    ann, bob = (store.create(EnterpriseAccount(user_name=name)) for name in ("ann", "bob"))

    def rename(user: EnterpriseAccount) -> EnterpriseAccount:
        # Another request takes the name after this one has read its user.
        store.change(EnterpriseAccount, str(bob.id), None, lambda other: _rename(other, "eve"))
        return _rename(user, "eve")

    with pytest.raises(UniquenessException):
        store.change(EnterpriseAccount, str(ann.id), None, rename)


def _rename(user: EnterpriseAccount, name: str) -> EnterpriseAccount:
    user.user_name = name
    return user


def test_discovery__describes_the_interface(client: httpx.Client) -> None:
    config = client.get("/scim/v2/ServiceProviderConfig").json()
    assert (config["patch"]["supported"], config["bulk"]["supported"]) == (True, False)
    assert config["filter"]["maxResults"] == 200  # scim.max_page
    assert {entry["name"] for entry in client.get("/scim/v2/ResourceTypes").json()["Resources"]} == {"User", "Group"}
    schemas = {entry["id"] for entry in client.get("/scim/v2/Schemas").json()["Resources"]}
    assert schemas == {USER, ENTERPRISE, GROUP}


def test_disabled__serves_nothing(settings: Settings, signer: Signer, tenant_name: str) -> None:
    with Engine(settings, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        key = running.key("directory", "admin", tenant_name=tenant_name)
        with running.client(key) as client:
            assert client.get("/scim/v2/Users").status_code == 404
        assert not engine.has_directory
        with pytest.raises(RequestError, match="no directory is enabled"):
            engine.open_directory_reader(1)
