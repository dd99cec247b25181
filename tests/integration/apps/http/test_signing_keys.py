"""The keys that tokens are checked with: where they are read from, and when again."""

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kosmos_rag import Engine, Settings
from kosmos_rag.apps.auth import jwt as tokens
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Signer, serving, with_tokens
from tests.integration.variants import changed

pytestmark = pytest.mark.emptied_database


def test_keys__of_an_unknown_kind_leave_the_others_good(settings: Settings, signer: Signer, tmp_path: Any) -> None:
    good = jwt.algorithms.RSAAlgorithm.to_jwk(signer.key.public_key(), as_dict=True) | {"kid": "good"}
    unknown = {"kty": "EC", "crv": "P-1024", "x": "AA", "y": "AA", "kid": "later"}
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [unknown, good]}))
    taking = changed(with_tokens(settings, signer), {"service.tokens.keys": str(file)})
    token = jwt.encode(signer.claims(), signer.key, algorithm="RS256", headers={"kid": "good"})
    with (
        Engine(taking, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
        running.client(token) as client,
    ):
        assert client.get("/v1/documents").status_code == 200


class KeyServer(HTTPServer):
    """Publishes keys, without haste."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Keys)
        self.url = f"http://127.0.0.1:{self.server_port}/keys"
        self.keys = keys
        self.calls = 0

    def __enter__(self) -> "KeyServer":
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Keys(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # head and body are sent apart: one would wait for the other
    server: KeyServer

    def do_GET(self) -> None:
        self.server.calls += 1
        time.sleep(0.3)
        keys = self.server.keys.items()
        jwks = [jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True) | {"kid": kid} for kid, key in keys]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"keys": jwks}).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_keys__that_are_being_read_are_waited_for(
    settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_COOLDOWN_S", 1.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    token = jwt.encode(signer.claims(), other, algorithm="RS256", headers={"kid": "new"})
    with KeyServer(old=signer.key.public_key()) as server:
        taking = changed(with_tokens(settings, signer), {"service.tokens.keys": server.url})
        with (
            Engine(taking, embedder=HashingEmbedder()) as engine,
            serving(engine, signer) as running,
            running.client(token) as client,
            ThreadPoolExecutor(6) as threads,
        ):
            server.keys["new"] = other.public_key()
            time.sleep(1.1)
            answers = list(threads.map(lambda _: client.get("/v1/documents").status_code, range(6)))
    assert (answers, server.calls) == ([200] * 6, 2)


def test_keys__are_read_again_from_a_set_and_never_shared_ones(
    settings: Settings, signer: Signer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_COOLDOWN_S", 0.0)
    file = tmp_path / "keys.json"
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def publish(**keys: Any) -> None:
        jwks = [jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True) | {"kid": kid} for kid, key in keys.items()]
        jwks.append({"kty": "oct", "k": base64.urlsafe_b64encode(b"s" * 40).decode().rstrip("="), "kid": "shared"})
        file.write_text(json.dumps({"keys": jwks}))

    def status(token: str) -> int:
        with running.client(token) as client:
            return client.get("/v1/documents").status_code

    publish(old=signer.key.public_key())
    taking = changed(with_tokens(settings, signer), {"service.tokens.keys": str(file)})
    with Engine(taking, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        by_old = jwt.encode(signer.claims(), signer.key, algorithm="RS256", headers={"kid": "old"})
        by_new = jwt.encode(signer.claims(), other, algorithm="RS256", headers={"kid": "new"})
        shared = jwt.encode(signer.claims(), "s" * 40, algorithm="HS256", headers={"kid": "shared"})
        assert [status(by_old), status(by_new), status(shared)] == [200, 401, 401]
        publish(old=signer.key.public_key(), new=other.public_key())
        assert [status(by_old), status(by_new)] == [200, 200]
        file.write_text("gone")
        assert [status(by_old), status(by_new)] == [200, 200]


@pytest.mark.parametrize(
    "content", ["", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "aaaa"}]}', "-----BEGIN X"]
)
def test_keys__that_cannot_be_used_are_refused_at_the_start(
    settings: Settings, signer: Signer, tmp_path: Any, content: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    wrong = changed(with_tokens(settings, signer), {"service.tokens.keys": str(file)})
    with (
        Engine(wrong, embedder=HashingEmbedder()) as engine,
        pytest.raises(ConfigError, match=r"service\.tokens\.keys"),
        serving(engine, signer),
    ):
        pass
