"""Random histories of sources: nobody reads a text before it is known that they may, nor one that is gone."""

import json
import os
import random
import re
import shutil
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.registry import KINDS as SOURCES
from kosmos_rag.ingestion.sources.registry import create_source
from tests.integration.variants import changed
from tests.integration.worker.working import Work
from tests.s3_server import serve_s3
from tests.unit.ingestion.sources.atlassian_site import TOKEN
from tests.unit.ingestion.sources.confluence_site import ConfluenceSite, Content, Space
from tests.unit.ingestion.sources.dovecot import PASSWORD, Dovecot
from tests.unit.ingestion.sources.jira_site import JiraSite
from tests.unit.ingestion.sources.test_contract import (
    FolderWorkspace,
    GitWorkspace,
    ImapWorkspace,
    JsonLinesWorkspace,
    RcloneWorkspace,
    SiteWorkspace,
    SqlWorkspace,
)
from tests.unit.ingestion.sources.web_server import Server

pytestmark = pytest.mark.emptied_database
PEOPLE = ("ann", "ben", "cem", "eve")
GROUPS = ("staff", "hr")
STEPS = 12
HISTORIES, MANY_HISTORIES = 2, int(os.environ.get("KOSMOS_TEST_HISTORIES", "15"))
"""Of each kind."""
KINDS = ("confluence cloud", "confluence data_center", "folder", "git", "imap", "jira cloud", "jira data_center",
         "json_lines", "rclone", "s3", "site", "sql", "sql with acl_column", "urls")  # fmt: skip
Conditions = tuple[tuple[frozenset[str], frozenset[str]], ...]
"""Users and groups of each condition."""
_TOKEN = re.compile(r"token[0-9]+x")


class World(ABC):
    """A source whose documents and permissions change, and the truth about them."""

    is_live = True
    """Whether the source names readers with a text; otherwise a feed is all that is known."""
    gone_passes = 1
    """Passes after which a document that is gone is removed; 0: never."""

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

    def find_readers(self, source: str) -> set[str]:
        """Return who satisfies all conditions of a document now."""
        conditions = self.find_conditions(source)
        return {name for name in PEOPLE if all(self.satisfies(name, *condition) for condition in conditions)}


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
            texts[source] = page.body, self.find_readers(source)
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
            texts[source] = issue.description, self.find_readers(source)
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


class UrlsWorkspace(SiteWorkspace):
    """Pages of a list of addresses."""

    kind = "urls"

    def spec(self) -> dict[str, object]:
        return {"urls": [self.server.url(path) for path in self.server.replies if path != "/"]}


class BucketWorkspace(FolderWorkspace):
    """Objects of a bucket."""

    kind = "s3"

    def __init__(self, folder: Path, settings: IngestionSettings, endpoint: str) -> None:
        import boto3

        super().__init__(folder, settings)
        self.endpoint = endpoint
        # Buckets outlive the servers of their process.
        self.bucket = boto3.resource("s3", endpoint_url=endpoint).Bucket(f"kb-{uuid.uuid4().hex}")
        self.bucket.create()

    def put(self, name: str, text: str) -> None:
        self.bucket.put_object(Key=name, Body=text.encode())

    def remove(self, name: str) -> None:
        self.bucket.Object(name).delete()

    def spec(self) -> dict[str, object]:
        return {"bucket": self.bucket.name, "endpoint_url": self.endpoint}


WORKSPACES: dict[str, tuple[type[FolderWorkspace], str]] = {
    "folder": (FolderWorkspace, "kb/"),
    "git": (GitWorkspace, "git://kb/"),
    "json_lines": (JsonLinesWorkspace, "kb/faq.jsonl#"),
    "rclone": (RcloneWorkspace, "rclone://kb/"),
    "sql": (SqlWorkspace, "sql://kb/"),
}
"""By kind, with what the names of documents begin with."""


class ExportWorld(World):
    """Documents of any kind, and an export of their permissions."""

    is_live = False

    def __init__(self, chance: random.Random, folder: Path, workspace: FolderWorkspace, prefix: str) -> None:
        super().__init__(chance, folder)
        self.workspace, self.prefix = workspace, prefix
        self.gone_passes = 0 if workspace.kind == "urls" else workspace.gone_passes
        self.texts: dict[str, str] = {}
        self.readers: dict[str, set[str]] = {}
        for _ in range(3):
            self.create()
        self.save()

    def create(self) -> None:
        name = f"{self._tokens}.md"
        self.put(name)
        self.readers[name] = self.pick()

    def put(self, name: str) -> None:
        self.texts[name] = f"Subject: report\n\n{self.write()}" if self.workspace.kind == "imap" else self.write()
        self.workspace.put(name, self.texts[name])

    def change(self) -> None:
        name = self.chance.choice(list(self.texts))
        action = self.chance.randrange(5)
        if action in (0, 1):
            self.put(name)
        if action in (1, 2):
            self.readers[name] = self.pick()
        if action == 3:
            self.create()
        if action == 4 and len(self.texts) > 1:
            self.workspace.remove(name)
            del self.texts[name], self.readers[name]
        self.save()

    def save(self) -> None:
        """Export the permissions."""
        rows = (
            {"document": self.name(name), "principals": [f"user:{person}" for person in sorted(readers)]}
            for name, readers in self.readers.items()
        )
        (self.folder / "feed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def name(self, name: str) -> str:
        """Return the name of a document."""
        if isinstance(self.workspace, ImapWorkspace):
            return f"{self.prefix}{self.workspace.uids[name].decode()}.eml"
        return f"{self.prefix}{name}"

    def find_conditions(self, name: str) -> Conditions:
        return ((frozenset(self.list_texts()[name][1]), frozenset()),)

    def list_texts(self) -> Mapping[str, tuple[str, set[str]]]:
        return {self.name(name): (text, self.readers[name]) for name, text in self.texts.items()}

    def spec(self) -> dict[str, Any]:
        feed = {"kind": "json_lines", "name": "feed", "path": str(self.folder / "feed.jsonl")}
        spec = {name: value for name, value in self.workspace.spec().items() if name != "acl"}
        return {"kind": self.workspace.kind, **spec, **self.own_options, "permissions": feed}

    @property
    def own_options(self) -> dict[str, Any]:
        """Make the spec another one than in other histories: a worker keeps a source open."""
        return {"metadata": {"history": self.folder.name}}


class RowWorld(ExportWorld):
    """Rows that have their readers."""

    is_live = True

    def save(self) -> None:
        rows = [(name, json.dumps([f"user:{person}" for person in sorted(who)])) for name, who in self.readers.items()]
        with closing(sqlite3.connect(self.workspace.path / "kb.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS reader (id TEXT PRIMARY KEY, readers TEXT)")
            connection.executemany("INSERT OR REPLACE INTO reader VALUES (?, ?)", rows)

    def spec(self) -> dict[str, Any]:
        query = "SELECT * FROM article JOIN reader USING (id)"
        columns = {"query": query, "acl_column": "readers"}
        return {"kind": "sql", "name": "kb", "url_env": "KB_URL", **columns, **self.own_options}


def _access(site: ConfluenceSite | JiraSite, kind: str) -> dict[str, Any]:
    deployment = "cloud" if site.is_cloud else "data_center"
    return {"kind": kind, "name": "kb", "url": site.url, "token_env": "SITE_TOKEN", "deployment": deployment}


class Worlds:
    """Creates worlds of a kind, by servers that they share."""

    def __init__(
        self, kind: str, settings: IngestionSettings, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.name, _, self.variant = kind.partition(" ")
        self.settings, self.monkeypatch = settings, monkeypatch
        if self.name in ("git", "rclone") and shutil.which(self.name) is None:
            pytest.skip(f"{self.name} is not installed")
        if self.name == "s3":
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, "test")
            monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            self.endpoint = stack.enter_context(serve_s3())
        if self.name == "imap":
            self.mail = stack.enter_context(Dovecot.run())
            monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
            monkeypatch.setenv("SSL_CERT_FILE", str(self.mail.certificate))
        monkeypatch.setenv("SITE_TOKEN", TOKEN)

    @contextmanager
    def open(self, chance: random.Random, folder: Path) -> Iterator[World]:
        folder.mkdir()
        self.monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        self.monkeypatch.setenv("RCLONE_CONFIG", str(folder / "rclone.conf"))
        self.monkeypatch.setenv("KB_URL", f"sqlite:///{folder}/kb/kb.sqlite")
        with ExitStack() as stack:
            yield stack.enter_context(self._create(chance, folder, stack).open())

    def _create(self, chance: random.Random, folder: Path, stack: ExitStack) -> World:
        if self.name == "confluence":
            return ConfluenceWorld(chance, folder, is_cloud=self.variant == "cloud")
        if self.name == "jira":
            return JiraWorld(chance, folder, is_cloud=self.variant == "cloud")
        if self.name in ("site", "urls"):
            pages = {"site": SiteWorkspace, "urls": UrlsWorkspace}[self.name]
            server = stack.enter_context(Server.run())
            return ExportWorld(chance, folder, pages(folder, self.settings, server), server.url())
        if self.name == "imap":
            return ExportWorld(chance, folder, ImapWorkspace(folder, self.settings, self.mail), "imap://kb/INBOX/")
        if self.name == "s3":
            bucket = BucketWorkspace(folder, self.settings, self.endpoint)
            return ExportWorld(chance, folder, bucket, f"s3://{bucket.bucket.name}/")
        workspace, prefix = WORKSPACES[self.name]
        world = RowWorld if self.variant else ExportWorld
        return world(chance, folder, workspace(folder, self.settings), prefix)


class History:
    """Changes of a source, and passes of it and of its feed, in any order."""

    def __init__(self, world: World, engine: Engine, work: Work, collection: str) -> None:
        self.world, self.engine, self.work, self.collection = world, engine, work, collection
        self.scope = engine.tenant("acme", collection=collection)
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
        last = [self.run_pass] * max(1, self.world.gone_passes)
        for step in [*self.world.chance.choices(steps, k=STEPS), *last, self.run_feed]:
            step()
            self.check()
        if self.world.gone_passes:
            assert set(self.scope.sources()) <= self.world.list_texts().keys()
        texts = self.world.list_texts().values()
        expected = {name: {_read(text) for text, readers in texts if name in readers} for name in PEOPLE}
        current = {_read(text) for text, _ in texts}
        assert {name: set(self.read_as(name).values()) & current for name in PEOPLE} == expected

    def change(self) -> None:
        self.world.change()

    def load(self) -> None:
        """Load documents that are published later, as by a slow worker."""
        source = create_source(self.world.spec(), self.engine.settings.ingestion)
        for entry in source.listing():
            try:
                self.waiting.append(source.load(entry))
            except SourceError as error:
                assert error.code in ("gone", "not_found"), error  # noqa: PT017 — other errors fail the history
        self.world.chance.shuffle(self.waiting)

    def publish(self, count: int | None = None) -> None:
        count = self.world.chance.randint(0, len(self.waiting)) if count is None else count
        for document in self.waiting[:count]:
            report = self.scope.ingest([document])
            assert not report.failed, report.failed
        del self.waiting[:count]

    def run_pass(self) -> None:
        """Have a worker make a pass of the source, and one of its feed."""
        self.waiting.clear()
        self.scope.jobs.enqueue(self.world.spec())
        self.work()
        self.granted = self.list_readers()

    def run_feed(self) -> None:
        if feed := self.world.spec().get("permissions"):
            self.scope.sync_permissions(feed)
            self.granted = self.list_readers()

    def list_readers(self) -> dict[str, set[str]]:
        return {name: set(readers) for name, (_, readers) in self.world.list_texts().items()}

    def read_as(self, person: str) -> dict[str, str]:
        """Return the texts that a person reads, by document."""
        principals = self.world.principals(person)
        reader = self.engine.tenant("acme", collection=self.collection, principals=principals)
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
def settings(settings: Settings) -> Settings:
    return changed(settings, {"ingestion.urls.allowed_hosts": ["127.0.0.1"], "ingestion.urls.allow_private": True})


@pytest.mark.parametrize(
    "histories", [HISTORIES, pytest.param(MANY_HISTORIES, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("kind", KINDS)
def test_text__is_read_by_nobody_before_it_is_known_that_they_may(
    kind: str, histories: int, engine: Engine, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        worlds = Worlds(kind, engine.settings.ingestion, stack, monkeypatch)
        for seed in range(histories):
            with worlds.open(random.Random(f"{kind} {seed}"), tmp_path / str(seed)) as world:
                try:
                    History(world, engine, work, f"history-{seed}").run()
                except AssertionError as error:
                    raise AssertionError(f"history {seed} of {kind}: {error}") from error


def test_every_kind__has_histories() -> None:
    assert {kind.partition(" ")[0] for kind in KINDS} == SOURCES.keys()
