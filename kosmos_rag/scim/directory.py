"""The groups of the reader of a question, by its subject."""

import psycopg

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.engine.query_hooks import HookContext, Membership, QueryHooks, TenantRef
from kosmos_rag.scim.names import fold_name
from kosmos_rag.scim.settings import ScimSettings
from kosmos_rag.scim.sql import statement

_RESERVED = ("group", "role", "user")
_REFUSED = Membership(active=False, principals=())


class ScimDirectory:
    """Finds the groups of users that an identity provider wrote."""

    def __init__(self, settings: ScimSettings) -> None:
        self._settings = settings

    def find(self, connection: psycopg.Connection, owner: TenantRef, subject: str) -> Membership | None:
        """Return the groups of a subject; None where its token alone decides.

        Args: see `Directory.find`.
        """
        by_name = self._settings.subject == "user_name"
        values = {
            "tenant_id": owner.id,
            "name_key": fold_name(subject) if by_name else None,
            "external_id": None if by_name else subject,
        }
        rows = connection.execute(statement("find_membership"), values).fetchall()
        if not rows:
            return self._judge_unknown(connection, owner, fold_name(subject) if by_name else subject)
        groups = {name for _, names in rows for name in names}
        return Membership(
            # Two users of one external id: none of them may be deactivated.
            active=all(active for active, _ in rows),
            principals=tuple(f"group:{name}" for name in sorted(groups)),
        )

    def _judge_unknown(self, connection: psycopg.Connection, owner: TenantRef, subject: str) -> Membership | None:
        if self._settings.unknown == "refuse":
            return _REFUSED
        values = {"tenant_id": owner.id, "subject": subject}
        is_former = connection.execute(statement("find_deactivated_former"), values).fetchone() is not None
        return _REFUSED if is_former else None


def create_query_hooks(context: HookContext) -> QueryHooks:
    """Create the directory of an engine; none where `scim.enabled` is false. Raises ConfigError."""
    settings = context.settings.section(ScimSettings)
    if settings.enabled and (key := context.settings.rag.access.key) in _RESERVED:
        raise ConfigError(f"rag.access.key is {key!r}, and SCIM has principals of that kind; use another key")
    return QueryHooks(directory=ScimDirectory(settings) if settings.enabled else None)
