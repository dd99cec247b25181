"""Random worlds: after every change each search has the same result through both views."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kosmos_rag import Engine, Filter, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from tests.integration.retrieval.restoring import NEEDS_PROGRAMS, dump, restore
from tests.integration.retrieval.views.blocks import find_block_cache
from tests.integration.two_models import NEW, OLD
from tests.integration.variants import opened

pytestmark = [NEEDS_PROGRAMS, pytest.mark.usefixtures("early_blocks")]
TENANT = "acme"
LANGUAGES = {"prose": "english", "code": "simple", "law": "german"}
WORDS = (
    *("running", "runs", "cars", "the", "rate", "getUserById", "XJ-4471-B", "XJ4471", "o'neil", "margin", "churn"),
    *("invoice", "contract", "supplier", "Krankenversicherung", "Beitrag", "café", "cafe", "is", "current"),
)
TYPOS = ("marginn", "invoce", "contrcat", "suplier")
EVERYWHERE = "ubiquitous"
PRINCIPALS = ("ann", "ben", "department:sales", "department:hr")
ACLS = ((EVERYONE,), ("ann",), ("ben",), ("ann", "ben"), ("department:sales",), ("department:hr", "ann"))
READERS = (
    *((EVERYONE,), (EVERYONE, "ann"), ("ben",), (EVERYONE, "department:sales")),
    (EVERYONE, *PRINCIPALS),
)
FILTERS: tuple[dict[str, Any] | None, ...] = (
    *(None, None, None, {"metadata.kind": "a"}, {"collection": "prose"}, {"department": "sales"}),
    {"$or": [{"metadata.kind": "b"}, {"metadata.tags": "x"}]},
)
Reader: TypeAlias = tuple[tuple[str, ...], str | None, dict[str, Any] | None]
PRESETS = (
    "rag: {retrieval: {top_k: 4}}",
    "rag: {retrieval: {require_approved: true}}",
    "rag: {signals: {department_match: {weight: 0.3}}}",
    "rag: {retrieval: {prf_weight: 0.2, fusion: score}}",
)
SETTINGS: dict[str, Any] = {
    "rag.retrieval.candidates": 12,
    "rag.retrieval.top_k": 8,
    "rag.chunking.min_size": 1,
    "indexes.vector": "none",
    "indexes.unsegmented_chunks": 5,
}


@pytest.fixture(params=[{}, {"rag.retrieval.result_cache": 100}], ids=["plain", "with a cache of results"])
def engines(request: pytest.FixtureRequest, settings: Settings) -> Iterator[tuple[Engine, Engine]]:
    """One with the view of the memory, and one without."""
    models = {"embedder": OLD, "next_embedder": NEW}
    with (
        opened(settings, {**SETTINGS, **request.param}, **models) as memory,
        opened(settings, {**SETTINGS, "indexes.vector_cache_mb": 0}, **models) as database,
    ):
        yield memory, database


class World:
    """A tenant that another process changes."""

    CHANGES: tuple[str, ...] = (
        *("publish", "publish", "delete", "change_metadata", "sync_permissions", "pack", "set_preset"),
        *("reembed", "erase", "dump", "restore"),
    )

    def __init__(self, seed: int, writer: Engine, admin_url: str, folder: Path) -> None:
        self.dice = random.Random(seed)
        self.writer = writer
        self.admin_url = admin_url
        self.folder = folder
        self.dumped = False
        self.regulars = [self.reader() for _ in range(4)]
        for collection in LANGUAGES:
            scope = writer.tenant(TENANT, collection=collection)
            assert scope.ingest([self.document(collection, number) for number in range(20)]).failed == ()

    def reader(self) -> Reader:
        """A reader, the collection that he searches, and his filter."""
        dice = self.dice
        return dice.choice(READERS), dice.choice((None, None, *LANGUAGES)), dice.choice(FILTERS)

    def returning_reader(self) -> Reader:
        """One who mostly has searched before the change: his block is one to follow."""
        return self.dice.choice(self.regulars) if self.dice.random() < 0.7 else self.reader()

    def words(self, most: int) -> str:
        return " ".join(self.dice.choices(WORDS, k=self.dice.randint(1, most)))

    def document(self, collection: str, number: int) -> SourceDocument:
        """A document that may have copies, several chunks, a date of expiry and an approval."""
        dice = self.dice
        metadata: dict[str, Any] = {"kind": dice.choice("ab"), "tags": dice.sample("xyz", dice.randint(0, 2))}
        if dice.random() < 0.2:
            metadata["valid_until"] = dice.choice(("2020-01-01", "2090-01-01"))
        if dice.random() < 0.5:
            metadata["approved"] = dice.random() < 0.8
        text = "churn of the margin" if dice.random() < 0.1 else self.words(9)
        return SourceDocument(
            source=f"{collection}{number}",
            data=" ".join([*[EVERYWHERE] * dice.choice((0, 1, 200)), text]).encode(),
            language=LANGUAGES[collection],
            acl=dice.choice(ACLS),
            metadata=metadata,
        )

    def scope(self, collection: str | None = None) -> Tenant:
        return self.writer.tenant(TENANT, collection=collection or self.dice.choice(sorted(LANGUAGES)))

    def change(self) -> str:
        """Change the tenant in a random way, and return which one."""
        name = self.dice.choice(self.CHANGES)
        getattr(self, name)()
        return name

    def publish(self) -> None:
        scope = self.scope()
        numbers = self.dice.sample(range(30), 4)
        documents = [self.document(str(scope.collection), number) for number in numbers]
        assert scope.ingest(documents, prune=False).failed == ()

    def delete(self) -> None:
        scope = self.scope()
        sources = sorted(scope.sources())
        scope.delete(self.dice.sample(sources, min(3, len(sources))))

    def change_metadata(self) -> None:
        scope = self.scope()
        sources = sorted(scope.sources())
        changes = self.dice.choice(({"kind": self.dice.choice("ab")}, {"approved": True}, {"tags": ["x"]}))
        scope.update_metadata(self.dice.sample(sources, min(3, len(sources))), changes)

    def sync_permissions(self) -> None:
        scope = self.scope()
        containers = {"one": self.dice.choice(ACLS), "two": self.dice.choice(ACLS)}
        documents = {source: [self.dice.choice(("one", "two"))] for source in sorted(scope.sources())[:6]}
        rows: list[dict[str, Any]] = [
            {"container": name, "principals": principals} for name, principals in containers.items()
        ]
        rows += [{"document": source, "containers": lies_in} for source, lies_in in documents.items()]
        file = self.folder / f"{scope.collection}.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        scope.sync_permissions({"kind": "json_lines", "name": scope.collection, "path": str(file)})

    def pack(self) -> None:
        self.scope().indexes.build()

    def set_preset(self) -> None:
        file = self.folder / "preset.yaml"
        file.write_text(self.dice.choice(PRESETS), encoding="utf-8")
        self.writer.tenant(TENANT).collections.set_preset(self.dice.choice(sorted(LANGUAGES)), preset=file)

    def reembed(self) -> None:
        spaces = self.writer.tenant(TENANT).spaces
        if any(info.live_until for info in spaces.status()):
            spaces.rollback()
        else:
            spaces.start()
            spaces.cutover(force="a test")

    def erase(self) -> None:
        self.writer.tenant(TENANT).erase(source=f"*{self.dice.randrange(10)}")

    def dump(self) -> None:
        (self.folder / "dump").unlink(missing_ok=True)
        dump(self.admin_url, self.folder / "dump")
        self.dumped = True

    def restore(self) -> None:
        """Go back in time, and make as many changes as were lost or fewer."""
        if self.dumped:
            restore(self.admin_url, self.folder / "dump")
            self.publish()


def _question(world: World) -> tuple[str, dict[str, Any]]:
    """A question and the options of its search."""
    dice = world.dice
    words = world.words(5)
    question = dice.choice(
        (
            *[words] * 6,
            f"{words} {dice.choice(TYPOS)}",
            f"+{dice.choice(WORDS)} {words}",
            f"margin -{dice.choice(WORDS)}",
            f'what is "{words}"',
        )
    )
    options: dict[str, Any] = dice.choice(
        (
            *[{}] * 6,
            {"k": 3},
            {"group_by": "document"},
            {"facets": ["metadata.kind", "collection"]},
            {"mmr": 0.5},
            {"cursor": "*", "k": 3},
            {"semantic_weight": 0.0},
            {"keyword_weight": 0.0},
            {"keyword_weight": 0.0, "mmr": 0.7},
            {"syntax": "plain"},
        )
    )
    return question, options


def _comparable(result: SearchResult) -> SearchResult:
    """Leave out how a result was found, and how long it took."""
    retrievers = {name: replace(stats, plan="", read={}) for name, stats in result.retrievers.items()}
    return replace(result, stages=(), timings_ms={}, cached=False, id=None, retrievers=retrievers)


def _search(scope: Tenant, question: str, conditions: dict[str, Any] | None, options: dict[str, Any]) -> SearchResult:
    return scope.search(question, filter=None if conditions is None else Filter(where=conditions), **options)


def _compare(engines: tuple[Engine, Engine], world: World, searches: int) -> int:
    """Compare searches of one reader, the first at once after the change; return how many the memory answered."""
    principals, collection, conditions = world.returning_reader()
    scopes = [engine.tenant(TENANT, collection=collection, principals=principals) for engine in engines]
    hits = _memory_hits(engines[0])
    for number in range(searches):
        question, options = _question(world)
        outcome, expected = (_comparable(_search(scope, question, conditions, options)) for scope in scopes)
        assert outcome == expected, (principals, collection, conditions, question, options)
        if number < 3:
            assert engines[0].background.drain(30)
    return _memory_hits(engines[0]) - hits


def _memory_hits(engine: Engine) -> int:
    return find_block_cache(engine).hits


def run_world(engines: tuple[Engine, Engine], world: World, steps: Sequence[int]) -> tuple[int, int]:
    """Return how many searches were compared, and how many the memory answered."""
    compared = answered = 0
    for _ in steps:
        change = world.change()
        for _ in range(3):
            try:
                answered += _compare(engines, world, 8)
            except AssertionError as error:
                error.add_note(f"after {change}")
                raise
            compared += 8
    return compared, answered


def test_results__are_equal_after_every_change(
    engines: tuple[Engine, Engine], database: DatabaseSettings, tmp_path: Path
) -> None:
    assert database.admin_url is not None
    compared, answered = run_world(engines, World(1, engines[1], database.admin_url, tmp_path), range(10))
    assert compared == 240
    assert answered > 60
    assert find_block_cache(engines[0]).followed > 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 8))
def test_results__are_equal_after_many_changes(
    engines: tuple[Engine, Engine], database: DatabaseSettings, tmp_path: Path, seed: int
) -> None:
    """Twelve worlds with 480 comparisons each."""
    assert database.admin_url is not None
    compared, answered = run_world(engines, World(seed, engines[1], database.admin_url, tmp_path), range(20))
    assert compared == 480
    assert answered > 80
