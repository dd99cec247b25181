"""How a mailbox is opened: by password, or by a token of OAuth 2.0."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, SourceError
from kosmos_rag.core.section import Section
from kosmos_rag.ingestion.sources.fetching import Fetcher
from kosmos_rag.ingestion.sources.spec import NotBlank, Variable, check_encrypted

if TYPE_CHECKING:
    from imapclient import IMAPClient

_MAX_ANSWER_BYTES = 1024 * 1024
_EARLY_S = 60.0
"""Seconds before its end that a token is no longer used."""
_REFUSED = ("invalid_grant", "invalid_client", "unauthorized_client", "access_denied")
"""Errors of RFC 6749, section 5.2, that mean the credentials."""


class OAuth(Section):
    """Where tokens for a mailbox come from (RFC 6749)."""

    token_url: Annotated[str, AfterValidator(check_encrypted)]
    """The token endpoint; `ingestion.urls.allowed_hosts` must have its host."""
    client_id: NotBlank
    client_secret_env: Variable | None = None
    """The variable of the environment that holds the secret of the client; public clients have none."""
    refresh_token_env: Variable | None = None
    """The variable that holds a refresh token; without it the client signs in itself (client credentials)."""
    scope: NotBlank | None = None


class ImapCredentials(Section):
    """The user of a mailbox, and one kind of credentials."""

    user: NotBlank
    password_env: Variable | None = None
    """The variable of the environment that holds the password."""
    access_token_env: Variable | None = None
    """Instead: the variable that holds an access token of OAuth 2.0."""
    oauth: OAuth | None = None
    """Instead: where access tokens come from."""

    @model_validator(mode="after")
    def _require_credentials(self) -> Self:
        if [self.password_env, self.access_token_env, self.oauth].count(None) != 2:
            raise ValueError("give one of password_env, access_token_env and oauth")
        return self


class Login(Protocol):
    """Credentials of a mailbox."""

    title: str
    """What they are, for messages, with the variable that holds them."""
    mechanisms: Sequence[str]
    """SASL mechanisms that take them, the best first."""

    def log_in(self, client: "IMAPClient", user: str) -> None:
        """Log a client in. Raises LoginError of the library, SourceError."""
        ...


class PasswordLogin:
    """A password of the environment."""

    mechanisms: Sequence[str] = ("PLAIN",)

    def __init__(self, variable: str, user: str) -> None:
        """Read the password. Raises ConfigError if the variable is not set."""
        self._password = _read_variable(variable, f"the password of {user}")
        self.title = f"the password in {variable}"

    def log_in(self, client: "IMAPClient", user: str) -> None:
        """Log a client in. Raises LoginError."""
        client.plain_login(user, self._password)


class TokenLogin:
    """A token of OAuth 2.0, from the environment or from a token endpoint. Thread-safe."""

    mechanisms: Sequence[str] = ("OAUTHBEARER", "XOAUTH2")

    def __init__(self, title: str, fetch: Callable[[], tuple[str, float]]) -> None:
        """Keep the way to a token.

        Args:
            title: what the token comes from, for messages.
            fetch: returns a token, and for how many seconds it is valid.
        """
        self.title = title
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def log_in(self, client: "IMAPClient", user: str) -> None:
        """Log a client in. Raises LoginError, SourceError.

        A token that the server refuses is replaced once.
        """
        from imapclient.exceptions import LoginError

        token, is_new = self._find_token()
        try:
            self._authenticate(client, user, token)
        except LoginError:
            with self._lock:
                self._until = 0.0
            if is_new:
                raise
            self._authenticate(client, user, self._find_token()[0])

    def _find_token(self) -> tuple[str, bool]:
        with self._lock:
            if is_new := time.monotonic() >= self._until:
                self._token, valid_s = self._fetch()
                self._until = time.monotonic() + max(0.0, valid_s - _EARLY_S)
            return self._token, is_new

    def _authenticate(self, client: "IMAPClient", user: str, token: str) -> None:
        if client.has_capability("AUTH=OAUTHBEARER"):
            name = user.replace("=", "=3D").replace(",", "=2C")
            mechanism, message, last = "OAUTHBEARER", f"n,a={name},\1auth=Bearer {token}\1\1", b"\1"  # RFC 7628
        else:
            mechanism, message, last = "XOAUTH2", f"user={user}\1auth=Bearer {token}\1\1", b""
        # A server that refuses the token sends the reason, and waits for an empty answer.
        answers = iter((message.encode(), last))
        client.sasl_login(mechanism, lambda _: next(answers, b"*"))


def create_login(credentials: ImapCredentials, settings: IngestionSettings) -> Login:
    """Create what a spec names.

    Raises ConfigError if a variable is not set.
    """
    if (variable := credentials.password_env) is not None:
        return PasswordLogin(variable, credentials.user)
    if (variable := credentials.access_token_env) is not None:
        token = _read_variable(variable, f"an access token for {credentials.user}")
        return TokenLogin(f"the token in {variable}", lambda: (token, 0.0))
    assert credentials.oauth is not None, "a spec has one of the three"
    return _create_token_login(credentials.oauth, settings)


def _create_token_login(oauth: OAuth, settings: IngestionSettings) -> TokenLogin:
    fields = {"client_id": oauth.client_id, "grant_type": "client_credentials"}
    variables = [name for name in (oauth.refresh_token_env, oauth.client_secret_env) if name]
    if not variables:
        raise ConfigError("oauth needs client_secret_env, or refresh_token_env; give one")
    if oauth.client_secret_env:
        fields["client_secret"] = _read_variable(oauth.client_secret_env, "the secret of the client")
    if oauth.refresh_token_env:
        token = _read_variable(oauth.refresh_token_env, "a refresh token")
        fields |= {"grant_type": "refresh_token", "refresh_token": token}
    if oauth.scope:
        fields["scope"] = oauth.scope
    fetcher = Fetcher(settings.urls, max_bytes=_MAX_ANSWER_BYTES)
    title = " or ".join(variables)

    def fetch() -> tuple[str, float]:
        status, body = fetcher.submit(oauth.token_url, fields)
        return _read_answer(oauth.token_url, status, body, title)

    return TokenLogin(f"the token by {title}", fetch)


def _read_answer(url: str, status: int, body: bytes, title: str) -> tuple[str, float]:
    """Return the token of an answer, and for how many seconds it is valid. Raises SourceError."""
    host = urlsplit(url).hostname
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, Mapping):
        answer = {}
    token, valid_s = answer.get("access_token"), answer.get("expires_in", 0)
    if status == 200 and isinstance(token, str) and token:
        return token, float(valid_s) if str(valid_s).isdecimal() else 0.0
    reason = one_line(str(answer.get("error") or f"it answered {status}")[:100])
    if answer.get("error") in _REFUSED or status == 401:
        raise SourceError("no_permission", f"{host} refuses {title} ({reason}); renew it")
    if status == 429 or status >= 500:
        raise SourceError("unavailable", f"{host} gives no token now ({reason}); try again later")
    raise SourceError("unreadable", f"{host} gives no token ({reason}); check oauth in the spec")


def _read_variable(variable: str, content: str) -> str:
    if not (value := os.environ.get(variable)):
        raise ConfigError(f"{variable} is not set: put {content} into that variable")
    return value
