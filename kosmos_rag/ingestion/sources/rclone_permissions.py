"""Readers of the files of Google Drive and OneDrive, from the permissions in rclone's metadata."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import EVERYONE, is_text
from kosmos_rag.ingestion.sources.rclone import Rclone

OLDEST = (1, 66)
"""First version of rclone that reads permissions."""


def list_readers(remote: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the path and the principals of each file.

    A file without permissions has none, so nobody may read it.

    Raises:
        ConfigError: rclone is missing, or too old to read permissions.
        SourceError: the remote cannot be listed, or its backend reports no permissions.
    """
    rclone = Rclone(remote, oldest=OLDEST, reason="a permission feed of kind rclone")
    files = described = 0
    for item in rclone.list_files(metadata=True):
        permissions = (item.get("Metadata") or {}).get("permissions")
        files += 1
        described += permissions is not None
        yield item["Path"], read_principals(item["Path"], permissions or "[]")
    if files and not described:
        raise SourceError(
            "unreadable", f"rclone reports no permissions of {remote}: give acl, or a permission feed of another kind"
        )


def read_principals(path: str, permissions: str) -> frozenset[str]:
    """Return the principals that may read a file. Raises SourceError if they are malformed."""
    try:
        listed = json.loads(permissions)
        principals = frozenset(
            principal for permission in listed for principal in _principals(permission) if is_text(principal)
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise SourceError(
            "unreadable", f"{path} has permissions that cannot be read: {error}; update rclone"
        ) from error
    return principals


def _principals(permission: Mapping[str, Any]) -> Iterator[str]:
    if "type" in permission or "emailAddress" in permission:
        yield from _of_drive(permission)
    else:
        yield from _of_onedrive(permission)


def _of_drive(permission: Mapping[str, Any]) -> Iterator[str]:
    """Yield the principal of a permission of Google Drive.

    Every role may read. A link alone makes nobody a reader: who has it is not known here.
    """
    if permission.get("deleted") or permission.get("view") or _is_past(permission.get("expirationTime")):
        return
    kind = permission.get("type")
    if kind in ("user", "group") and permission.get("emailAddress"):
        yield f"{kind}:{permission['emailAddress'].lower()}"
    elif kind == "domain" and permission.get("domain") and permission.get("allowFileDiscovery"):
        yield f"domain:{permission['domain'].lower()}"
    elif kind == "anyone" and permission.get("allowFileDiscovery"):
        yield EVERYONE


def _of_onedrive(permission: Mapping[str, Any]) -> Iterator[str]:
    """Yield the principals of a permission of OneDrive or SharePoint.

    A link for named people has them as identities; a link for anybody who has it makes nobody a reader.
    """
    if _is_past(permission.get("expirationDateTime")):
        return
    granted = permission.get("grantedToV2") or permission.get("grantedTo")
    several = permission.get("grantedToIdentitiesV2") or permission.get("grantedToIdentities") or ()
    for identities in ((granted,) if granted else ()) + tuple(several):
        for kind, names in (("user", ("user", "siteUser")), ("group", ("group", "siteGroup"))):
            # Only the first: the directory's user, and the same person as the site knows them.
            identity = next((identities[name] for name in names if identities.get(name)), None)
            if identity and (key := identity.get("email") or identity.get("userPrincipalName") or identity.get("id")):
                yield f"{kind}:{str(key).lower()}"


def _is_past(moment: object) -> bool:
    if not isinstance(moment, str):
        return False
    ends = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return ends.replace(tzinfo=ends.tzinfo or UTC) <= datetime.now(UTC)
