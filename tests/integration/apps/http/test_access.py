"""Who gets in, and as whom."""

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import ISSUER, Running, Signer, serving, with_tokens
from tests.integration.variants import changed
from tests.rate_clock import stop_rate_clock
from tests.waiting import eventually

Forge = Callable[[Signer], str]

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings by which a key that is revoked is soon refused."""
    return changed(settings, {"service.key_cache_s": 0.2})


def _part(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _signed(signer: Signer, header: object, payload: object) -> str:
    """Sign anything with the right key."""
    message = f"{_part(header)}.{_part(payload)}"
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(message.encode(), signer.key)
    return f"{message}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _by_hmac(signer: Signer) -> str:
    message = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(signer.claims())}"
    mac = hmac.new(signer.public, message.encode(), hashlib.sha256).digest()
    return f"{message}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def _of_another(signer: Signer) -> str:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return jwt.encode(signer.claims(), stranger, algorithm="RS256")


def _with_own_key(signer: Signer) -> str:
    """Bring the key along in the header, where some libraries look for it."""
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(stranger.public_key(), as_dict=True)
    return jwt.encode(signer.claims(), stranger, algorithm="RS256", headers={"jwk": jwk})


def _changed_payload(signer: Signer) -> str:
    head, _, signature = signer.token().split(".")
    return f"{head}.{_part(signer.claims(tenant='globex'))}.{signature}"


def _header(**more: Any) -> Forge:
    return lambda signer: _signed(signer, {"alg": "RS256", "typ": "JWT"} | more, signer.claims())


def _claims(**message: Any) -> Forge:
    return lambda signer: _signed(
        signer,
        {"alg": "RS256"},
        {name: value for name, value in signer.claims(**message).items() if value != "absent"},
    )


def _timestamp_after(seconds: float) -> float:
    return time.time() + seconds


FORGED: dict[str, Forge] = {
    "a point": lambda signer: ".",
    "words": lambda signer: "let me in",
    "two parts": lambda signer: ".".join(signer.token().split(".")[:2]),
    "no signature": lambda signer: signer.token().rpartition(".")[0] + ".",
    "signature cut": lambda signer: signer.token()[:-4],
    "signature of another token": lambda signer: (
        signer.token().rpartition(".")[0] + "." + signer.token(sub="b").rpartition(".")[2]
    ),
    "payload changed": _changed_payload,
    "alg none": lambda signer: f"{_part({'alg': 'none'})}.{_part(signer.claims())}.",
    "alg None": lambda signer: f"{_part({'alg': 'None'})}.{_part(signer.claims())}.",
    "alg nOnE, signed": _header(alg="nOnE"),
    "no alg": lambda signer: _signed(signer, {"typ": "JWT"}, signer.claims()),
    "public key as secret": _by_hmac,
    "alg RS512": lambda signer: jwt.encode(signer.claims(), signer.key, algorithm="RS512"),
    "alg PS256": lambda signer: jwt.encode(signer.claims(), signer.key, algorithm="PS256"),
    "alg EdDSA": lambda signer: jwt.encode(signer.claims(), ed25519.Ed25519PrivateKey.generate(), algorithm="EdDSA"),
    "another key": _of_another,
    "its own key": _with_own_key,
    "key of a URL": _header(jku="http://127.0.0.1:1/keys", kid="x"),
    "kid is a path": _header(kid="../../../../etc/passwd"),
    "kid is SQL": _header(kid="' OR 1=1 --"),
    "kid is a list": _header(kid=["a"]),
    "crit": _header(crit=["exp"], exp=1),
    "crit unknown": _header(crit=["b64"], b64=False),
    "wrong issuer": _claims(iss="https://issuer.test.evil"),
    "part of the issuer": _claims(iss="https://issuer"),
    "issuers": _claims(iss=[ISSUER, "x"]),
    "wrong audience": _claims(aud="other"),
    "wrong audiences": _claims(aud=["other", "kosmos2"]),
    "no audience": _claims(aud="absent"),
    "no issuer": _claims(iss="absent"),
    "no subject": _claims(sub="absent"),
    "no end": _claims(exp="absent"),
    "no beginning": _claims(iat="absent"),
    "no tenant": _claims(tenant="absent"),
    "expired": _claims(exp=_timestamp_after(-31)),
    "not yet": _claims(nbf=_timestamp_after(86_400)),
    "issued tomorrow": _claims(iat=_timestamp_after(86_400)),
    "end is endless": lambda signer: _signed(
        signer, {"alg": "RS256"}, json.dumps(signer.claims()).replace('"exp": ', '"exp": 1e999, "e": ')
    ),
    "tenant twice": lambda signer: _signed(
        signer, {"alg": "RS256"}, json.dumps(signer.claims())[:-1] + ', "tenant": "globex"}'
    ),
    "tenant malformed": _claims(tenant="Acme; DROP"),
    "tenants": _claims(tenant=["acme"]),
    "subject is a number": _claims(sub=1),
    "subject with NUL": _claims(sub="a\x00"),
    "subject of an API key": _claims(sub="key:laptop"),
    "departments are numbers": _claims(departments=[1, 2]),
    "departments are an object": _claims(departments={"hr": True}),
    "payload is a list": lambda signer: _signed(signer, {"alg": "RS256"}, [1]),
    "payload is deep": lambda signer: _signed(signer, {"alg": "RS256"}, "[" * 3000),
    "key of nobody": lambda signer: f"kosmos.acme.{uuid.uuid4().hex}.{'a' * 43}",
    "key malformed": lambda signer: "kosmos.acme.1.2",
}


def test_tokens__forged_are_all_refused_alike(running: Running) -> None:
    """All forged tokens get the same refusal, also one with the subject of an API key."""
    assert len(FORGED) >= 40
    bodies = set()
    with running.client("") as client:
        for name, forge in FORGED.items():
            headers = {"authorization": f"Bearer {forge(running.signer)}"}
            response = client.post("/v1/search", json={"question": "churn"}, headers=headers)
            assert response.status_code == 401, name
            assert response.headers["www-authenticate"] == "Bearer"
            bodies.add(response.content)
        bodies.add(client.post("/v1/search", json={"question": "churn"}).content)
        basic = {"authorization": "Basic YTpi"}
        bodies.add(client.post("/v1/search", json={"question": "churn"}, headers=basic).content)
    assert len(bodies) == 1
    with running.client() as client:
        assert client.post("/v1/search", json={"question": "churn"}).status_code == 200


def test_tokens__larger_than_the_headers_may_be_are_refused_with_them(running: Running) -> None:
    with running.client(note="x" * 40_000) as client:
        assert client.get("/v1/stats").status_code == 431


def _documents(running: Running, **claims: Any) -> list[str]:
    with running.client(**claims) as client:
        return [document["source"] for document in client.get("/v1/documents").json()["documents"]]


def test_tokens__say_what_may_be_read(running: Running) -> None:
    running.service.engine.sync_engine.tenant("acme").ingest(
        [
            SourceDocument(source="all", data=b"For all."),
            SourceDocument(source="anna", data=b"For Anna.", acl=("user:anna",)),
            SourceDocument(source="audit", data=b"For auditors.", acl=("role:Auditor",)),
            SourceDocument(source="hr", data=b"For HR.", acl=("department:hr",)),
        ]
    )
    assert _documents(running) == ["all", "anna"]
    assert _documents(running, sub="berta", departments=["hr"]) == ["all", "hr"]
    assert _documents(running, sub="berta", departments="hr", roles=["Auditor"]) == ["all", "audit", "hr"]
    assert _documents(running, sub="berta", roles=["department:hr"]) == ["all"]
    assert _documents(running, sub="user:anna", tenant="globex") == []


OPENAI = "/openai/v1"
FOREIGN = [
    ("GET", "/v1/documents/{document}"),
    ("GET", "/v1/documents/{document}/original"),
    ("GET", "/v1/documents/{document}/rectangles"),
    ("PATCH", "/v1/documents/{document}"),
    ("DELETE", "/v1/documents/{document}"),
    ("GET", "/v1/jobs/{job}"),
    ("POST", "/v1/jobs/{job}/cancel"),
    ("POST", "/v1/jobs/{job}/retry"),
    ("GET", "/v1/collections/{collection}"),
    ("PUT", "/v1/collections/{collection}/preset"),
    ("DELETE", "/v1/collections/{collection}"),
    ("GET", f"{OPENAI}/files/{{file}}"),
    ("GET", f"{OPENAI}/files/{{file}}/content"),
    ("DELETE", f"{OPENAI}/files/{{file}}"),
    ("GET", f"{OPENAI}/vector_stores/{{store}}"),
    ("POST", f"{OPENAI}/vector_stores/{{store}}"),
    ("DELETE", f"{OPENAI}/vector_stores/{{store}}"),
    ("POST", f"{OPENAI}/vector_stores/{{store}}/search"),
    ("POST", f"{OPENAI}/vector_stores/{{store}}/files"),
    ("GET", f"{OPENAI}/vector_stores/{{store}}/files"),
    ("GET", f"{OPENAI}/vector_stores/{{store}}/files/{{file}}"),
    ("POST", f"{OPENAI}/vector_stores/{{store}}/files/{{file}}"),
    ("DELETE", f"{OPENAI}/vector_stores/{{store}}/files/{{file}}"),
    ("GET", f"{OPENAI}/vector_stores/{{store}}/files/{{file}}/content"),
    ("POST", f"{OPENAI}/vector_stores/{{store}}/file_batches"),
    ("GET", f"{OPENAI}/vector_stores/{{store}}/file_batches/{{batch}}"),
    ("POST", f"{OPENAI}/vector_stores/{{store}}/file_batches/{{batch}}/cancel"),
    ("GET", f"{OPENAI}/vector_stores/{{store}}/file_batches/{{batch}}/files"),
    ("DELETE", "/v1/webhooks/{subscriber}"),
    ("POST", "/v1/webhooks/{subscriber}/pause"),
    ("POST", "/v1/webhooks/{subscriber}/resume"),
    ("POST", "/v1/webhooks/{subscriber}/rotate"),
    ("GET", "/v1/webhooks/{subscriber}/dead-letters"),
    ("POST", "/v1/webhooks/{subscriber}/redeliver"),
    ("POST", "/v1/judged-questions/{candidate}"),
]
BODIES: dict[str, dict[str, Any]] = {
    "{collection}/preset": {"preset": "corporate"},
    "{document}": {"metadata": {"year": 1}},
    "{store}": {"name": "mine"},
    "{store}/search": {"query": "secret"},
    "{store}/files": {"file_id": f"file-{'0' * 32}"},
    "{file}": {"attributes": {}},
    "{subscriber}/resume": {"skip": True},
    "{subscriber}/redeliver": {},
    "{candidate}": {"judgement": "accepted"},
    "{store}/file_batches": {"file_ids": [f"file-{'0' * 32}"]},
}
"""Of requests that change or search, by the end of their paths."""


def test_routes__tell_absent_and_foreign_things_apart_for_nobody(running: Running) -> None:
    acme = running.service.engine.sync_engine.tenant("acme", collection="secret")
    acme.ingest([SourceDocument(source="a", data=b"A secret of Acme.", acl=("department:board",))])
    board = running.service.engine.sync_engine.tenant("acme", principals=["department:board"], subject="carla")
    (info,) = board.documents()
    board.feedback("up", question="secret", chunk_id=board.search("secret").hits[0].chunk_id)
    job = acme.jobs.enqueue(SourceDocument(source="b", data=b"Another."))
    stored = _store_file(running)
    foreign = {"document": str(info.id), "job": str(job), "collection": "secret", "store": "secret", "file": stored}
    absent = {"document": str(uuid.uuid4()), "job": str(uuid.uuid4()), "collection": "nothing", "store": "nothing"}
    foreign["subscriber"], absent["subscriber"] = "secret", "nothing"
    foreign["batch"] = absent["batch"] = f"vsfb_{uuid.uuid4().hex}"
    absent["file"] = f"file-{uuid.uuid4().hex}"
    with running.client(scope="admin") as client:
        foreign["candidate"] = client.get("/v1/judged-questions").json()["candidates"][0]["id"]
    absent["candidate"] = str(uuid.uuid4())
    strangers: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
        ({"tenant": "globex", "scope": "admin"}, FOREIGN),
        # Jobs belong to the tenant: who may ingest sees them all. An administrator sees all files and candidates.
        (
            {"sub": "berta", "scope": "admin"},
            [
                entry
                for entry in FOREIGN
                if not any(name in entry[1] for name in ("{job}", "/files/{file", "{candidate}"))
            ],
        ),
        (
            {"sub": "berta", "scope": "read ingest"},
            [entry for entry in FOREIGN if entry[1].startswith(f"{OPENAI}/files")],
        ),
    ]
    for claims, routes in strangers:
        with running.client(**claims) as client:
            for method, path in routes:
                needs_body = method in ("POST", "PUT", "PATCH")
                body = next((BODIES[end] for end in BODIES if needs_body and path.endswith(end)), None)
                forbidden = client.request(method, path.format(**foreign), json=body)
                missing = client.request(method, path.format(**absent), json=body)
                assert forbidden.status_code == missing.status_code == 404, (method, path, claims)
                assert forbidden.content == missing.content
    with running.client(sub="carla", departments=["board"]) as client:
        assert client.get(f"/v1/documents/{info.id}").status_code == 200


def _store_file(running: Running) -> str:
    """Store a file of Carla's, and return its id."""
    with running.client(sub="carla", scope="read ingest") as client:
        form = {"purpose": "assistants"}
        answer = client.post(f"{OPENAI}/files", data=form, files={"file": ("a.md", b"A secret of Acme.")})
    return str(answer.json()["id"])


def test_foreign_ids__cover_every_route_with_an_id(running: Running) -> None:
    with running.client("") as client:
        paths = client.get("/openapi.json").json()["paths"]
    with_ids = {(method.upper(), path) for path, methods in paths.items() if "{" in path for method in methods}
    with_ids.remove(("GET", f"{OPENAI}/models/{{model}}"))  # of the service, not of a tenant
    names = {"document": "document_id", "job": "job_id", "collection": "name"}
    names |= {"subscriber": "name", "store": "vector_store_id", "file": "file_id", "batch": "batch_id"}
    names |= {"candidate": "candidate_id"}
    tried = {(method, path.format(**{k: f"{{{v}}}" for k, v in names.items()})) for method, path in FOREIGN}
    assert tried == with_ids


def test_scopes__are_asked_for(running: Running) -> None:
    needed = {
        ("POST", "/v1/documents?source=a"): "ingest",
        ("GET", "/v1/jobs"): "ingest operate",
        ("GET", "/v1/usage"): "operate",
        ("GET", "/v1/webhooks"): "operate",
        ("DELETE", "/v1/webhooks/name"): "admin",
        ("GET", "/v1/events"): "admin",
        ("GET", "/v1/access?principal=everyone"): "admin",
        ("POST", "/v1/collections"): "admin",
        ("PUT", "/v1/collections/handbook/preset"): "admin",
        ("POST", "/api/rag/reload"): "operate",
        ("POST", "/v1/reload"): "operate",
        ("GET", "/v1/documents"): "read",
        ("GET", "/api/rag/stats"): "read",
        ("GET", "/v1/stats"): "read",
        ("POST", "/v1/feedback"): "read",
        ("POST", "/v1/schema/grounding"): "read",
    }
    for granted in ("read", "ingest", "operate", "nothing", "read:all admins"):
        with running.client(scope=granted) as client:
            for (method, path), scope in needed.items():
                response = client.request(method, path, json={"name": "c", "preset": "corporate"})
                assert (response.status_code == 403) == (granted not in scope.split()), (granted, path, response.text)


def test_key__is_good_until_it_is_revoked(running: Running) -> None:
    """A revoked API key works for at most `service.key_cache_s` after the revocation."""
    engine = running.service.engine.sync_engine
    keys = engine.tenant("acme").api_keys
    result = running.key("pipeline", "read", "ingest", principals=("department:hr",))
    running.service.engine.sync_engine.tenant("acme").ingest(
        [SourceDocument(source="hr", data=b"For HR.", acl=("department:hr",))]
    )
    with running.client(result) as client:
        assert len(client.get("/v1/documents").json()["documents"]) == 1
        assert client.get("/v1/jobs").status_code == 200
        assert client.post("/api/rag/reload").status_code == 403
        (info,) = keys.infos()
        assert (info.name, info.scopes, info.revoked_at) == ("pipeline", ("read", "ingest"), None)
        assert result.split(".")[3] not in repr(info)
        assert keys.revoke(info.id)
        eventually(lambda: client.get("/v1/documents").status_code == 401)
        assert not keys.revoke(info.id)
        assert not engine.tenant("globex").api_keys.revoke(info.id)


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key[:-1] + ("a" if key[-1] != "a" else "b"),
        lambda key: key.replace("kosmos.acme.", "kosmos.globex."),
        lambda key: key + "a",
        lambda key: key.upper(),
    ],
)
def test_key__changed_is_refused(running: Running, change: Callable[[str], str]) -> None:
    result = running.key("pipeline", "read")
    with running.client(change(result)) as client:
        assert client.get("/v1/documents").status_code == 401


def test_key__rotated_has_a_successor_of_the_same_kind_and_some_time_left(running: Running) -> None:
    engine = running.service.engine.sync_engine
    keys = engine.tenant("acme").api_keys
    in_a_day, an_hour = datetime.now(UTC) + timedelta(days=1), timedelta(hours=1)
    created = keys.create("ci", scopes=["ingest"], principals=["department:hr"], expires_at=in_a_day)
    (first,) = keys.infos()
    successor = keys.rotate(first.id, overlap=an_hour)
    assert successor is not None
    assert keys.rotate(first.id, overlap=an_hour) is None  # it ends sooner already
    assert engine.tenant("globex").api_keys.rotate(first.id) is None
    second = keys.infos()[1]
    assert (second.name, second.scopes, second.principals) == (first.name, first.scopes, first.principals)
    assert first.expires_at is not None
    assert second.expires_at == second.created_at + (first.expires_at - first.created_at)
    with running.client(created) as old, running.client(successor) as new:
        assert old.get("/v1/jobs").status_code == new.get("/v1/jobs").status_code == 200
        assert keys.rotate(second.id, overlap=timedelta(milliseconds=1))
        eventually(lambda: new.get("/v1/jobs").status_code == 401)
        assert keys.rotate(second.id) is None
        assert keys.revoke(first.id)  # before its time
        eventually(lambda: old.get("/v1/jobs").status_code == 401)
    assert len(keys.infos()) == 3


def test_key__expires(running: Running) -> None:
    keys = running.service.engine.sync_engine.tenant("acme").api_keys
    in_a_day = datetime.now(UTC) + timedelta(days=1)
    created = keys.create("short", scopes=["read"], expires_at=in_a_day)
    with running.client(created) as client:
        assert client.get("/v1/documents").status_code == 200
        with psycopg.connect(running.service.settings.database.admin_url or "") as connection:
            connection.execute("UPDATE kosmos.api_keys SET expires_at = now()")
        eventually(lambda: client.get("/v1/documents").status_code == 401)


def test_development__lets_in_on_loopback_only(settings: Settings, signer: Signer) -> None:
    local = changed(settings, {"service.development.tenant": "acme", "service.development.departments": ("hr",)})
    with Engine(local, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        with running.client("") as client:
            assert client.get("/v1/documents").status_code == 200
            assert client.get("/v1/jobs").status_code == 200
            # A name that a foreign page has pointed at this machine.
            refused = client.get("/v1/documents", headers={"host": "evil.test"})
            assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
        open_to_all = changed(local, {"service.host": "0.0.0.0"})
        with (
            Engine(open_to_all, embedder=HashingEmbedder()) as other,
            pytest.raises(ConfigError, match=r"service\.host is 0\.0\.0\.0"),
            serving(other, signer),
        ):
            pass


def test_development__takes_nothing_from_pages_of_others(settings: Settings, signer: Signer) -> None:
    local = changed(settings, {"service.development.tenant": "acme"})
    evil = {"sec-fetch-site": "cross-site", "origin": "https://evil.test", "content-type": "text/plain"}
    with (
        Engine(local, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
        running.client("") as client,
    ):

        def upload(**headers: str) -> int:
            return client.post("/v1/documents", params={"source": "a"}, content=b"x", headers=headers).status_code

        assert upload(**evil) == upload(origin="http://localhost:1") == upload(origin="null") == 403
        assert client.post("/api/rag/reload", headers=evil).status_code == 403
        assert client.get("/v1/jobs").json()["jobs"] == []
        assert upload() == upload(origin=running.url) == 202
        # A link from another page may be followed.
        assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


def test_rates__are_of_addresses_that_show_bad_credentials(
    settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_rate_clock(monkeypatch)
    monkeypatch.setattr("kosmos_rag.apps.http.toolkit.dependencies._REFUSAL_DELAY_S", 0.0)
    behind = with_tokens(settings, signer, trusted_proxies=("127.0.0.1",), **{"rates.refused_per_minute": 4})
    with Engine(behind, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:

        def status(credentials: str, address: str) -> int:
            with running.client(credentials) as client:
                # The last is what the trusted proxy has seen; what the client says itself stands before it.
                forwarded = {"x-forwarded-for": f"192.0.2.99, {address}"}
                return client.get("/v1/documents", headers=forwarded).status_code

        forged = f"kosmos.acme.{uuid.uuid4().hex}.{'a' * 43}"
        assert [status(forged, "192.0.2.7") for _ in range(6)] == [401] * 4 + [429] * 2
        assert status(signer.token(), "192.0.2.7") == 429
        assert status(forged, "192.0.2.8") == 401
        assert [status(signer.token(), "192.0.2.9") for _ in range(8)] == [200] * 8


def test_rates__are_of_each_subject_and_tenant(
    settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_rate_clock(monkeypatch)
    slow = with_tokens(settings, signer, **{"rates.tenant_per_minute": 8, "rates.subject_per_minute": 5})
    with Engine(slow, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:

        def statuses(times: int, **claims: Any) -> list[int]:
            with running.client(**claims) as client:
                answers: list[httpx.Response] = [client.get("/v1/documents") for _ in range(times)]
            for answer in answers:
                if answer.status_code == 429:
                    assert 1 <= int(answer.headers["retry-after"]) <= 60
                    assert answer.json()["type"] == "urn:kosmos-rag:problem:too-many-requests"
            return [answer.status_code for answer in answers]

        assert statuses(7) == [200] * 5 + [429] * 2
        assert statuses(5, sub="berta") == [200] * 3 + [429] * 2
        assert statuses(5, tenant="globex") == [200] * 5


def test_default_collection__holds_for_uploads_lists_and_jobs(running: Running) -> None:
    engine = running.service.engine.sync_engine
    for collection in ("handbook", "tickets"):
        document = SourceDocument(source=f"{collection}.md", data=b"How to ask for annual leave.")
        engine.tenant("acme", collection=collection).ingest(document)
        engine.tenant("acme", collection=collection).jobs.enqueue(document)
    key = running.key("bot", "read", "ingest", default_collection="handbook")

    def names(client: httpx.Client, path: str, items: str, **params: str) -> set[str]:
        return {item["collection"] for item in client.get(path, params=params).json()[items]}

    with running.client(key) as client:
        uploaded = client.post("/v1/documents", params={"source": "new.md"}, content=b"New.").json()
        assert uploaded["collection"] == "handbook"
        response = client.post("/v1/documents", params={"source": "new.md", "collection": "tickets"}, content=b"New.")
        assert response.json()["collection"] == "tickets"
        for path, items in (("/v1/documents", "documents"), ("/v1/jobs", "jobs")):
            assert names(client, path, items) == {"handbook"}
            assert names(client, path, items, collection="tickets") == {"tickets"}
        # An id names one document, wherever it is.
        (ticket,) = client.get("/v1/documents", params={"collection": "tickets"}).json()["documents"]
        assert client.get(f"/v1/documents/{ticket['id']}").status_code == 200
        assert client.delete(f"/v1/documents/{ticket['id']}").status_code == 204
    with running.client(scope="read ingest") as client:
        assert names(client, "/v1/documents", "documents") == {"handbook"}
        assert names(client, "/v1/jobs", "jobs") >= {"handbook", "tickets"}
