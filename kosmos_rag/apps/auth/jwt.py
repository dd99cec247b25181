"""Tokens (JWT): signature, times, issuer, audience, and the claims that say who somebody is.

Whatever is wrong with one, the answer is the same: none of the reasons helps anybody but a forger.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kosmos_rag.core.config import TokenSettings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.extras import needed
from kosmos_rag.core.types import is_text
from kosmos_rag.storage.tenants import well_formed

_MAX_CHARS = 16_384
_MAX_NAMES, _MAX_NAME_CHARS = 200, 300
_FETCH_TIMEOUT_S = 3.0
_FRESH_S, _STALE_S, _AGAIN_S = 600.0, 3600.0, 60.0
"""Keys are read anew after the first; where that fails they are used until the second. An unknown id has them read anew
too, but not more often than the third."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """What a valid token says."""

    tenant: str
    subject: str
    departments: tuple[str, ...]
    roles: tuple[str, ...]
    scopes: tuple[str, ...] | None
    """None where it says nothing of scopes."""


class TokenVerifier:
    """Checks tokens against public keys, which it reads anew from time to time."""

    def __init__(self, settings: TokenSettings) -> None:
        """Read the keys. Raises ConfigError where there are none."""
        needed("jwt")
        self._settings = settings
        self._keys = PublicKeys(settings)

    async def verify(self, token: str) -> Claims | None:
        """Return the claims of a token; None where it is not one to be trusted."""
        import jwt

        try:
            if len(token) > _MAX_CHARS or not token.isascii():
                return None
            header = jwt.get_unverified_header(token)
            key = await self._keys.get(header.get("kid"))
            # The key says which algorithm it is for; the header is the sender's.
            if key is None or header.get("alg") != key.algorithm_name or "crit" in header:
                return None
            decoded = jwt.decode_complete(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=self._settings.leeway_s,
                options={
                    "require": ["exp", "iat", "aud", "iss", "sub", self._settings.tenant_claim],
                    "enforce_minimum_key_length": True,
                },
            )
            for part in token.split(".")[:2]:
                _refuse_duplicates(part)
            return self._claims(decoded["payload"])
        except (jwt.PyJWTError, RequestError, ValueError, OverflowError, TypeError, RecursionError):
            return None

    def _claims(self, payload: Mapping[str, Any]) -> Claims:
        settings = self._settings
        subject = payload["sub"]
        if not is_text(subject) or not 0 < len(subject) <= _MAX_NAME_CHARS:
            raise ValueError("sub")
        scopes = payload.get(settings.scope_claim)
        return Claims(
            tenant=well_formed("tenant", payload[settings.tenant_claim]),
            subject=subject,
            departments=_names(payload.get(settings.departments_claim, [])),
            roles=_names(payload.get(settings.roles_claim, [])),
            scopes=None if scopes is None else _names(scopes.split() if isinstance(scopes, str) else scopes),
        )


class PublicKeys:
    """The public keys of whoever signs tokens, by their ids."""

    def __init__(self, settings: TokenSettings) -> None:
        assert settings.keys is not None, "made only where tokens are taken"
        self._place = settings.keys
        self._algorithms = settings.algorithms
        self._reading = asyncio.Lock()
        self._keys = self._read()
        self._read_at = self._tried_at = time.monotonic()

    async def get(self, key_id: Any) -> Any:
        """Return the key (a `PyJWK`) of an id, the only key where a token names none; None where there is no such."""
        # A key may be missing because it is being read: who has one that is known does not wait for that.
        if self._find(key_id) is None or (self._is_stale(_FRESH_S) and not self._reading.locked()):
            async with self._reading:
                if (self._find(key_id) is None or self._is_stale(_FRESH_S)) and self._may_read():
                    await self._read_again()
        return None if self._is_stale(_STALE_S) else self._find(key_id)

    def _is_stale(self, after_s: float) -> bool:
        return time.monotonic() - self._read_at > after_s

    def _may_read(self) -> bool:
        return time.monotonic() - self._tried_at > _AGAIN_S

    def _find(self, key_id: Any) -> Any:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id) if isinstance(key_id, str) else None

    async def _read_again(self) -> None:
        self._tried_at = time.monotonic()
        try:
            self._keys = await asyncio.to_thread(self._read)
            self._read_at = time.monotonic()
        except ConfigError as error:
            logger.warning(
                "the keys of tokens could not be read again: %s", error, extra={"action": "token_keys_unread"}
            )

    def _read(self) -> dict[str | None, Any]:
        try:
            found = [key for data in _jwks(self._text()) if _signs(data) and (key := _key(data)) is not None]
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ConfigError(
                f"service.tokens.keys: {self._place} holds no public keys that can be read ({error}); give a JWKS or a "
                "PEM file"
            ) from error
        keys = {key.key_id: key for key in found if key.algorithm_name in self._algorithms}
        if not keys:
            raise ConfigError(
                f"service.tokens.keys: {self._place} has no public key for {', '.join(self._algorithms)}; add one, or "
                "correct service.tokens.algorithms"
            )
        return keys

    def _text(self) -> str:
        import httpx

        if not self._place.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
            if "://" in self._place:
                raise ConfigError(f"service.tokens.keys is {self._place}; keys are fetched by https only")
            try:
                return Path(self._place).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"service.tokens.keys: {self._place} cannot be read ({error}); name another"
                ) from error
        try:
            return httpx.get(self._place, timeout=_FETCH_TIMEOUT_S).raise_for_status().text
        except httpx.HTTPError as error:
            raise ConfigError(
                f"service.tokens.keys: {self._place} does not answer with keys ({error}); check address and network"
            ) from error


def _key(data: dict[str, Any]) -> Any:
    """Return a key of a set; None where it is of a kind that is unknown here: others of the set are good."""
    import jwt

    try:
        return jwt.PyJWK(data)
    except jwt.PyJWTError as error:
        logger.warning("a key of tokens is left out: %s", error, extra={"action": "token_key_left_out"})
        return None


def _jwks(text: str) -> list[dict[str, Any]]:
    if text.lstrip().startswith("-----BEGIN"):
        return [_jwk_of_pem(text)]
    keys = json.loads(text)["keys"]
    if not isinstance(keys, list):
        raise TypeError("keys")
    return keys


def _jwk_of_pem(text: str) -> dict[str, Any]:
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


def _signs(data: Mapping[str, Any]) -> bool:
    """Whether a key of a set is public and for signatures: a shared secret would let whoever reads it sign."""
    return data.get("kty") in {"RSA", "EC", "OKP"} and data.get("use", "sig") == "sig"


def _names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) > _MAX_NAMES:
        raise ValueError("names")
    if not all(is_text(name) and 0 < len(name) <= _MAX_NAME_CHARS for name in names):
        raise ValueError("names")
    return tuple(names)


def _refuse_duplicates(part: str) -> None:
    """Raise ValueError where an object names a claim twice: two readers might each believe another one."""
    from jwt.utils import base64url_decode

    json.loads(base64url_decode(part), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("twice")
    return found
