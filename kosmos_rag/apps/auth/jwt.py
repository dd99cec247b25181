"""Access tokens (JWT, RFC 7519).

Signature, times, issuer and audience are verified, and the claims of the caller are read. Every invalid token gets the
same answer: a reason would only help a forger.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kosmos_rag.apps.auth.fetching import FetchFailed, fetch
from kosmos_rag.core.config import TokenSettings, mask_password
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import is_text
from kosmos_rag.engine.api_keys import KEY_SUBJECT

_MAX_CHARS = 16_384
_MAX_NAMES, _MAX_NAME_CHARS = 200, 300
_FETCH_TIMEOUT_S = 3.0
_REFRESH_S, _EXPIRE_S, _COOLDOWN_S = 600.0, 3600.0, 60.0
"""Keys are refreshed after `_REFRESH_S`; while that fails they are used until `_EXPIRE_S`. An unknown key id refreshes
them too. Two refreshes are at least `_COOLDOWN_S` apart."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """Claims of a valid token."""

    tenant: str
    subject: str
    departments: tuple[str, ...]
    roles: tuple[str, ...]
    scopes: tuple[str, ...] | None
    """None where the token has no scope claim."""


class TokenVerifier:
    """Verifies tokens with public keys, which it refreshes from time to time."""

    def __init__(self, settings: TokenSettings) -> None:
        """Load the keys. Raises ConfigError where there are none."""
        assert settings.keys is not None, "created only where tokens are configured"
        require_extra("service", "reading tokens", "jwt")
        self._settings = settings
        self._keys = PublicKeys(settings.keys, settings.algorithms, setting="service.tokens.keys")

    async def verify(self, token: str) -> Claims | None:
        """Return the claims of a token; None where it is not valid."""
        settings = self._settings
        payload = await verify_token(
            token,
            self._keys,
            issuer=settings.issuer,
            audience=settings.audience,
            leeway_s=settings.leeway_s,
            required=[settings.tenant_claim],
        )
        try:
            return None if payload is None else self._claims(payload)
        except (RequestError, ValueError, TypeError):
            return None

    def _claims(self, payload: Mapping[str, Any]) -> Claims:
        settings = self._settings
        scopes = payload.get(settings.scope_claim)
        return Claims(
            tenant=validate_name("tenant", payload[settings.tenant_claim]),
            subject=parse_subject(payload["sub"]),
            departments=parse_names(payload.get(settings.departments_claim, [])),
            roles=parse_names(payload.get(settings.roles_claim, [])),
            scopes=None if scopes is None else parse_names(scopes.split() if isinstance(scopes, str) else scopes),
        )


async def verify_token(
    token: str,
    keys: "PublicKeys",
    *,
    issuer: str | None,
    audience: str | None,
    leeway_s: float,
    required: Sequence[str] = (),
) -> Mapping[str, Any] | None:
    """Return all claims of a token; None where it is not valid.

    Args:
        keys: of the issuer; their algorithms are accepted.
        required: claims that it must have, in addition to exp, iat, aud, iss and sub.
    """
    import jwt

    try:
        if len(token) > _MAX_CHARS or not token.isascii():
            return None
        header = jwt.get_unverified_header(token)
        key = await keys.get(header.get("kid"))
        # The algorithm is the key's: the sender chooses the header.
        if key is None or header.get("alg") != key.algorithm_name or "crit" in header:
            return None
        decoded = jwt.decode_complete(
            token,
            key,
            algorithms=[key.algorithm_name],
            issuer=issuer,
            audience=audience,
            leeway=leeway_s,
            options={"require": ["exp", "iat", "aud", "iss", "sub", *required], "enforce_minimum_key_length": True},
        )
        for part in token.split(".")[:2]:
            _refuse_duplicates(part)
        payload: Mapping[str, Any] = decoded["payload"]
        return payload
    except (jwt.PyJWTError, RequestError, ValueError, OverflowError, TypeError, RecursionError):
        return None


class PublicKeys:
    """Public keys of the token issuer, by key id.

    They come from a JWKS URL, or from a JWKS or PEM file.
    """

    def __init__(self, location: str, algorithms: Sequence[str], *, setting: str) -> None:
        """Load the keys. Raises ConfigError where there are none.

        Args:
            location: URL or file.
            algorithms: accepted algorithms of signatures.
            setting: section of the settings that the location is from, for messages.
        """
        self._location = location
        self._masked = mask_password(location)
        self._algorithms = algorithms
        self._setting = setting
        self._refresh_lock = asyncio.Lock()
        self._keys = self._load()
        self._loaded_at = self._tried_at = time.monotonic()

    async def get(self, key_id: Any) -> Any:
        """Return the key (a `PyJWK`) of an id.

        Returns None where it is unknown. A token without an id gets the only key.
        """
        # An unknown key waits for a refresh in progress, which may bring it. A known key does not wait.
        if self._find(key_id) is None or (self._is_older(_REFRESH_S) and not self._refresh_lock.locked()):
            async with self._refresh_lock:
                if (self._find(key_id) is None or self._is_older(_REFRESH_S)) and self._may_refresh():
                    await self._refresh()
        return None if self._is_older(_EXPIRE_S) else self._find(key_id)

    def _is_older(self, age_s: float) -> bool:
        return time.monotonic() - self._loaded_at > age_s

    def _may_refresh(self) -> bool:
        return time.monotonic() - self._tried_at > _COOLDOWN_S

    def _find(self, key_id: Any) -> Any:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id) if isinstance(key_id, str) else None

    async def _refresh(self) -> None:
        self._tried_at = time.monotonic()
        try:
            self._keys = await asyncio.to_thread(self._load)
            self._loaded_at = time.monotonic()
        except ConfigError as error:
            logger.warning(
                "the token keys could not be refreshed: %s", error, extra={"action": "token_keys_not_refreshed"}
            )

    def _load(self) -> dict[str | None, Any]:
        try:
            parsed = [_parse_key(data) for data in _parse_jwks(self._read_text()) if _is_signing_key(data)]
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise ConfigError(
                f"{self._setting}: {self._masked} has no readable public keys ({error}); use a JWKS or a PEM file"
            ) from error
        keys = {key.key_id: key for key in parsed if key is not None and key.algorithm_name in self._algorithms}
        if not keys:
            raise ConfigError(
                f"{self._setting}: {self._masked} has no public key for {', '.join(self._algorithms)}; add one, "
                "or correct service.tokens.algorithms"
            )
        return keys

    def _read_text(self) -> str:
        if "://" not in self._location:
            try:
                return Path(self._location).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"{self._setting}: {self._location} cannot be read ({error}); name another"
                ) from error
        try:
            return _fetch_text(self._location)
        except FetchFailed as error:
            raise ConfigError(
                mask_password(f"{self._setting}: {self._location} does not answer with keys ({error})")
                + "; check address and network"
            ) from error


def _fetch_text(url: str) -> str:
    # In a thread of its own: the calling one may have an event loop, which cannot run another.
    with ThreadPoolExecutor(1) as threads:
        status, content = threads.submit(asyncio.run, fetch("GET", url, timeout_s=_FETCH_TIMEOUT_S)).result()
    if status != HTTPStatus.OK:
        raise FetchFailed(f"status {status}")
    return content.decode()


def _parse_key(data: dict[str, Any]) -> Any:
    """Parse a key of a set.

    The result is None if its type is not supported, because other keys of the set may be.
    """
    import jwt

    try:
        return jwt.PyJWK(data)
    except jwt.PyJWTError as error:
        logger.warning("a token key is ignored: %s", error, extra={"action": "token_key_ignored"})
        return None


def _parse_jwks(text: str) -> list[dict[str, Any]]:
    if text.lstrip().startswith("-----BEGIN"):
        return [_pem_to_jwk(text)]
    keys = json.loads(text)["keys"]
    if not isinstance(keys, list):
        raise TypeError("keys")
    return keys


def _pem_to_jwk(text: str) -> dict[str, Any]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

    key = load_pem_public_key(text.encode())
    if isinstance(key, rsa.RSAPublicKey):
        return RSAAlgorithm.to_jwk(key, as_dict=True)
    if isinstance(key, ec.EllipticCurvePublicKey):
        return ECAlgorithm.to_jwk(key, as_dict=True)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return OKPAlgorithm.to_jwk(key, as_dict=True)
    raise ValueError(f"a key of type {type(key).__name__}")


def _is_signing_key(data: Mapping[str, Any]) -> bool:
    """Whether a key is public and for signatures.

    With a shared secret everybody who reads the set could sign.
    """
    return data.get("kty") in {"RSA", "EC", "OKP"} and data.get("use", "sig") == "sig"


def parse_subject(value: Any) -> str:
    """Return the subject of a token.

    Raises ValueError if it is no name, or could be that of an API key.
    """
    if not is_text(value) or not 0 < len(value) <= _MAX_NAME_CHARS or value.startswith(KEY_SUBJECT):
        raise ValueError("sub")
    return str(value)


def parse_names(value: Any) -> tuple[str, ...]:
    """Return the names of a claim, one or a list. Raises ValueError for other values."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) > _MAX_NAMES:
        raise ValueError("names")
    if not all(is_text(name) and 0 < len(name) <= _MAX_NAME_CHARS for name in names):
        raise ValueError("names")
    return tuple(names)


def _refuse_duplicates(part: str) -> None:
    """Raise ValueError if an object has a key twice.

    Two parsers could read different values.
    """
    from jwt.utils import base64url_decode

    json.loads(base64url_decode(part), object_pairs_hook=_unique_object)


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("duplicate key")
    return unique
