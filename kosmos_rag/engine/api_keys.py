"""API keys of the service: `kosmos.TENANT.ID.SECRET`.

The database stores the SHA-256 of the secret.
"""

import hashlib
import re
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row, kwargs_row

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import EVERYONE, are_names, is_text
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant
from kosmos_rag.storage.tenants import tenant as tenant_ref

_PREFIX = "kosmos."
_PATTERN = re.compile(r"kosmos\.([a-z0-9][a-z0-9_-]{0,62})\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")
READ, INGEST, OPERATE, ADMIN = "read", "ingest", "operate", "admin"
SCOPES = (READ, INGEST, OPERATE, ADMIN)
KEY_SUBJECT = "key:"
"""Prefix of the subject of an API key in the audit log; a token whose subject has it is refused."""
_MAX_NAME = 200
_MAX_OVERLAP = timedelta(days=365)


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKeyInfo:
    """A key without its secret, as `api-key list` shows it."""

    id: uuid.UUID
    name: str
    scopes: tuple[str, ...]
    principals: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    """When the key stops being valid; a rotated key may be valid for some time."""
    default_collection: str | None
    """Collection of requests that name none; None for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """A valid key and its owner."""

    tenant: str
    name: str
    scopes: tuple[str, ...]
    principals: tuple[str, ...]
    default_collection: str | None
    """Collection of requests that name none; None for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredKey:
    """A valid key with the hash of its secret."""

    key: ApiKey
    secret_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedKey:
    """The parts of a key's text, not verified."""

    tenant: TenantRef
    id: uuid.UUID
    secret_sha256: str


@name_wrong_arguments()
class ApiKeys:
    """The keys of one tenant. Thread-safe."""

    def __init__(self, database: Database, owner: TenantRef) -> None:
        self._database = database
        self._owner = owner

    def create(
        self,
        name: str,
        *,
        scopes: Sequence[str],
        principals: Sequence[str] = (),
        expires_at: datetime | None = None,
        default_collection: str | None = None,
    ) -> str:
        """Create a key and return it; the secret cannot be read again.

        Args:
            name: label of the key, at most 200 characters.
            scopes: any of `read`, `ingest`, `operate`, `admin`.
            principals: principals of the holder in addition to `everyone`.
            expires_at: when the key stops being valid; None for never.
            default_collection: collection of requests that name none; None for all.

        Raises:
            RequestError: a value is invalid.
            KosmosError: ConfigError or DatabaseError.
        """
        _validate(name, scopes, principals, expires_at)
        if default_collection is not None:
            validate_name("collection", default_collection)
        now = datetime.now(UTC)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            create_tenant(connection, self._owner, now=now)
            return _insert_key(
                connection,
                self._owner,
                name,
                scopes,
                principals,
                now=now,
                expires_at=expires_at,
                collection=default_collection,
            )

    def rotate(self, key_id: uuid.UUID, *, overlap: timedelta = timedelta(0)) -> str | None:
        """Replace a key by one with the same properties and lifetime.

        Returns None, and changes nothing, where the old key is not valid, or ends before the overlap does.
        Raises RequestError for an overlap below 0 or of more than a year, ConfigError, DatabaseError.

        Args:
            overlap: how long the old key stays valid.
        """
        if not timedelta(0) <= overlap <= _MAX_OVERLAP:
            raise RequestError(f"the overlap is {overlap.total_seconds():g} s; give 0 to {_MAX_OVERLAP.days} days")
        now = datetime.now(UTC)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            row = _end_key(connection, self._owner, key_id, now=now, ends_at=now + overlap)
            if row is None:
                return None
            name, scopes, principals, created_at, expires_at, collection = row
            new_expires_at = None if expires_at is None else now + (expires_at - created_at)
            return _insert_key(
                connection,
                self._owner,
                name,
                scopes,
                principals,
                now=now,
                expires_at=new_expires_at,
                collection=collection,
            )

    def infos(self) -> list[ApiKeyInfo]:
        """Return a tenant's keys, the oldest first. Raises ConfigError, DatabaseError."""
        with (
            self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection,
            connection.cursor(row_factory=kwargs_row(_key_info)) as cursor,
        ):
            return cursor.execute(statement("list_api_keys"), {"tenant_id": self._owner.id}).fetchall()

    def revoke(self, key_id: uuid.UUID) -> bool:
        """Revoke a key. Returns whether it was valid. Raises ConfigError, DatabaseError."""
        now = datetime.now(UTC)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            return _end_key(connection, self._owner, key_id, now=now, ends_at=now) is not None


class KeyReader:
    """Reads the keys of all tenants on connections of its own. Thread-safe."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def find(self, key: ParsedKey) -> StoredKey | None:
        """Return the stored key with this id.

        Returns None where it is unknown, revoked or expired.

        The secret is not compared. Raises DatabaseError.
        """
        values = {"tenant_id": key.tenant.id, "id": key.id, "now": datetime.now(UTC)}
        with (
            self._pool.transaction(key.tenant.id, [EVERYONE]) as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            row = cursor.execute(statement("valid_api_key"), values).fetchone()
        if row is None:
            return None
        api_key = ApiKey(
            tenant=key.tenant.name,
            name=row["name"],
            scopes=tuple(row["scopes"]),
            principals=tuple(row["principals"]),
            default_collection=row["default_collection"],
        )
        return StoredKey(key=api_key, secret_sha256=row["secret_sha256"])

    def close(self) -> None:
        """Close the connections. Lookups that run fail."""
        self._pool.close()


def is_api_key(credentials: str) -> bool:
    """Whether credentials have the prefix of a key."""
    return credentials.startswith(_PREFIX)


def parse_key(credentials: str) -> ParsedKey | None:
    """Parse a key; None where it is malformed."""
    match = _PATTERN.fullmatch(credentials)
    if match is None:
        return None
    return ParsedKey(tenant=tenant_ref(match[1]), id=uuid.UUID(match[2]), secret_sha256=_hash(match[3]))


def _key_info(*, scopes: list[str], principals: list[str], **columns: Any) -> ApiKeyInfo:
    return ApiKeyInfo(scopes=tuple(scopes), principals=tuple(principals), **columns)


def _insert_key(
    connection: psycopg.Connection,
    owner: TenantRef,
    name: str,
    scopes: Sequence[str],
    principals: Sequence[str],
    *,
    now: datetime,
    expires_at: datetime | None,
    collection: str | None,
) -> str:
    key_id, secret = uuid.uuid4(), secrets.token_urlsafe(32)
    values = {
        "tenant_id": owner.id,
        "id": key_id,
        "name": name,
        "scopes": list(scopes),
        "principals": list(principals),
        "secret_sha256": _hash(secret),
        "now": now,
        "expires_at": expires_at,
        "default_collection": collection,
    }
    connection.execute(statement("create_api_key"), values)
    return f"{_PREFIX}{owner.name}.{key_id.hex}.{secret}"


def _end_key(
    connection: psycopg.Connection, owner: TenantRef, key_id: uuid.UUID, *, now: datetime, ends_at: datetime
) -> tuple[Any, ...] | None:
    values = {"tenant_id": owner.id, "id": key_id, "now": now, "ends_at": ends_at}
    return connection.execute(statement("revoke_api_key"), values).fetchone()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _validate(name: str, scopes: Sequence[str], principals: Sequence[str], expires_at: datetime | None) -> None:
    if not is_text(name) or not 0 < len(name.strip()) <= _MAX_NAME:
        raise RequestError(f"the name of the key is {name[:80]!r}; use 1 to {_MAX_NAME} characters")
    if not scopes or (unknown := [scope for scope in scopes if scope not in SCOPES]):
        value = repr(unknown[0]) if scopes else "missing"
        raise RequestError(f"the scope of the key is {value}; use {', '.join(SCOPES)}, one or several")
    if not are_names(principals) or not all(principals):
        raise RequestError(f"principals are {principals!r}; use names such as department:finance")
    if expires_at is not None and expires_at.tzinfo is None:
        raise RequestError(f"the key would expire at {expires_at.isoformat()}, which has no time zone; give it one")
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise RequestError(f"the key would expire at {expires_at.isoformat()}, which is in the past; use a later time")
