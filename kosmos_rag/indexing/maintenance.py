"""The life of a tenant's indexes, lexical and dense by one mechanism: look, build what is due, tune, rebuild, clean up.

One maintenance of a tenant runs at a time. New indexes are built beside the old ones, which are used until the new are
ready; what a crash leaves behind is found by the next run and taken away.
"""

import math
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError, IndexLocked, KosmosError
from kosmos_rag.core.types import EVERYONE, IndexInfo, IndexStep, Space
from kosmos_rag.indexing import ann as vectors
from kosmos_rag.indexing import catalog as catalogue
from kosmos_rag.indexing import history as log
from kosmos_rag.indexing import recall as tuning
from kosmos_rag.indexing import segments
from kosmos_rag.indexing.catalog import BUILDING, READY, SEGMENT, Entry
from kosmos_rag.indexing.status import (
    LIVE_SHARE,
    covered,
    inspect,
    is_large,
    live_share,
    published_of,
    rows_of,
    segments_of,
    why_due,
)
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, live_space

Progress = Callable[[str], None]
"""Told what is being done, one line a step."""

HNSW, IVFFLAT = "hnsw", "ivfflat"
_FURTHER = 1.5
"""How many times further, at least, an index is searched that was seen to find too little: by readers of a part of it,
which a measurement over all of it does not show."""
_FURTHEST = 0.5
"""Share of the furthest that an index can be searched beyond which another is to be built."""
_CHANGED = 0.1
"""Share of an index's rows that must have been published since it was built for another build to be of use."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One maintenance of one tenant, under its lock."""

    tenant: TenantRef
    progress: Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class _Survey:
    """What a vector index is planned for and measured with."""

    space: vectors.Space
    rows: int
    published: int
    """Serials given so far: their rise tells how much has been replaced, where the number of rows does not."""
    queries: list[NDArray[np.float32]]


class Indexes:
    """Builds and looks after the indexes of any tenant of one database. Thread-safe."""

    def __init__(self, database: Database, embedders: EmbedderRegistry, settings: Settings) -> None:
        self._database = database
        self._embedders = embedders
        self._settings = settings.indexes

    def status(self, tenant: TenantRef) -> list[IndexInfo]:
        """Return what indexes there are, how they are, and what is due. Raises DatabaseError."""
        with self._transaction(tenant) as connection:
            return inspect(connection, tenant, self._settings)

    def build(self, tenant: TenantRef, progress: Progress) -> list[IndexInfo]:
        """Build what is due: pack and merge segments, build the vector index or make it again after drift.

        Raises IndexLocked while another maintenance of the tenant runs, ConfigError without `database.admin_url` where
        a vector index is due, EmbeddingSpaceMismatch and ModelUnavailable where it cannot be measured, DatabaseError.
        """
        with self._locked(tenant, progress) as run:
            self._clean_up(run)
            self._pack(run)
            self._merge(run, everything=False)
            self._build_vectors(run, self._live(tenant))
        return self.status(tenant)

    def rebuild(self, tenant: TenantRef, progress: Progress) -> list[IndexInfo]:
        """Build all indexes again, whether due or not. Raises what `build` raises."""
        with self._locked(tenant, progress) as run:
            self._clean_up(run)
            self._pack(run)
            self._merge(run, everything=True)
            self._build_vectors(run, self._live(tenant), asked="asked for")
        return self.status(tenant)

    def tune(self, tenant: TenantRef, progress: Progress) -> list[IndexInfo]:
        """Measure the vector index again, and search it as far as the recall target asks. Raises as `build` does."""
        with self._locked(tenant, progress) as run:
            if (space := self._live(tenant)) is not None:
                self._tune(run, space)
        return self.status(tenant)

    def log(self, tenant: TenantRef, *, limit: int = 20) -> list[IndexStep]:
        """Return what was done to the tenant's vector indexes, and why, the latest first. Raises DatabaseError."""
        with self._transaction(tenant) as connection:
            return log.steps(connection, tenant.id, limit=limit)

    def in_use(self, tenant: TenantRef) -> tuple[uuid.UUID, datetime] | None:
        """Return the vector index over the live space, and when it was last built or tuned. Raises DatabaseError."""
        space = self._live(tenant)
        entry = None if space is None else self._ready(tenant, space)
        return None if entry is None else (entry.id, entry.checked_at or entry.created_at)

    def restore(
        self, tenant: TenantRef, queries: Sequence[NDArray[np.float32]], why: str, progress: Progress
    ) -> str | None:
        """Bring back the recall of the live vector index, which these vectors of questions have shown to be low.

        At first it is searched further. Where that was done before, or does not reach the target, or nearly all of it
        is searched, it is built again, unless too little has changed for that to be of use. Returns what was done:
        `raised`, `built`, `left` with its reason in the log; None without an index. Raises what `tune` raises.
        """
        with self._locked(tenant, progress) as run:
            space = self._live(tenant)
            entry = None if space is None else self._ready(tenant, space)
            if space is None or entry is None:
                return None
            if not entry.health.get("search_widened") and self._raised(
                run, space, entry, queries, why, at_least=_FURTHER
            ):
                return log.SEARCH_WIDENED
            if (hindrance := self._rebuilt(run, space, queries, why)) is None:
                return log.REBUILT
            with self._transaction(tenant) as connection:
                log.note(connection, tenant.id, log.SKIPPED, f"{why}; {hindrance}", index_id=entry.id, before=entry)
            return log.SKIPPED

    def prepare_space(self, tenant: TenantRef, space: Space, progress: Progress) -> Entry | None:
        """Build the vector index that a space beside the live one is due, or measure the one that it has.

        Returns it as it is then; None where the space is to be scanned. Raises what `build` raises.
        """
        with self._locked(tenant, progress) as run:
            self._clean_up(run)
            before = self._ready(tenant, space)
            self._build_vectors(run, space)
            if before is not None and self._ready(tenant, space) == before:
                self._tune(run, space)
        return self._ready(tenant, space)

    def drop_space(self, tenant: TenantRef, space: Space, progress: Progress) -> None:
        """Drop the vector indexes over a space that is not live. Raises IndexLocked, ConfigError, DatabaseError."""
        with self._locked(tenant, progress) as run:
            self._clean_up(run)
            self._drop([entry for entry in self._entries(tenant) if entry.space_id == space.id], tenant)

    # --- one lock, one transaction -----------------------------------------------------------------------------

    @contextmanager
    def _locked(self, tenant: TenantRef, progress: Progress) -> Iterator[_Run]:
        with self._database.worker.session() as session:
            row = session.execute(statement("try_maintenance_lock"), {"tenant_id": tenant.id}).fetchone()
            if row != (True,):
                raise IndexLocked(
                    f"the indexes of tenant {tenant.name} are being worked on by another process; try again later"
                )
            with vectors.releasing_maintenance_lock(session, tenant.id):
                yield _Run(tenant=tenant, progress=progress)

    @contextmanager
    def _transaction(self, tenant: TenantRef) -> Iterator[psycopg.Connection]:
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            # The limit of a statement is meant for questions: counting and merging take what they take.
            connection.execute(statement("no_statement_timeout"))
            yield connection

    def _entries(self, tenant: TenantRef) -> list[Entry]:
        with self._transaction(tenant) as connection:
            return catalogue.entries(connection, tenant.id)

    # --- the lexical leg ----------------------------------------------------------------------------------------

    def _pack(self, run: _Run) -> None:
        for collection, tail in self._tails(run.tenant).items():
            if tail < self._settings.lexical_tail_chunks:
                continue
            left = tail
            while left > 0:
                run.progress(f"packing {left:,} chunks of {collection}")
                with self._transaction(run.tenant) as connection:
                    held = segments_of(catalogue.entries(connection, run.tenant.id), collection)
                    entry = segments.pack_tail(connection, run.tenant.id, collection, covered=covered(held))
                left = left - entry.rows if entry else 0

    def _tails(self, tenant: TenantRef) -> dict[str, int]:
        sizes = {}
        with self._transaction(tenant) as connection:
            rows = connection.execute(statement("collections_of_tenant"), {"tenant_id": tenant.id}).fetchall()
            for collection, _ in rows:
                values = {"tenant_id": tenant.id, "collection": collection}
                sizes[collection] = (
                    connection.execute(statement("count_unsegmented_chunks"), values).fetchone() or (0,)
                )[0]
        return sizes

    def _merge(self, run: _Run, *, everything: bool) -> None:
        for collection in self._tails(run.tenant):
            with self._transaction(run.tenant) as connection:
                held = segments_of(catalogue.entries(connection, run.tenant.id), collection)
                chosen = held if everything else segments.mergeable(held) or self._worn(connection, run, held)
                if chosen:
                    rows = sum(entry.rows for entry in chosen)
                    run.progress(f"merging {len(chosen)} segments of {collection}, {rows:,} chunks")
                    segments.merge(connection, run.tenant.id, chosen)

    def _worn(self, connection: psycopg.Connection, run: _Run, held: list[Entry]) -> list[Entry]:
        """Return the segment of which least is still there, if that is little."""
        shares = {entry.id: live_share(connection, run.tenant.id, entry) for entry in held}
        worst = min(held, key=lambda entry: shares[entry.id], default=None)
        return [worst] if worst is not None and shares[worst.id] < LIVE_SHARE else []

    # --- the dense leg ------------------------------------------------------------------------------------------

    def _live(self, tenant: TenantRef) -> Space | None:
        with self._transaction(tenant) as connection:
            return live_space(connection, tenant.id)

    def _ready(self, tenant: TenantRef, space: Space) -> Entry | None:
        of_space = (entry for entry in self._entries(tenant) if entry.space_id == space.id and entry.state == READY)
        return next(of_space, None)

    def _tune(self, run: _Run, space: Space) -> None:
        survey, entry = self._survey(run, space), self._ready(run.tenant, space)
        if survey is not None and entry is not None:
            run.progress(f"measuring {entry.kind}")
            after = self._tuned(run, survey, entry)
            with self._transaction(run.tenant) as connection:
                catalogue.change(connection, run.tenant.id, after)
                log.note(
                    connection, run.tenant.id, log.TUNED, "asked for", index_id=entry.id, before=entry, after=after
                )

    def _clean_up(self, run: _Run) -> None:
        """Drop what no run will finish, and forget what is gone: nobody else holds the lock."""
        with self._transaction(run.tenant) as connection:
            known = [entry for entry in catalogue.entries(connection, run.tenant.id) if entry.kind != SEGMENT]
            values = {"tenant_id": run.tenant.id}
            physical = {row[0]: row[1] for row in connection.execute(statement("physical_indexes"), values).fetchall()}
        good = {entry.relation for entry in known if entry.state == READY and physical.get(entry.relation)}
        if leftovers := sorted(physical.keys() - good):
            with vectors.administrator(self._database.admin_conninfo) as admin:
                for relation in leftovers:
                    run.progress(f"dropping {relation}, left by an interrupted run")
                    vectors.drop(admin, relation)
        with self._transaction(run.tenant) as connection:
            catalogue.delete(connection, run.tenant.id, [entry for entry in known if entry.relation not in good])

    def _raised(
        self,
        run: _Run,
        space: Space,
        entry: Entry,
        queries: Sequence[NDArray[np.float32]],
        why: str,
        *,
        at_least: float = 0.0,
    ) -> bool:
        """Search an index as far as these questions need, never less far than before: others have asked for that.

        Returns whether it is searched further now, and so reaches the target without being searched almost whole.
        """
        run.progress(f"measuring {entry.kind} with {len(queries)} live questions")
        over = vectors.Space(tenant_id=run.tenant.id, space_id=space.id, dimensions=space.dimensions)
        name, most = vectors.search_setting(entry)
        with self._transaction(run.tenant) as connection:
            target = self._settings.recall_target
            found = vectors.tuned(connection, over, entry, queries=queries, target=target)
            setting = min(most, max(found.settings[name], math.ceil(at_least * entry.settings[name])))
            if setting <= entry.settings[name]:
                return False
            health = {**entry.health, **found.health, "search_widened": True}
            after = replace(found, settings={**found.settings, name: setting}, health=health)
            catalogue.change(connection, run.tenant.id, after)
            log.note(connection, run.tenant.id, log.SEARCH_WIDENED, why, index_id=entry.id, before=entry, after=after)
        return bool(health["recall_at_10"] >= target and setting <= _FURTHEST * most)

    def _rebuilt(self, run: _Run, space: Space, queries: Sequence[NDArray[np.float32]], why: str) -> str | None:
        """Build the index again, and search the new one as far as these questions need. Returns what hindered it."""
        entry = self._ready(run.tenant, space)
        assert entry is not None, "it is there, and the lock is held"
        with self._transaction(run.tenant) as connection:
            since = published_of(connection, run.tenant.id) - entry.health.get("published", 0)
        if since < _CHANGED * entry.rows:
            return f"{since:,} chunks published since it was built are too few for another build"
        try:
            self._clean_up(run)
            self._build_vectors(run, space, asked=why)
        except KosmosError as error:
            return str(error)
        if (newest := self._ready(run.tenant, space)) is not None:
            self._raised(run, space, newest, queries, "the new index, measured with the same questions")
        return None

    def _build_vectors(self, run: _Run, space: Space | None, *, asked: str | None = None) -> None:
        """Build or drop the index over one space; what the others have is left to them."""
        if space is None:
            return
        with self._transaction(run.tenant) as connection:
            rows = rows_of(connection, {"tenant_id": run.tenant.id, "space_id": space.id})
            published = published_of(connection, run.tenant.id)
            old = [entry for entry in catalogue.entries(connection, run.tenant.id) if entry.space_id == space.id]
        current = next(iter(old), None)
        wanted = is_large(rows, self._settings, indexed=current is not None)
        grown = f"indexes.vector_min_chunks is {self._settings.vector_min_chunks:,}"
        due = asked or (why_due(current, rows, published, self._settings) if current else grown)
        gone = [entry for entry in old if due or not wanted or entry is not current]
        if wanted and due and (survey := self._survey(run, space)) is not None:
            best = replace(self._best(run, survey), state=READY)
            with self._transaction(run.tenant) as connection:
                catalogue.retire(connection, run.tenant.id, gone)
                catalogue.change(connection, run.tenant.id, best)
                log.note(connection, run.tenant.id, log.REBUILT, due, index_id=best.id, before=current, after=best)
            due = None
        self._drop(gone, run.tenant, due)

    def _survey(self, run: _Run, space: Space) -> _Survey | None:
        """Look at what an index is planned for and measured with; None where nothing is left to be found.

        Before anything is built: a model that cannot be loaded, or is not the tenant's, is found out in a second.
        """
        over = vectors.Space(tenant_id=run.tenant.id, space_id=space.id, dimensions=space.dimensions)
        with self._transaction(run.tenant) as connection:
            questions = tuning.sample_questions(connection, run.tenant.id)
            rows, published = rows_of(connection, over.scope), published_of(connection, run.tenant.id)
        if not questions:
            return None
        embedder = self._embedders.get(space, run.tenant.name)
        queries = [embedder.embed_query(question) for question in questions]
        return _Survey(space=over, rows=rows, published=published, queries=queries)

    def _best(self, run: _Run, survey: _Survey) -> Entry:
        """Build the index that the settings name; for `auto`, hnsw as well where ivfflat is too slow, and choose."""
        chosen = self._settings.vector
        first = self._built(run, survey, IVFFLAT if chosen == "auto" else chosen)
        if chosen != "auto" or first.health["p50_ms"] <= self._settings.target_ms:
            return first
        try:
            second = self._built(run, survey, HNSW)
        except DatabaseError as error:
            # What there is of it is a leftover, and the next run's to drop.
            run.progress(f"{HNSW} could not be built, {IVFFLAT} is kept: {error}")
            return first
        target = self._settings.recall_target
        better = second.health["recall_at_10"] >= min(target, first.health["recall_at_10"])
        keep, lose = (second, first) if better and second.health["p50_ms"] < first.health["p50_ms"] else (first, second)
        run.progress(f"{keep.kind} is kept, {keep.health['p50_ms']} ms against {lose.health['p50_ms']} ms")
        self._drop([lose], run.tenant)
        beside = {key: lose.health[key] for key in ("recall_at_10", "recall_at_100", "p50_ms")}
        return replace(keep, health={**keep.health, "beside": {"kind": lose.kind, **beside}})

    def _built(self, run: _Run, survey: _Survey, kind: str) -> Entry:
        entry = Entry(
            id=uuid.uuid4(),
            kind=kind,
            state=BUILDING,
            rows=survey.rows,
            space_id=survey.space.space_id,
            settings=vectors.planned_settings(kind, survey.rows, self._settings),
        )
        with vectors.administrator(self._database.admin_conninfo) as admin:
            with self._transaction(run.tenant) as connection:
                catalogue.insert(connection, run.tenant.id, entry)
            run.progress(f"building {kind} over {survey.rows:,} vectors")
            vectors.create(admin, survey.space, entry, self._settings)
        run.progress(f"measuring {kind}")
        return self._tuned(run, survey, entry)

    def _tuned(self, run: _Run, survey: _Survey, entry: Entry) -> Entry:
        with self._transaction(run.tenant) as connection:
            target = self._settings.recall_target
            measured = vectors.tuned(connection, survey.space, entry, queries=survey.queries, target=target)
        counted = {"rows": survey.rows, "published": survey.published}
        return replace(measured, health={**entry.health, **measured.health, **counted})

    def _drop(self, gone: list[Entry], tenant: TenantRef, why: str | None = None) -> None:
        """Drop indexes; where nothing takes their place, `why` goes into the log."""
        if not gone:
            return
        with vectors.administrator(self._database.admin_conninfo) as admin:
            for entry in gone:
                vectors.drop(admin, entry.relation)
        with self._transaction(tenant) as connection:
            for entry in gone if why else ():
                log.note(connection, tenant.id, log.DROPPED, str(why), index_id=entry.id, before=entry)
            catalogue.delete(connection, tenant.id, gone)
