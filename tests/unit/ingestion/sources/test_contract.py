"""The contract of sources, run for each kind of the package."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.ingestion.sources.folder import FolderSource, FolderSpec
from kosmos_rag.ingestion.sources.listing import Source
from kosmos_rag.ingestion.sources.registry import KINDS, create_source
from kosmos_rag.ingestion.sources.testing import SourceContract, Workspace
from tests.unit.ingestion.sources.atlassian_site import TOKEN, fail
from tests.unit.ingestion.sources.confluence_site import ConfluenceSite
from tests.unit.ingestion.sources.dovecot import PASSWORD, Dovecot
from tests.unit.ingestion.sources.jira_site import JiraSite
from tests.unit.ingestion.sources.test_git import Work
from tests.unit.ingestion.sources.web_server import Handler, Server


class FolderWorkspace(Workspace):
    """Files of a folder."""

    kind = "folder"

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        self.folder, self.settings = folder, settings
        self.path = folder / "kb"
        self.path.mkdir()

    def put(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def spec(self) -> dict[str, object]:
        return {"path": str(self.path)}

    def open(self, **options: object) -> Source:
        return create_source({"kind": self.kind, **self.spec(), **options}, self.settings)

    def disconnect(self) -> bool:
        shutil.rmtree(self.path)
        return True


class GitWorkspace(FolderWorkspace):
    """Commits of a repository."""

    kind = "git"

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        self.folder, self.settings, self.path = folder, settings, folder / "kb"
        self.work = Work(self.path)

    def put(self, name: str, text: str) -> None:
        self.work.commit({name: text})

    def remove(self, name: str) -> None:
        super().remove(name)
        self.work.git("add", "--all")
        self.work.git("commit", "--quiet", "--allow-empty", "--message", "remove")

    def spec(self) -> dict[str, object]:
        return {"name": "kb", "url": str(self.path)}


class RcloneWorkspace(FolderWorkspace):
    """Files behind an alias of rclone."""

    kind = "rclone"

    def spec(self) -> dict[str, object]:
        (self.folder / "rclone.conf").write_text(f"[drive]\ntype = alias\nremote = {self.path}\n")
        return {"name": "kb", "remote": "drive:", "acl": ["everyone"]}


class JsonLinesWorkspace(FolderWorkspace):
    """Lines of a file."""

    kind = "json_lines"

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        super().__init__(folder, settings)
        self.rows: dict[str, str] = {}

    def put(self, name: str, text: str) -> None:
        self._write({**self.rows, name: text})

    def remove(self, name: str) -> None:
        self._write({key: text for key, text in self.rows.items() if key != name})

    def _write(self, rows: dict[str, str]) -> None:
        self.rows = rows
        lines = (json.dumps({"id": key, "text": text}) for key, text in rows.items())
        (self.path / "faq.jsonl").write_text("\n".join(lines) + "\n")

    def spec(self) -> dict[str, object]:
        return {"path": str(self.path / "faq.jsonl")}


class SqlWorkspace(FolderWorkspace):
    """Rows of a table."""

    kind = "sql"

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        super().__init__(folder, settings)
        self._execute("CREATE TABLE article (id TEXT PRIMARY KEY, text TEXT)")

    def put(self, name: str, text: str) -> None:
        self._execute("INSERT OR REPLACE INTO article VALUES (?, ?)", name, text)

    def remove(self, name: str) -> None:
        self._execute("DELETE FROM article WHERE id = ?", name)

    def _execute(self, statement: str, *values: str) -> None:
        with sqlite3.connect(self.path / "kb.sqlite") as connection:
            connection.execute(statement, values)
        connection.close()

    def spec(self) -> dict[str, object]:
        return {"name": "kb", "url_env": "KB_URL", "query": "SELECT * FROM article"}


class SiteWorkspace(FolderWorkspace):
    """Pages of a site with a list of them."""

    kind = "site"
    gone_passes = 2

    def __init__(self, folder: Path, settings: IngestionSettings, server: Server) -> None:
        super().__init__(folder, settings)
        self.server = server
        self.down = False

    def put(self, name: str, text: str) -> None:
        self.server.replies[f"/{quote(name)}"] = lambda handler: self._reply(handler, text.encode(), "text/markdown")
        self._list()

    def remove(self, name: str) -> None:
        del self.server.replies[f"/{quote(name)}"]
        self._list()

    def _list(self) -> None:
        names = [name for name in self.server.replies if name != "/"]
        html = "".join(f'<a href="{name}">x</a>' for name in names)
        page = f'<meta name="robots" content="noindex">{html}'.encode()
        self.server.replies["/"] = lambda handler: self._reply(handler, page, "text/html")

    def _reply(self, handler: Handler, body: bytes, media_type: str) -> None:
        handler.send(503 if self.down else 200, body, Content_Type=media_type)

    def spec(self) -> dict[str, object]:
        return {"url": self.server.url(), "delay_s": 0}

    def disconnect(self) -> bool:
        self.down = True
        return True


class ImapWorkspace(FolderWorkspace):
    """Mails of a mailbox."""

    kind = "imap"
    immutable = True

    def __init__(self, folder: Path, settings: IngestionSettings, server: Dovecot) -> None:
        super().__init__(folder, settings)
        self.server, self.user, self.port = server, server.add_user(), server.port
        self.uids: dict[str, bytes] = {}

    def put(self, name: str, text: str) -> None:
        if name in self.uids:
            self.remove(name)
        with self.server.log_in(self.user) as connection:
            _, [reply] = connection.append("INBOX", "", "", text.encode())
            self.uids[name] = reply.split()[2].rstrip(b"]")

    def remove(self, name: str) -> None:
        with self.server.log_in(self.user) as connection:
            connection.select("INBOX")
            connection.uid("STORE", self.uids[name].decode(), "+FLAGS", r"(\Deleted)")
            connection.expunge()

    def spec(self) -> dict[str, object]:
        address = {"host": "localhost", "port": self.port, "user": self.user, "password_env": "MAIL_PASSWORD"}
        return {"name": "kb", **address, "acl": ["everyone"]}

    def disconnect(self) -> bool:
        self.port = 9
        return True


class AtlassianWorkspace(FolderWorkspace):
    """Pages of a Confluence, or issues of a Jira."""

    def __init__(self, folder: Path, settings: IngestionSettings, site: ConfluenceSite | JiraSite) -> None:
        super().__init__(folder, settings)
        self.site = site
        self.kind = "confluence" if isinstance(site, ConfluenceSite) else "jira"
        self.ids: dict[str, str] = {}

    def put(self, name: str, text: str) -> None:
        identifier = self.ids.setdefault(name, str(len(self.ids) + 10))
        if isinstance(self.site, ConfluenceSite):
            self.site.put(identifier, title=name, body=text)
        else:
            self.site.put(identifier, summary=name, description=text)

    def remove(self, name: str) -> None:
        if isinstance(self.site, ConfluenceSite):
            self.site.content[self.ids[name]].status = "trashed"
        else:
            del self.site.issues[self.ids[name]]

    def spec(self) -> dict[str, object]:
        selected = {"spaces": ["ENG"]} if self.kind == "confluence" else {"projects": ["ENG"]}
        deployment = "cloud" if self.site.is_cloud else "data_center"
        access = {"name": "kb", "url": self.site.url, "token_env": "SITE_TOKEN", "deployment": deployment, **selected}
        return {**access, "full_every_s": 0, "acl": ["everyone"]}

    def disconnect(self) -> bool:
        self.site.faults.append(fail("/search", status=400))
        return True


SITES: dict[str, Callable[[], ConfluenceSite | JiraSite]] = {
    "confluence": lambda: ConfluenceSite(is_cloud=True),
    "confluence of a data center": ConfluenceSite,
    "jira": lambda: JiraSite(is_cloud=True),
    "jira of a data center": JiraSite,
}
WORKSPACES = {
    kind.kind: kind for kind in (FolderWorkspace, GitWorkspace, RcloneWorkspace, JsonLinesWorkspace, SqlWorkspace)
}
COVERED_ELSEWHERE = {"s3": "test_s3.py, with a server of its own", "urls": "a list, which lists no removal"}


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot.run() as server:
        yield server


@pytest.mark.parametrize("kind", [*WORKSPACES, *SITES, "imap", "site"])
class TestKinds(SourceContract):
    """Each kind keeps the contract."""

    @pytest.fixture
    def workspace(
        self,
        kind: str,
        tmp_path: Path,
        ingestion: IngestionSettings,
        monkeypatch: pytest.MonkeyPatch,
        request: pytest.FixtureRequest,
    ) -> Iterator[Workspace]:
        if kind in ("git", "rclone") and shutil.which(kind) is None:
            pytest.skip(f"{kind} is not installed")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "rclone.conf"))
        monkeypatch.setenv("KB_URL", f"sqlite:///{tmp_path}/kb/kb.sqlite")
        if kind == "site":
            with Server.run() as server:
                yield SiteWorkspace(tmp_path, ingestion, server)
        elif kind in SITES:
            monkeypatch.setenv("SITE_TOKEN", TOKEN)
            with SITES[kind]().serve() as site:
                yield AtlassianWorkspace(tmp_path, ingestion, site)
        elif kind == "imap":
            server = request.getfixturevalue("dovecot")
            monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
            monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
            yield ImapWorkspace(tmp_path, ingestion, server)
        else:
            yield WORKSPACES[kind](tmp_path, ingestion)


def test_every_kind__is_under_the_contract_or_says_why_not() -> None:
    covered = {kind.partition(" ")[0] for kind in (*WORKSPACES, *SITES, "imap", "site", *COVERED_ELSEWHERE)}
    assert covered == KINDS.keys()


def test_source_modules__add_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_sources.py").write_text(
        "from kosmos_rag.ingestion.sources.folder import FolderSource, FolderSpec\n"
        "SOURCES = {'acme': (FolderSpec, FolderSource)}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = IngestionSettings(source_modules=("acme_sources",))
    spec = FolderSpec(path=tmp_path).model_dump(mode="json", exclude={"kind"})
    with pytest.raises(RequestError, match="kind is"):
        create_source({"kind": "acme", **spec}, settings)
    with pytest.raises(RequestError, match="must be one of acme, confluence, folder, git"):
        create_source({"kind": "other"}, settings)
    assert isinstance(create_source({"kind": "folder", "path": str(tmp_path)}, settings), FolderSource)


@pytest.mark.parametrize("module", ["no_such_module", "json"])
def test_source_modules__that_have_no_sources_are_named(module: str) -> None:
    with pytest.raises(ConfigError, match=f"names {module}, which has no SOURCES"):
        create_source({"kind": "acme"}, IngestionSettings(source_modules=(module,)))
