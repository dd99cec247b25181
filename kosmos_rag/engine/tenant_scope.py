"""A tenant, a reader and a collection, with what every call needs of the engine."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from kosmos_rag.core.config import AuditSettings, Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.config.presets import changes as parse_changes
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import (
    DEFAULT_COLLECTION,
    AuditKind,
    AuditOutcome,
)
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.collections import CollectionPipelines
from kosmos_rag.engine.components import EngineComponents
from kosmos_rag.engine.query import WATCHED, audit_policy
from kosmos_rag.engine.sessions import TenantSessions
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.retrieval.snapshot import read_routing
from kosmos_rag.storage.audit.log import AccessWithoutPassages, AuditContext, record_event
from kosmos_rag.storage.readable_documents import ReadableDocuments
from kosmos_rag.storage.tenants import TenantRef


@name_wrong_arguments()
class TenantScope:
    """A tenant, a reader and a collection, with what every call needs of the engine."""

    def __init__(
        self,
        components: EngineComponents,
        owner: TenantRef,
        principals: tuple[str, ...],
        collection: str | None,
        subject: str | None = None,
        *,
        read_your_writes: bool = False,
        is_watched: bool = False,
    ) -> None:
        self._parts = components
        self._read_your_writes = read_your_writes
        self._tenant = owner
        self._principals = principals
        self._collection = collection
        self._write_collection = collection or DEFAULT_COLLECTION
        self._reader = AuditContext(
            tenant=owner, principals=principals, subject=subject, collection=collection, is_watched=is_watched
        )

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._tenant.name

    @property
    def id(self) -> uuid.UUID:
        """The tenant's id, which follows from its name."""
        return self._tenant.id

    @property
    def collection(self) -> str | None:
        """Name of the collection; None for all of them."""
        return self._collection

    @property
    def principals(self) -> tuple[str, ...]:
        """What the reader holds."""
        return self._principals

    @property
    def subject(self) -> str | None:
        """Id or name of the reader; None without one."""
        return self._reader.subject

    def with_collection(self, name: str) -> Self:
        """Return one collection of the tenant for the same reader. Raises RequestError on a malformed name."""
        return type(self)(
            self._parts,
            self._tenant,
            self._principals,
            validate_name("collection", name),
            self._reader.subject,
            read_your_writes=self._read_your_writes,
            is_watched=self._reader.is_watched,
        )

    @property
    def embedding_model(self) -> str:
        """Name of the embedding model."""
        return self._parts.embedder.name

    @property
    def dimensions(self) -> int:
        """Length of the vectors of the embedding model."""
        return self._parts.embedder.dimensions

    @property
    def language_model(self) -> str | None:
        """Name of the language model, or None.

        The settings define what it is used for.
        """
        model = self._parts.language_model
        return None if model is None else model.name

    @property
    def history_turns(self) -> int:
        """Earlier turns that a question may refer to. Raises DatabaseError."""
        return self._pipelines().settings.rag.answer.history_turns

    @property
    def audited(self) -> bool:
        """Whether the audit log records what is read here.

        Raises DatabaseError.
        """
        return self._audit_policy(self._collection).enabled

    @property
    def settings(self) -> Settings:
        """The settings of the process."""
        return self._parts.settings

    @property
    def effective_settings(self) -> Settings:
        """The settings that questions of this scope are answered by: with the preset of the collection.

        Raises DatabaseError.
        """
        return self._pipelines().settings

    def parse_changes(self, name: str, changes: str | Path | Mapping[str, Any]) -> Preset:
        """Validate changes to the settings that questions of this scope are answered by.

        Raises ConfigError if they are invalid or change nothing, DatabaseError.

        Args:
            name: Name of the changes, for messages.
            changes: Path of a YAML file like that of a preset, or values by dotted key.
        """
        return parse_changes(name, changes, self.effective_settings, validate=build_signal_rules)

    @property
    def sessions(self) -> TenantSessions:
        """Transactions of the tenant, for statements of wings."""
        return TenantSessions(self._parts.database, self._tenant, self._principals)

    def record_access(self, kind: AuditKind, text: str, outcome: AuditOutcome, milliseconds: float = 0.0) -> None:
        """Write access to what has no passages to the audit log.

        It is a query on a described database, or the content of a stored file. Does nothing if no log is kept. Raises
        DatabaseError: the reader must not get the rows, or the bytes.

        Args:
            kind: `query` for SQL, `search` for a file.
            text: Name of the database and the SQL, or name of the file.
            outcome: `hits` if it ran, `refused` if not.
            milliseconds: Duration of the query.
        """
        policy = self._audit_policy(self._collection)
        if policy.enabled:
            access = AccessWithoutPassages(kind=kind, question=text, outcome=outcome, milliseconds=milliseconds)
            record_event(self._parts.database.app, self._reader, access, policy, self._pipelines().settings_hash)

    @property
    def _documents(self) -> ReadableDocuments:
        return ReadableDocuments(self._parts.database.app, self._tenant.id, self._principals, self._collection)

    def _pipelines(self) -> CollectionPipelines:
        """Return the pipelines of the collection by its preset.

        For all collections they are those of the process.
        """
        return self._parts.pipelines.get(self._parts.database.app, self._tenant, self._collection)

    def _audit_policy(self, collection: str | None) -> AuditSettings:
        """Return the audit settings of a collection, or the strictest.

        Without a collection they are the strictest of all. Raises DatabaseError.
        """
        if self._reader.is_watched:
            return WATCHED
        routing = read_routing(self._parts.database.app, self._tenant, collection)
        return audit_policy(self._parts.settings, routing.audit)
