"""Random histories of sources: nobody reads a text before it is known that they may."""

import json
import random
import re
import sqlite3
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed
from tests.unit.ingestion.sources.atlassian_site import TOKEN
from tests.unit.ingestion.sources.confluence_site import ConfluenceSite, Content, Space
from tests.unit.ingestion.sources.jira_site import JiraSite

PEOPLE = ("ann", "ben", "cem", "eve")
GROUPS = ("staff", "hr")
STEPS = 12
HISTORIES, MANY_HISTORIES = 25, 200
"""Of all kinds together."""
KINDS = ("confluence cloud", "confluence data_center", "jira cloud", "jira data_center", "json_lines", "sql")
Conditions = tuple[tuple[frozenset[str], frozenset[str]], ...]
"""Users and groups of each condition."""
_TOKEN = re.compile(r"token[0-9]+x")


class World(ABC):
    """A source whose documents and permissions change, and the truth about them."""

    is_live = True
    """Whether the source names readers with a text; otherwise a feed is all that is known."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance, self.folder = chance, folder
        self.groups = {name: self.pick() for name in GROUPS}
        self._tokens = 0

    def pick(self) -> set[str]:
        return {name for name in PEOPLE if self.chance.random() < 0.5}

    def write(self) -> str:
        """Return a text that no other document has had."""
        self._tokens += 1
        return f"token{self._tokens}x of a report"

    def pick_readers(self) -> dict[str, set[str]]:
        groups = {name for name in GROUPS if self.chance.random() < 0.4}
        return {"users": self.pick() if self.chance.random() < 0.5 else set(), "groups": groups}

    def satisfies(self, person: str, users: Collection[str], groups: Collection[str]) -> bool:
        return person in users or any(person in self.groups[group] for group in groups)

    def principals(self, person: str) -> tuple[str, ...]:
        """Return what the directory says of a person now."""
        return (f"user:{person}", *(f"group:{name}" for name in GROUPS if person in self.groups[name]))

    @contextmanager
    def open(self) -> Iterator["World"]:
        yield self

    @abstractmethod
    def change(self) -> None:
        """Change a document, a permission or a group."""

    @abstractmethod
    def list_texts(self) -> Mapping[str, tuple[str, set[str]]]:
        """Return the text of each document, and who may read it now, by the name of the document."""

    @abstractmethod
    def find_conditions(self, name: str) -> Conditions:
        """Return the conditions of a document now."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Return the spec of the source with its feed."""


class AtlassianWorld(World):
    """A site that is served, with directory names of its own."""

    site: ConfluenceSite | JiraSite

    @contextmanager
    def open(self) -> Iterator[World]:
        with self.site.serve():
            yield self

    def principals(self, person: str) -> tuple[str, ...]:
        return (self.site.principal(person), *super().principals(person)[1:])


class ConfluenceWorld(AtlassianWorld):
    """Pages below each other in two spaces, with restrictions."""

    site: ConfluenceSite

    def __init__(self, chance: random.Random, folder: Path, *, is_cloud: bool) -> None:
        super().__init__(chance, folder)
        self.site = ConfluenceSite(is_cloud=is_cloud, groups=self.groups)
        self.site.spaces = {key: Space(id=str(number), groups={"staff"}) for number, key in enumerate(("ENG", "OPS"))}
        for number in range(10, 13):
            self.site.put(str(number), title="a", body=self.write())

    def change(self) -> None:
        action = self.chance.randrange(7)
        page = self.site.content[self.chance.choice(list(self.site.content))]
        if action == 0:
            self.site.put(page.id, body=self.write())
        elif action == 1:  # as whoever writes a secret does
            page.users, page.groups = self.pick_readers().values()
            self.site.put(page.id, body=self.write())
        elif action == 2:
            page.users, page.groups = self.pick_readers().values()
        elif action == 3:
            space = self.site.spaces[self.chance.choice(list(self.site.spaces))]
            space.users, space.groups = self.pick_readers().values()
        elif action == 4:
            self.groups[self.chance.choice(GROUPS)] = self.pick()
        elif action == 5:
            page.space, page.status = self.chance.choice(["ENG", "OPS"]), self.chance.choice(["current", "trashed"])
        else:
            number = str(10 + len(self.site.content))
            self.site.put(number, title="a", body=self.write(), parent=self.chance.choice(["", "10"]))

    def list_texts(self) -> Mapping[str, tuple[str, set[str]]]:
        texts = {}
        for page in self.site.content.values():
            if page.status != "current":
                continue
            source = f"confluence://kb/{page.id}"
            conditions = self.find_conditions(source)
            readers = {name for name in PEOPLE if all(self.satisfies(name, *condition) for condition in conditions)}
            texts[source] = page.body, readers
        return texts

    def find_conditions(self, name: str) -> Conditions:
        page = self.site.content[name.rpartition("/")[2]]
        chain = [above for above in (page, *self.site.list_ancestors(page)) if above.users or above.groups]
        subjects: list[Content | Space] = [*chain, self.site.spaces[page.space]]
        return tuple((frozenset(subject.users), frozenset(subject.groups)) for subject in subjects)

    def spec(self) -> dict[str, Any]:
        access = _access(self.site, "confluence") | {"spaces": ["ENG", "OPS"]}
        return {**access, "full_every_s": self.chance.choice([0, 3600]), "permissions": access}


class JiraWorld(AtlassianWorld):
    """Issues of one project with a security level."""

    site: JiraSite

    def __init__(self, chance: random.Random, folder: Path, *, is_cloud: bool) -> None:
        super().__init__(chance, folder)
        self.site = JiraSite(is_cloud=is_cloud, groups=self.groups)
        for number in range(10, 13):
            self.site.put(str(number), summary="a", description=self.write())

    def change(self) -> None:
        action = self.chance.randrange(5)
        issue = self.chance.choice(list(self.site.issues.values()))
        if action == 0:
            self.site.put(issue.id, description=self.write())
        elif action == 1:
            self.site.put(issue.id, level=self.chance.choice(["9", None]), description=self.write())
        elif action == 2:
            self.site.projects["ENG"] = self.pick_holders()
        elif action == 3:
            self.site.levels = {"9": self.pick_holders()}
        else:
            self.groups[self.chance.choice(GROUPS)] = self.pick()

    def pick_holders(self) -> list[dict[str, Any]]:
        readers = self.pick_readers()
        users = [{"type": "user", "name": name} for name in sorted(readers["users"])]
        return [*users, *({"type": "group", "name": name} for name in sorted(readers["groups"]))]

    def list_texts(self) -> Mapping[str, tuple[str, set[str]]]:
        texts = {}
        for issue in self.site.issues.values():
            source = f"jira://kb/{issue.id}"
            conditions = self.find_conditions(source)
            readers = {name for name in PEOPLE if all(self.satisfies(name, *condition) for condition in conditions)}
            texts[source] = issue.description, readers
        return texts

    def find_conditions(self, name: str) -> Conditions:
        issue = self.site.issues[name.rpartition("/")[2]]
        holders = [self.site.projects["ENG"]]
        if issue.level:  # Data Center does not show who is in a level
            holders.append(self.site.levels.get(issue.level, []) if self.site.is_cloud else [])
        return tuple(
            (
                frozenset(holder["name"] for holder in condition if holder["type"] == "user"),
                frozenset(holder["name"] for holder in condition if holder["type"] == "group"),
            )
            for condition in holders
        )

    def spec(self) -> dict[str, Any]:
        access = _access(self.site, "jira") | {"projects": ["ENG"]}
        return {**access, "full_every_s": self.chance.choice([0, 3600]), "permissions": access}


class ExportWorld(World):
    """Documents in a file or a table, and an export of their permissions."""

    is_live = False

    def __init__(self, chance: random.Random, folder: Path, kind: str) -> None:
        super().__init__(chance, folder)
        self.kind = kind
        self.rows = {str(number): self.write() for number in range(3)}
        self.readers = {row: self.pick() for row in self.rows}
        self.save()

    def change(self) -> None:
        row = self.chance.choice(list(self.rows))
        action = self.chance.randrange(4)
        if action in (0, 1):
            self.rows[row] = self.write()
        if action in (1, 2):
            self.readers[row] = self.pick()
        if action == 3:
            row = str(len(self.rows))
            self.rows[row], self.readers[row] = self.write(), self.pick()
        self.save()

    def save(self) -> None:
        prefix = "kb/docs.jsonl#" if self.kind == "json_lines" else "sql://kb/"
        lines = (json.dumps({"id": row, "text": text}) for row, text in self.rows.items())
        (self.folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
        feed = (
            json.dumps({"document": prefix + row, "principals": [f"user:{name}" for name in sorted(self.readers[row])]})
            for row in self.rows
        )
        (self.folder / "feed.jsonl").write_text("\n".join(feed) + "\n")
        with closing(sqlite3.connect(self.folder / "kb.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS article (id TEXT PRIMARY KEY, text TEXT)")
            connection.executemany("INSERT OR REPLACE INTO article VALUES (?, ?)", self.rows.items())

    def find_conditions(self, name: str) -> Conditions:
        return ((frozenset(self.list_texts()[name][1]), frozenset()),)

    def list_texts(self) -> Mapping[str, tuple[str, set[str]]]:
        prefix = "kb/docs.jsonl#" if self.kind == "json_lines" else "sql://kb/"
        return {prefix + row: (text, self.readers[row]) for row, text in self.rows.items()}

    def spec(self) -> dict[str, Any]:
        feed = {"kind": "json_lines", "name": "feed", "path": str(self.folder / "feed.jsonl")}
        if self.kind == "json_lines":
            source = {"kind": "json_lines", "path": str(self.folder / "docs.jsonl"), "root": "kb"}
        else:
            source = {"kind": "sql", "name": "kb", "url_env": "KB_URL", "query": "SELECT * FROM article"}
        return {**source, "permissions": feed}


def _access(site: ConfluenceSite | JiraSite, kind: str) -> dict[str, Any]:
    deployment = "cloud" if site.is_cloud else "data_center"
    return {"kind": kind, "name": "kb", "url": site.url, "token_env": "SITE_TOKEN", "deployment": deployment}


def _create(kind: str, chance: random.Random, folder: Path) -> World:
    name, _, deployment = kind.partition(" ")
    if name == "confluence":
        return ConfluenceWorld(chance, folder, is_cloud=deployment == "cloud")
    if name == "jira":
        return JiraWorld(chance, folder, is_cloud=deployment == "cloud")
    return ExportWorld(chance, folder, name)


class History:
    """Changes of a source, and passes of it and of its feed, in any order."""

    def __init__(self, world: World, engine: Engine, place: tuple[str, str], settings: IngestionSettings) -> None:
        self.world, self.engine, self.settings = world, engine, settings
        self.tenant, self.collection = place
        self.past: dict[str, set[str]] = defaultdict(set)
        """All texts of each document: who may read a page or an issue sees what it said before."""
        self.allowed: dict[str, set[str]] = defaultdict(set)
        """Who could ever read a text at the source."""
        self.conditions: dict[str, set[Conditions]] = defaultdict(set)
        """Conditions under which a text could be read: a later member of a group meets them until the next pass."""
        self.granted: dict[str, set[str]] = {}
        """Readers of each document by the last pass of an export."""
        self.waiting: list[SourceDocument] = []

    def run(self) -> None:
        steps = (self.change, self.change, self.load, self.publish, self.run_pass, self.run_feed)
        for step in [*self.world.chance.choices(steps, k=STEPS), self.run_pass, self.run_feed]:
            step()
            self.check()
        texts = self.world.list_texts().values()
        expected = {name: {_read(text) for text, readers in texts if name in readers} for name in PEOPLE}
        current = {_read(text) for text, _ in texts}
        assert {name: set(self.read_as(name).values()) & current for name in PEOPLE} == expected

    def change(self) -> None:
        self.world.change()

    def load(self) -> None:
        """Load documents that are published later, as by a slow worker."""
        source = create_source(self.world.spec(), self.settings)
        for entry in source.listing():
            try:
                self.waiting.append(source.load(entry))
            except SourceError as error:
                assert error.code in ("gone", "not_found"), error  # noqa: PT017 — other errors fail the history
        self.world.chance.shuffle(self.waiting)

    def publish(self, count: int | None = None) -> None:
        count = self.world.chance.randint(0, len(self.waiting)) if count is None else count
        for document in self.waiting[:count]:
            report = self.engine.tenant(self.tenant, collection=self.collection).ingest([document])
            assert not report.failed, report.failed
        del self.waiting[:count]

    def run_pass(self) -> None:
        self.waiting.clear()
        self.load()
        self.publish(len(self.waiting))

    def run_feed(self) -> None:
        scope = self.engine.tenant(self.tenant, collection=self.collection)
        scope.sync_permissions(self.world.spec()["permissions"])
        self.granted = {name: set(readers) for name, (_, readers) in self.world.list_texts().items()}

    def read_as(self, person: str) -> dict[str, str]:
        """Return the texts that a person reads, by document."""
        principals = self.world.principals(person)
        reader = self.engine.tenant(self.tenant, collection=self.collection, principals=principals)
        return {source: _read(text) for source, text in reader.texts()}

    def check(self) -> None:
        for name, (text, readers) in self.world.list_texts().items():
            self.past[name].add(_read(text))
            for token in self.past[name]:
                self.allowed[token] |= readers
                self.conditions[token].add(self.world.find_conditions(name))
        for person in PEOPLE:
            for source, token in self.read_as(person).items():
                granted = (
                    self.is_allowed(person, token) if self.world.is_live else person in self.granted.get(source, ())
                )
                assert granted, f"{person} reads {token} of {source}"

    def is_allowed(self, person: str, token: str) -> bool:
        return person in self.allowed[token] or any(
            all(self.world.satisfies(person, *condition) for condition in conditions)
            for conditions in self.conditions[token]
        )


def _read(text: str) -> str:
    match = _TOKEN.search(text)
    assert match is not None, text
    return match[0]


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    values = {"ingestion.urls.allowed_hosts": ["127.0.0.1"], "ingestion.urls.allow_private": True}
    with Engine(changed(settings, values), embedder=HashingEmbedder()) as opened:
        yield opened


@pytest.mark.parametrize(
    "histories", [HISTORIES, pytest.param(MANY_HISTORIES, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
@pytest.mark.parametrize("kind", KINDS)
def test_text__is_read_by_nobody_before_it_is_known_that_they_may(
    kind: str, histories: int, engine: Engine, tenant_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", TOKEN)
    for seed in range(KINDS.index(kind), histories, len(KINDS)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        monkeypatch.setenv("KB_URL", f"sqlite:///{folder}/kb.sqlite")
        with _create(kind, random.Random(seed), folder).open() as world:
            history = History(world, engine, (tenant_name, f"history-{seed}"), engine.settings.ingestion)
            try:
                history.run()
            except AssertionError as error:
                raise AssertionError(f"history {seed} of {kind}: {error}") from error
