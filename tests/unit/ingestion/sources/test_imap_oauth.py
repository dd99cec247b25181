"""Mailboxes that are opened by a token of OAuth 2.0, against a Dovecot that asks whose it is."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.ingestion.sources.imap import ImapSource
from kosmos_rag.ingestion.sources.imap_login import TokenLogin
from kosmos_rag.ingestion.sources.listing import Listing, Source
from kosmos_rag.ingestion.sources.registry import create_source
from tests.unit.ingestion.sources.dovecot import Dovecot


class _Handler(BaseHTTPRequestHandler):
    server: "Provider"

    def do_GET(self) -> None:
        token = parse_qs(urlsplit(self.path).query)["access_token"][0]
        user = self.server.tokens.get(token)
        self._send(200, {"email": user}) if user else self._send(401, {"error": "invalid_token"})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.forms.append({name: values[0] for name, values in form.items()})
        self._send(*self.server.answer(self.server.forms[-1]))

    def _send(self, status: int, value: object) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


class Provider(ThreadingHTTPServer):
    """An identity provider: it gives tokens, and says whose they are."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.user = ""
        """Whose tokens it gives."""
        self.tokens: dict[str, str] = {}
        self.forms: list[dict[str, str]] = []
        self.refresh_token, self.secret = "refresh-1", "s3cret-client"
        self.reply: tuple[int, object] | None = None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def answer(self, form: dict[str, str]) -> tuple[int, object]:
        if self.reply is not None:
            return self.reply
        if form["client_secret"] != self.secret:
            return 401, {"error": "invalid_client"}
        if form["grant_type"] == "refresh_token" and form["refresh_token"] != self.refresh_token:
            return 400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
        token = f"access-{len(self.tokens)}"
        self.tokens[token] = self.user
        return 200, {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}

    @classmethod
    @contextmanager
    def run(cls) -> Iterator["Provider"]:
        """Serve until the end of the block."""
        server = cls()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Provider, Dovecot]]:
    with Provider.run() as provider, Dovecot.run(oauth_port=provider.port) as dovecot:
        yield provider, dovecot


@pytest.fixture
def provider(servers: tuple[Provider, Dovecot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provider:
    provider, dovecot = servers
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("MAIL_REFRESH_TOKEN", "refresh-1")
    monkeypatch.setenv("MAIL_CLIENT_SECRET", "s3cret-client")
    provider.user = dovecot.add_user()
    provider.reply, provider.forms = None, []
    with dovecot.log_in(provider.user) as connection:
        connection.append("INBOX", "", "", b"Subject: churn\r\n\r\nOn churn.\r\n")
    return provider


def _spec(servers: tuple[Provider, Dovecot], **credentials: Any) -> dict[str, Any]:
    provider, dovecot = servers
    address = {"host": "localhost", "port": dovecot.port, "user": provider.user}
    return {"kind": "imap", "name": "kb", **address, "acl": ["everyone"], **credentials}


def _oauth(provider: Provider, **values: Any) -> dict[str, Any]:
    address = {"token_url": f"http://127.0.0.1:{provider.port}/token", "client_id": "kosmos"}
    return {**address, "client_secret_env": "MAIL_CLIENT_SECRET", "scope": "mail", **values}


def _disconnect(source: Source) -> None:
    assert isinstance(source, ImapSource)
    source._mailbox._disconnect()


def _list(spec: dict[str, Any], ingestion: IngestionSettings) -> tuple[list[str], Listing]:
    listing = create_source(spec, ingestion).listing()
    return [entry.source for entry in listing], listing


@pytest.mark.parametrize("grant", ["refresh_token", "client_credentials"])
def test_mailbox__is_read_with_a_token_of_the_provider(
    servers: tuple[Provider, Dovecot], provider: Provider, ingestion: IngestionSettings, grant: str
) -> None:
    variable = {"refresh_token_env": "MAIL_REFRESH_TOKEN"} if grant == "refresh_token" else {}
    source = create_source(_spec(servers, oauth=_oauth(provider, **variable)), ingestion)
    [entry] = source.listing()
    _disconnect(source)
    assert b"On churn." in source.load(entry).data
    [form] = provider.forms  # a token serves until it ends
    assert (form["grant_type"], form["scope"], form["client_id"]) == (grant, "mail", "kosmos")


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2"])
def test_token__is_sent_by_either_mechanism(
    servers: tuple[Provider, Dovecot],
    provider: Provider,
    ingestion: IngestionSettings,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
) -> None:
    from imapclient import IMAPClient

    has, login = IMAPClient.has_capability, IMAPClient.sasl_login
    mechanisms: list[str] = []
    monkeypatch.setattr(
        IMAPClient, "has_capability", lambda client, name: has(client, name) and name != f"AUTH={_other(mechanism)}"
    )
    monkeypatch.setattr(
        IMAPClient, "sasl_login", lambda client, name, answer: mechanisms.append(name) or login(client, name, answer)
    )
    provider.tokens["access-x"] = provider.user
    monkeypatch.setenv("MAIL_ACCESS_TOKEN", "access-x")
    names, listing = _list(_spec(servers, access_token_env="MAIL_ACCESS_TOKEN"), ingestion)
    assert (names, listing.failures, mechanisms) == (["imap://kb/INBOX/1.eml"], [], [mechanism])


def _other(mechanism: str) -> str:
    return next(name for name in TokenLogin.mechanisms if name != mechanism)


def test_token__that_the_server_refuses_meanwhile_is_replaced(
    servers: tuple[Provider, Dovecot], provider: Provider, ingestion: IngestionSettings
) -> None:
    source = create_source(_spec(servers, oauth=_oauth(provider)), ingestion)
    list(source.listing())
    provider.tokens = dict.fromkeys(provider.tokens, "")
    _disconnect(source)
    assert len(list(source.listing())) == 1
    assert len(provider.forms) == 2


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2"])
def test_expired_access_token__is_told_by_the_name_of_its_variable(
    servers: tuple[Provider, Dovecot],
    provider: Provider,
    ingestion: IngestionSettings,
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
) -> None:
    from imapclient import IMAPClient

    has = IMAPClient.has_capability
    monkeypatch.setattr(
        IMAPClient, "has_capability", lambda client, name: has(client, name) and name != f"AUTH={_other(mechanism)}"
    )
    monkeypatch.setenv("MAIL_ACCESS_TOKEN", "access-expired")
    _, listing = _list(_spec(servers, access_token_env="MAIL_ACCESS_TOKEN"), ingestion)
    [failure] = listing.failures
    assert (failure.source, failure.code) == ("imap://kb/", "no_permission")
    assert "refuses the token in MAIL_ACCESS_TOKEN" in failure.message
    assert "access-expired" not in failure.message


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        (None, "no_permission", r"refuses MAIL_REFRESH_TOKEN or MAIL_CLIENT_SECRET \(invalid_grant\); renew it"),
        ((401, {}), "no_permission", "renew it"),
        ((503, b"busy"), "unavailable", "try again later"),
        ((429, {}), "unavailable", "try again later"),
        ((400, {"error": "invalid_scope"}), "unreadable", r"\(invalid_scope\); check oauth"),
        ((200, b"<html>"), "unreadable", "check oauth"),
        ((200, []), "unreadable", "check oauth"),
        ((200, {"access_token": 5}), "unreadable", "check oauth"),
        ((302, {}), "unreadable", "it answered 302"),
    ],
)
def test_provider__that_gives_no_token_is_a_failure_of_the_source(
    servers: tuple[Provider, Dovecot],
    provider: Provider,
    ingestion: IngestionSettings,
    monkeypatch: pytest.MonkeyPatch,
    reply: tuple[int, object] | None,
    code: str,
    message: str,
) -> None:
    provider.reply = reply
    monkeypatch.setenv("MAIL_REFRESH_TOKEN", "refresh-expired")
    oauth = _oauth(provider, refresh_token_env="MAIL_REFRESH_TOKEN")
    _, listing = _list(_spec(servers, oauth=oauth), ingestion)
    [failure] = listing.failures
    assert failure.code == code
    assert re.search(message, failure.message)
    assert "refresh-expired" not in failure.message


def test_token_endpoint__is_on_an_allowed_host(servers: tuple[Provider, Dovecot], provider: Provider) -> None:
    _, listing = _list(_spec(servers, oauth=_oauth(provider)), IngestionSettings())
    assert [failure.code for failure in listing.failures] == ["refused"]
    assert not provider.forms


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        ({}, "give one of password_env, access_token_env and oauth"),
        ({"password_env": "A", "access_token_env": "B"}, "give one of password_env, access_token_env and oauth"),
        ({"oauth": {"token_url": "http://id.example.org/token", "client_id": "a"}}, "it must begin with https://"),
        ({"oauth": {"token_url": "https://id.example.org/token", "client_id": "a", "client_secret": "b"}}, "not a key"),
    ],
)
def test_spec__names_one_kind_of_credentials(
    servers: tuple[Provider, Dovecot], ingestion: IngestionSettings, credentials: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        create_source(_spec(servers, **credentials), ingestion)


def test_variable__that_is_not_set_is_named(
    servers: tuple[Provider, Dovecot], provider: Provider, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAIL_CLIENT_SECRET")
    with pytest.raises(ConfigError, match="MAIL_CLIENT_SECRET is not set"):
        create_source(_spec(servers, oauth=_oauth(provider)), ingestion)
    with pytest.raises(ConfigError, match="needs client_secret_env, or refresh_token_env"):
        create_source(_spec(servers, oauth=_oauth(provider, client_secret_env=None)), ingestion)
