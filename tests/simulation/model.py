"""What must be stored, and what each reader may see, at every moment of a run.

An operation has an effect between its start and its end, or none if it fails. The model keeps the operations and the
states that the database has had, and compares each new state, each answer of a search and the last state with them.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

REMOVALS = ("delete", "erase")
"""Kinds of operations that remove documents."""
NOBODY: frozenset[str] = frozenset()
"""Readers of a document that a feed named once and names no more."""


@dataclass(kw_only=True, slots=True, eq=False)
class Operation:
    """What an actor does."""

    kind: str
    sources: Collection[str]
    start: int = 0
    """Moment of its start, in the order of all starts and ends."""
    end: int | None = None
    """None while it runs."""
    succeeded: bool = False
    """Whether the caller knows of its success."""
    first_state: int = 0
    """Position of the state at its start."""

    def precedes(self, other: "Operation") -> bool:
        """Return whether it had ended before another one began."""
        return self.end is not None and self.end < other.start


@dataclass(kw_only=True, slots=True, eq=False)
class Publication(Operation):
    """A new version of one document."""

    number: int
    """In the order of the starts. The text of the version has it."""
    acl: frozenset[str]
    is_queued: bool
    """Whether a worker publishes it later."""
    is_closed: bool = False
    """Whether it must not be stored any more: newer work on the document has been stored, or removed it."""


@dataclass(kw_only=True, slots=True, eq=False)
class FeedPass(Operation):
    """A pass of the permission feed."""

    acls: Mapping[str, frozenset[str]]
    number: int = 0
    """In the order in which the database has stored the starts; 0 before that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredDocument:
    """A document in the database."""

    number: int
    """Of its publication."""
    acl: frozenset[str]
    stamp: int = 0
    """Of the last change of its metadata; 0 for none since its publication."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A hit of a search."""

    source: str
    number: int
    stamp: int


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The documents by source, and how many passes of feeds the database knows."""

    documents: Mapping[str, StoredDocument]
    passes: int = 0


@dataclass(kw_only=True, slots=True)
class Model:
    """The operations of a run, the states that the database has had, and what was wrong."""

    read_state: Callable[[], State]
    """Reads the documents as the administrator sees them."""
    operations: list[Operation] = field(default_factory=list)
    states: list[State] = field(default_factory=lambda: [State(documents={})])
    violations: list[str] = field(default_factory=list)
    _time: int = 0
    _passes_started: int = 0
    _running: dict[int, Operation] = field(default_factory=dict)
    """The operation of each thread."""

    def begin(self, operation: Operation) -> None:
        """Record the start of an operation in the thread that runs it."""
        operation.start = self._tick()
        operation.first_state = len(self.states) - 1
        self.operations.append(operation)
        self._running[threading.get_ident()] = operation

    def end(self, operation: Operation, *, succeeded: bool) -> None:
        """Record the end of an operation, and compare the state with it."""
        operation.end, operation.succeeded = self._tick(), succeeded
        if not succeeded:
            return
        if operation.kind in REMOVALS or (isinstance(operation, Publication) and not operation.is_queued):
            self._close(operation)
        self._check_state(self.states[-1])

    def count_publications(self) -> int:
        """Return how many publications have started."""
        return sum(isinstance(operation, Publication) for operation in self.operations)

    def observe(self) -> None:
        """Read the state of the database after a statement that may have committed, and compare it."""
        before, after = self.states[-1], self.read_state()
        if after == before:
            return
        self.states.append(after)
        if after.passes != before.passes:
            started = self._running[threading.get_ident()]
            if isinstance(started, FeedPass):
                self._passes_started += 1
                started.number = self._passes_started
        for source in sorted({*before.documents, *after.documents}):
            self._check_change(source, before.documents.get(source), after.documents.get(source))
        self._check_state(after)

    def check_hits(self, hits: Sequence[Hit], principals: frozenset[str], first: int) -> None:
        """Compare the hits of a search for all documents with what its reader could see while it ran.

        Args:
            first: Position of the state at the start of the search.
        """
        window = self.states[first:]
        readable = [_find_readable(state, principals) for state in window]
        returned = set(hits)
        if forbidden := returned - set().union(*readable):
            self.report(f"readers of {sorted(principals)} got {_show(forbidden)}, which no state allows")
        if missing := set.intersection(*readable) - returned:
            self.report(f"readers of {sorted(principals)} did not get {_show(missing)}, which every state has")
        if len(returned) != len(hits):
            self.report(f"a search returned a passage twice: {_show(hits)}")

    def check_end(self) -> None:
        """Compare the last state with the operations, once nothing runs and no job waits."""
        documents = self.states[-1].documents
        for source in sorted({source for operation in self.operations for source in operation.sources}):
            document = documents.get(source)
            outcomes = self._outcomes(source)
            if (document and document.number) not in outcomes:
                self.report(f"{source} is {document} at the end, and must be one of {sorted(outcomes, key=str)}")

    def _tick(self) -> int:
        self._time += 1
        return self._time

    def report(self, message: str) -> None:
        """Record a violation."""
        self.violations.append(message)

    def _select(self, source: str) -> list[Operation]:
        return [operation for operation in self.operations if source in operation.sources]

    def _publications(self, source: str) -> list[Publication]:
        return [operation for operation in self._select(source) if isinstance(operation, Publication)]

    def _passes(self, source: str) -> list[FeedPass]:
        """Return the passes over the collection of a document that have started."""
        return [each for each in self._select(source) if isinstance(each, FeedPass) and each.number]

    def _close(self, operation: Operation) -> None:
        """Close the publications that ended before an operation began: they must not be stored after it."""
        for source in operation.sources:
            for publication in self._publications(source):
                publication.is_closed |= publication.precedes(operation)

    def _check_change(self, source: str, before: StoredDocument | None, after: StoredDocument | None) -> None:
        if after is None:
            removals = [each for each in self._select(source) if each.kind in REMOVALS and each.end is None]
            if not removals:
                self.report(f"{source} is lost: {before} was removed, and nobody removes it")
        elif before is None or before.number != after.number:
            self._check_publication(source, after.number)

    def _check_publication(self, source: str, number: int) -> None:
        publications = {publication.number: publication for publication in self._publications(source)}
        publication = publications[number]
        if publication.end is not None and not publication.is_queued:
            self.report(f"version {number} of {source} was stored after its publication had ended")
        if publication.is_closed:
            self.report(f"version {number} of {source} is stale: newer work had been stored")
        if publication.is_queued:
            for older in publications.values():
                older.is_closed |= older.is_queued and older.precedes(publication)

    def _check_state(self, state: State) -> None:
        for source, document in state.documents.items():
            publication = next(each for each in self._publications(source) if each.number == document.number)
            if publication.is_closed:
                self.report(f"version {document.number} of {source} is stored, though newer work has ended")
            acls = self._possible_acls(source, publication)
            if document.acl not in acls:
                possible = sorted(map(sorted, acls))
                self.report(f"{source} is readable by {sorted(document.acl)}, and must be by one of {possible}")

    def _possible_acls(self, source: str, publication: Publication) -> set[frozenset[str]]:
        """Return the access control lists that a document may have now: of its publication, or of a feed."""
        passes = self._passes(source)
        decided = max((each.number for each in passes if each.succeeded), default=0)
        latest = [each for each in passes if each.number >= decided]
        acls: set[frozenset[str]] = set()
        if not decided or self._was_erased_since(source, latest):
            acls.add(publication.acl)
        for each in latest:
            earlier = [other for other in passes if other.number < each.number and source in other.acls]
            if source in each.acls:
                acls.add(each.acls[source])
                continue
            if earlier:
                acls.add(NOBODY)
            if not self._was_stored_since(source, each, earlier):
                acls.add(publication.acl)
        if any(not each.succeeded for each in latest):
            # A pass only takes readers from what is published while it runs, and gives new ones when it repeats itself.
            acls |= {acl & other for acl in acls for other in acls}
        return acls

    def _was_erased_since(self, source: str, passes: Sequence[FeedPass]) -> bool:
        """Return whether an erasure may have removed what a pass has stored of a document."""
        erasures = [operation for operation in self._select(source) if operation.kind == "erase"]
        return any(not erasure.precedes(each) for erasure in erasures for each in passes)

    def _was_stored_since(self, source: str, current: FeedPass, earlier: Sequence[FeedPass]) -> bool:
        """Return whether a pass has named a document, and it was stored at each pass since.

        What a feed no longer names, and is not stored, is forgotten.
        """
        removals = [each for each in self._select(source) if each.kind in REMOVALS]
        passes = self._passes(source)
        return any(
            each.succeeded
            and all(removal.precedes(each) for removal in removals)
            and all(
                source in self.states[later.first_state].documents
                for later in passes
                if each.number < later.number <= current.number
            )
            for each in earlier
        )

    def _outcomes(self, source: str) -> set[int | None]:
        """Return the publications that may have the last word on a document; None for its absence."""
        operations = [each for each in self._select(source) if each.kind in REMOVALS or isinstance(each, Publication)]
        outcomes: set[int | None] = set()
        for operation in operations:
            if any(operation.precedes(other) and other.succeeded for other in operations):
                continue
            outcomes.add(operation.number if isinstance(operation, Publication) else None)
        if not any(each.succeeded for each in operations if isinstance(each, Publication)):
            outcomes.add(None)
        return outcomes


def _find_readable(state: State, principals: frozenset[str]) -> set[Hit]:
    """Return the hits of a search for all documents."""
    return {
        Hit(source=source, number=document.number, stamp=document.stamp)
        for source, document in state.documents.items()
        if document.acl & principals
    }


def _show(hits: Collection[Hit]) -> list[str]:
    return sorted(f"{hit.source} version {hit.number} stamp {hit.stamp}" for hit in hits)
