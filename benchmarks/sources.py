"""Measure a second pass over unchanged documents of each kind of source.

    python -m benchmarks.sources [--documents N] [--kinds KIND ...] [--json FILE] [--quick]

Each kind has the documents at a real place: a folder, a bucket of moto, a local web server, a table of PostgreSQL, a
mailbox of Dovecot; Confluence and Jira are the servers of the tests. They are stored as after a first pass, and a
worker's handler then makes the second pass. CPU seconds are those of this
process and of the programs that it runs, without the servers. Read are the bytes of files, and what Python receives
from sockets: of a server of HTTP without a change the heads of its answers. The documents have two kilobytes each.
"""

import json
import logging
import multiprocessing
import os
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks.command import command, parse, temporary_folder, write_results
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, Chunk, Space
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.sources.listing import CountingSource, Entry
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import PreparedDocument, publish
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.tenants import SpaceStore, TenantRef
from kosmos_rag.worker.channel import SupervisorChannel
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.unit.ingestion.sources.atlassian_site import TOKEN
from tests.unit.ingestion.sources.confluence_site import ConfluenceSite
from tests.unit.ingestion.sources.dovecot import PASSWORD, Dovecot
from tests.unit.ingestion.sources.jira_site import JiraSite

BATCH = 2000
PATH = f"{os.environ['PATH']}:/usr/sbin"
GOAL_CPU_S = 10.0
"""Of 10,000 documents."""


def _text(number: int) -> str:
    return f"Page {number} says something about churn. " * 50


def _write_files(folder: Path, count: int) -> Path:
    """Write the documents as files, a hundred in each folder."""
    for number in range(count):
        path = folder / f"part-{number // 100}" / f"page-{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(number))
    return folder


class Places:
    """Creates the places of documents, and their specs."""

    def __init__(self, folder: Path, admin: str, count: int) -> None:
        self._folder = folder
        self._admin = admin
        self._count = count
        self._processes: list[Any] = []
        self._table: dict[str, Any] | None = None
        self._servers = ExitStack()
        os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "BENCH_TOKEN": TOKEN, "BENCH_PASSWORD": PASSWORD}

    def confluence(self) -> dict[str, Any]:
        """Serve a Confluence of the cloud."""
        return {**self._serve_site("confluence"), "spaces": ["ENG"]}

    def jira(self) -> dict[str, Any]:
        """Serve a Jira of the cloud."""
        return {**self._serve_site("jira"), "projects": ["ENG"]}

    def _serve_site(self, kind: str) -> dict[str, Any]:
        address = self._serve(_serve_atlassian, kind, self._count)
        access = {"url": address, "token_env": "BENCH_TOKEN", "deployment": "cloud", "acl": [EVERYONE]}
        return {"kind": kind, "name": "bench", **access}

    def imap(self) -> dict[str, Any]:
        """Create a mailbox."""
        server = self._servers.enter_context(Dovecot.run())
        os.environ["SSL_CERT_FILE"] = str(server.certificate)
        user = server.add_user()
        with server.log_in(user) as connection:
            for number in range(self._count):
                connection.append("INBOX", "", "", f"Subject: {number}\r\n\r\n{_text(number)}".encode())
        address = {"host": "localhost", "port": server.port, "user": user, "password_env": "BENCH_PASSWORD"}
        return {"kind": "imap", "name": "bench", **address, "acl": [EVERYONE]}

    def urls(self) -> dict[str, Any]:
        """Serve pages, and list their addresses."""
        address = self._serve(_serve_site, self._count)
        return {"kind": "urls", "urls": [f"{address}/page-{number}" for number in range(self._count)]}

    def folder(self) -> dict[str, Any]:
        """Create a folder."""
        return {"kind": "folder", "path": str(_write_files(self._folder / "files", self._count))}

    def git(self) -> dict[str, Any]:
        """Create a repository with one commit."""
        path = _write_files(self._folder / "repository", self._count)
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
        for arguments in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "pages"]):
            subprocess.run(["git", "-C", str(path), *arguments], check=True)
        return {"kind": "git", "name": "bench", "url": str(path)}

    def json_lines(self) -> dict[str, Any]:
        """Create a file of JSON Lines."""
        path = self._folder / "pages.jsonl"
        with path.open("w") as file:
            for number in range(self._count):
                file.write(json.dumps({"id": number, "text": _text(number)}) + "\n")
        return {"kind": "json_lines", "path": str(path)}

    def rclone(self) -> dict[str, Any]:
        """Create a folder, which rclone reads as a remote."""
        path = _write_files(self._folder / "remote", self._count)
        os.environ |= {"RCLONE_CONFIG_BENCH_TYPE": "alias", "RCLONE_CONFIG_BENCH_REMOTE": str(path)}
        return {"kind": "rclone", "name": "bench", "remote": "bench:", "acl": [EVERYONE]}

    def s3(self) -> dict[str, Any]:
        """Create a bucket."""
        address = self._serve(_serve_s3)
        os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
        import boto3

        bucket = boto3.resource("s3", endpoint_url=address).Bucket("bench")
        bucket.create()
        for number in range(self._count):
            bucket.put_object(Key=f"page-{number}.txt", Body=_text(number).encode())
        return {"kind": "s3", "bucket": "bench", "endpoint_url": address}

    def site(self) -> dict[str, Any]:
        """Serve a site with a sitemap."""
        address = self._serve(_serve_site, self._count)
        return {"kind": "site", "url": f"{address}/", "max_pages": self._count + 10, "delay_s": 0.0}

    def sql(self) -> dict[str, Any]:
        """Create a table."""
        with psycopg.connect(self._admin, autocommit=True) as connection:
            connection.execute("CREATE DATABASE bench_source")
        conninfo = psycopg.conninfo.make_conninfo(self._admin, dbname="bench_source")
        with psycopg.connect(conninfo) as connection:
            connection.execute("CREATE TABLE page (id integer PRIMARY KEY, body text, changed_at timestamptz)")
            with connection.cursor() as cursor, cursor.copy("COPY page FROM STDIN") as copy:
                for number in range(self._count):
                    copy.write_row((number, _text(number), datetime(2026, 1, 1, tzinfo=UTC)))
        fields = psycopg.conninfo.conninfo_to_dict(conninfo)
        password = f":{fields['password']}" if fields.get("password") else ""
        query = f"?host={fields['host']}&port={fields['port']}"
        os.environ["BENCH_SOURCE_URL"] = f"postgresql://{fields['user']}{password}@/bench_source{query}"
        self._table = {
            "kind": "sql",
            "name": "bench",
            "url_env": "BENCH_SOURCE_URL",
            "query": "SELECT id, body, changed_at FROM page",
            "text_column": "body",
        }
        return self._table

    def sql_version(self) -> dict[str, Any]:
        """Read the table of `sql` by its version column."""
        return {**(self._table or self.sql()), "name": "versions", "version_column": "changed_at"}

    def close(self) -> None:
        """End the servers."""
        self._servers.close()
        for process in self._processes:
            process.kill()

    def _serve(self, serve: Callable[..., None], *arguments: Any) -> str:
        parent_end, child_end = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(child_end, *arguments), daemon=True)
        process.start()
        self._processes.append(process)
        address: str = parent_end.recv()
        return address


def _serve_s3(parent: Connection) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's own
        from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    parent.send(f"http://{host}:{port}")
    time.sleep(86400)


def _serve_atlassian(parent: Connection, kind: str, count: int) -> None:
    site = (
        JiraSite(is_cloud=True, max_results=100) if kind == "jira" else ConfluenceSite(is_cloud=True, max_results=200)
    )
    for number in range(count):
        if isinstance(site, JiraSite):
            site.put(str(number), summary="Page", description=_text(number)).updated -= 7200
        else:
            site.put(str(number), title="Page", body=_text(number)).modified -= 7200
    with site.serve():
        parent.send(site.url)
        time.sleep(86400)


def _serve_site(parent: Connection, count: int) -> None:
    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are sent apart: one would wait for the other

        def do_GET(self) -> None:
            if self.headers.get("if-none-match") == '"1"':
                self.send_response(304)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            status, kind, body = _answer(self.path, f"http://{self.headers['host']}", count)
            self.send_response(status)
            for name, value in (("content-type", kind), ("etag", '"1"'), ("content-length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 — as the base class has it

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    parent.send(f"http://127.0.0.1:{server.server_address[1]}")
    server.serve_forever()


def _answer(path: str, address: str, count: int) -> tuple[int, str, bytes]:
    if path == "/sitemap.xml":
        pages = "".join(f"<url><loc>{address}/page-{number}</loc></url>" for number in range(count))
        schema = "http://www.sitemaps.org/schemas/sitemap/0.9"
        return 200, "application/xml", f'<urlset xmlns="{schema}">{pages}</urlset>'.encode()
    if path == "/robots.txt":
        return 404, "text/plain", b""
    return 200, "text/html", f"<h1>{path}</h1><p>{_text(len(path))}</p>".encode()


def _store(engine: Engine, owner: TenantRef, entries: list[tuple[Entry, str | None]]) -> None:
    """Store the documents as a first pass does, without reading them."""
    worker, now = engine.database.worker, datetime.now(UTC)
    # The first document of a tenant creates its embedding space.
    engine.tenant(owner.name).ingest(SourceDocument(source="first", data=b"first"))
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        space = SpaceStore(connection, owner.id).find_live()
    assert space is not None
    documents = (_prepare(owner, entry, etag, space) for entry, etag in entries)
    while batch := list(islice(documents, BATCH)):
        with worker.transaction(owner.id, [EVERYONE]) as connection:
            publish(connection, owner.id, batch, collection=DEFAULT_COLLECTION, now=now, events=EventBuffer())


def _prepare(owner: TenantRef, entry: Entry, etag: str | None, space: Space) -> PreparedDocument:
    vector = np.ones((1, space.dimensions), dtype=np.float32) / np.sqrt(space.dimensions)
    return PreparedDocument(
        id=document_id(owner.id, DEFAULT_COLLECTION, entry.source), version_id=uuid.uuid4(), source=entry.source,
        title="Page", media_type="text/plain", language="english", metadata={}, acl=(EVERYONE,),
        content_hash="0" * 64, fingerprint="0" * 64, bytes=4, text="Page", pages=(),
        chunks=[
            Chunk(
                chunk_index=0, start=0, end=4, text="Page", section=(), line_start=1, line_end=1, page_start=None,
                page_end=None, tokens=1, chunker="bench",
            )
        ],
        embedded=["Page"], analysed=["Page"], vectors={space.id: vector}, source_etag=etag,
    )  # fmt: skip


def _read_messages(parent_end: Connection) -> None:
    """Read the messages of a channel, which waits where nobody does."""
    with suppress(EOFError, OSError):
        while True:
            parent_end.recv()


class Worker:
    """Runs the jobs of the queue in this process."""

    def __init__(self, engine: Engine) -> None:
        parent_end, child_end = multiprocessing.Pipe()
        # The channel ends the process where this end is closed, and the interpreter closes it early.
        os.dup(parent_end.fileno())
        threading.Thread(target=_read_messages, args=(parent_end,), daemon=True).start()
        self._queue = Queue.open(engine.database, engine.settings.worker)
        self._channel = SupervisorChannel(child_end, self._queue)
        self._runner = EngineJobRunner(engine)

    def run(self) -> None:
        """Run jobs until there are none."""
        while self._queue.count_unfinished(kinds.INGESTION):
            self._runner.run(self._queue.claim(64, kinds=kinds.INGESTION, worker="bench"), self._channel)

    def close(self) -> None:
        """Wait for the documents of jobs."""
        self._runner.close()


@contextmanager
def _measure(figures: dict[str, Any]) -> Iterator[None]:
    cpu_s, read, began = _cpu_s(), _read_bytes(), time.perf_counter()
    yield
    figures["seconds"] = round(time.perf_counter() - began, 1)
    figures["cpu_s"] = round(_cpu_s() - cpu_s, 2)
    figures["read_mb"] = round((_read_bytes() - read) / 1e6, 1)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of the programs that it has run."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _read_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]) + _received[0]


_received = [0]


def _count_received(receive: Callable[..., int]) -> Callable[..., int]:
    def count(*arguments: Any) -> int:
        size = receive(*arguments)
        _received[0] += size
        return size

    return count


def _measure_kind(engine: Engine, worker: Worker, name: str, spec: Mapping[str, Any], count: int) -> dict[str, Any]:
    tenant = engine.tenant(f"bench-{name.replace('_', '-')}")
    owner = TenantRef(id=tenant.id, name=tenant.name)
    processor = engine.ingest_pipeline.load_processor(owner, DEFAULT_COLLECTION)
    source = create_source(spec, engine.settings.ingestion)
    # A source that counts passes keeps what it knows by collection, as a pass of the worker names it.
    passes_of = f"{tenant.id}/{DEFAULT_COLLECTION}"
    listing = source.listing_for(passes_of) if isinstance(source, CountingSource) else source.listing()
    entries = [(entry, processor.compute_etag(entry)) for entry in listing]
    assert listing.complete, listing.failures[:3]
    _store(engine, owner, entries)
    figures: dict[str, Any] = {"documents": len(entries)}
    tenant.jobs.enqueue(spec)
    with _measure(figures):
        worker.run()
    (run,) = tenant.jobs.runs()
    figures |= {"unchanged": run.unchanged, "loaded": len(tenant.jobs.find(kinds=[kinds.DOCUMENT]))}
    figures["goal"] = round(GOAL_CPU_S * count / 10_000, 2)
    print(f"{name:<12}{figures['documents']:>8,} documents {figures['cpu_s']:>7.2f} CPU s "
          f"{figures['read_mb']:>8.1f} MB read {figures['loaded']:>6,} loaded", flush=True)  # fmt: skip
    return figures


KINDS = (
    "confluence",
    "folder",
    "git",
    "imap",
    "jira",
    "json_lines",
    "rclone",
    "s3",
    "site",
    "urls",
    "sql",
    "sql_version",
)
PROGRAMS = {"git": "git", "imap": "dovecot", "rclone": "rclone"}
"""What the place of a kind needs."""


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "sources.json")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments = parse(parser, documents=30)
    folder = temporary_folder()
    for kind in (socket.socket, ssl.SSLSocket):
        setattr(kind, "recv_into", _count_received(kind.recv_into))  # noqa: B010 — mypy refuses the assignment
    settings = Settings.load(
        overrides={
            "database.data_dir": str(folder / "database"),
            "ingestion.urls.allowed_hosts": ["127.0.0.1"],
            "ingestion.urls.allow_private": True,
        }
    )
    figures: dict[str, Any] = {}
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        places, worker = Places(folder, engine.database.admin_conninfo, arguments.documents), Worker(engine)
        try:
            for name in arguments.kinds:
                if (program := PROGRAMS.get(name)) and shutil.which(program, path=PATH) is None:
                    print(f"{name:<12} skipped: {program} is absent", flush=True)
                    continue
                spec = getattr(places, name)()
                figures[name] = _measure_kind(engine, worker, name, spec, arguments.documents)
        finally:
            places.close()
            worker.close()
    write_results(arguments.json, {"documents": arguments.documents, "kinds": figures})


if __name__ == "__main__":
    main()
