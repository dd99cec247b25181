"""Web sites as sources, against a real server whose pages change between passes."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import ConfigError, SourceError
from kosmos_rag.ingestion.sources.listing import Listing
from kosmos_rag.ingestion.sources.site import SiteSource
from kosmos_rag.ingestion.sources.site_crawl import SiteSpec
from kosmos_rag.ingestion.sources.site_pages import normalize_url, read_page, read_sitemap
from tests.unit.ingestion.sources.web_server import Handler, Server


class Site:
    """A site on a server of its own."""

    def __init__(self, server: Server, settings: IngestionSettings) -> None:
        self._server, self._settings = server, settings
        self.root = f"http://127.0.0.1:{server.port}"
        self.waits: list[float] = []
        self._statuses: Counter[int] = Counter()

    def put(self, path: str, html: str, *, status: int = 200, media_type: str = "text/html", **headers: str) -> None:
        etag = f'"{hash(html)}"'

        def reply(handler: Handler) -> None:
            if status == 200 and handler.headers["If-None-Match"] == etag:
                self._statuses[304] += 1
                handler.send(304)
            else:
                self._statuses[status] += 1
                handler.send(status, html.encode(), Content_Type=media_type, ETag=etag, **headers)

        self._server.replies[path] = reply

    def remove(self, path: str) -> None:
        del self._server.replies[path]

    def open(self, **spec: Any) -> SiteSource:
        values = {"url": f"{self.root}/", "delay_s": 0, **spec}
        return SiteSource(SiteSpec.model_validate(values), self._settings, sleep=self.waits.append)

    def run(self, *, collection: str = "", **spec: Any) -> tuple[list[str], Listing]:
        listing = self.open(**spec).listing_for(collection)
        return sorted(entry.source.removeprefix(self.root) for entry in listing), listing

    def statuses(self) -> dict[int, int]:
        """The statuses of the pages since the last call."""
        statuses = dict(self._statuses)
        self._statuses.clear()
        return statuses

    def requests(self) -> list[str]:
        """The paths that were requested since the last call."""
        paths = [path for _, path, _ in self._server.requests]
        self._server.requests.clear()
        return paths


@pytest.fixture
def site(ingestion: IngestionSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A first page with links to two others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Server.run() as server:
        served = Site(server, ingestion)
        served.put("/", '<a href="/guide/a">A</a> <a href="guide/b?x=1#top">B</a> <a href="http://127.0.0.2/c">C</a>')
        served.put("/guide/a", '<a href="/">Home</a><p>Thirty days of leave.</p>')
        served.put("/guide/b?x=1", "<p>B</p>")
        yield served


def test_pages__are_found_by_their_links_on_this_host_alone(site: Site) -> None:
    site.run()
    names, listing = site.run()
    assert names == ["/", "/guide/a", "/guide/b?x=1"]
    assert listing.complete
    assert listing.covers(f"{site.root}/gone")
    assert not listing.covers("http://127.0.0.2/c")
    source = site.open()
    entry = next(entry for entry in source.listing() if entry.source.endswith("/guide/a"))
    assert b"Thirty days" in source.load(entry).data


def test_second_pass__reads_no_unchanged_page(site: Site) -> None:
    first = {entry.source: entry.etag for entry in site.open().listing()}
    site.put("/guide/a", "<p>Forty days of leave.</p>")
    site.statuses()
    second = {entry.source: entry.etag for entry in site.open().listing()}
    changed = {name.removeprefix(site.root) for name in second if second[name] != first[name]}
    assert changed == {"/guide/a"}
    assert site.statuses() == {200: 1, 304: 2}


def test_page_that_is_gone__is_removed_after_two_passes(site: Site) -> None:
    site.run()
    site.remove("/guide/a")
    assert site.run()[0] == ["/", "/guide/a", "/guide/b?x=1"]
    names, listing = site.run()
    assert names == ["/", "/guide/b?x=1"]
    assert listing.complete


def test_page_that_is_gone__is_not_missed_by_passes_with_other_patterns(site: Site) -> None:
    site.run()
    for _ in range(2):
        assert "/guide/a" not in site.run(exclude=["guide/a"])[0]
    site.remove("/guide/a")
    assert "/guide/a" in site.run()[0]


def test_page_that_is_gone__is_removed_after_two_passes_of_a_collection(site: Site) -> None:
    for collection in ("a", "b"):
        site.run(collection=collection)
    site.remove("/guide/a")
    assert ["/guide/a" in site.run(collection=name)[0] for name in ("a", "b", "a", "b")] == [True, True, False, False]


def test_page_that_is_gone__is_missed_by_passes_with_other_values(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cookie or a token is renewed, and what a document is called or who reads it is no other site."""
    headers: dict[str, Any] = {"headers_env": {"Cookie": "DOCS_COOKIE"}}
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    site.run(**headers)
    site.remove("/guide/a")
    monkeypatch.setenv("DOCS_COOKIE", "session=2")
    assert "/guide/a" in site.run(**headers, acl=["hr"], delay_s=0.001)[0]
    assert "/guide/a" not in site.run(**headers)[0]


def _lead(site: Site, path: str, target: str) -> None:
    site._server.replies[path] = lambda handler: handler.send(302, Location=target)


def test_page_that_moves__is_removed_after_two_passes(site: Site) -> None:
    site.put("/guide/new", "<p>Leave</p>")
    site.run()
    _lead(site, "/guide/a", "/guide/new")
    assert [site.run()[0] for _ in range(2)] == [
        ["/", "/guide/a", "/guide/b?x=1"],
        ["/", "/guide/b?x=1", "/guide/new"],
    ]


@pytest.mark.parametrize("status", [302, 401])
def test_login__that_has_expired_removes_nothing_and_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Many sites answer without a session by the page of their login, and others refuse all pages."""
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    login: dict[str, Any] = {"headers_env": {"Cookie": "DOCS_COOKIE"}}
    site.put("/login", "<p>Sign in</p>")
    pages = site.run(**login)[0]
    replies = dict(site._server.replies)
    for path in ("/", "/sitemap.xml", "/guide/a", "/guide/b?x=1"):
        site._server.replies[path] = lambda handler: handler.send(status, Location="/login")
    for _ in range(3):
        listing = site.run(**login)[1]
        assert not listing.complete
        assert listing.error is not None
        assert (listing.error.code, listing.name) == ("no_permission", f"{site.root}/")
    site._server.replies.clear()
    site._server.replies.update(replies)
    names, listing = site.run(**login)
    assert (names, listing.complete) == (pages, True)


_LOGIN: dict[str, Any] = {"headers_env": {"Cookie": "DOCS_COOKIE"}}
_ASKS = '<form><input name="user"><input type="password" name="p"></form>'
_HIDDEN = ("/guide/a", "/guide/b?x=1")


def _expire(site: Site, form: str, paths: Iterable[str]) -> None:
    for path in paths:
        if form == "same":
            site.put(path, f"{path} {_ASKS}")
        else:
            site.put(f"/login?next={quote(path, safe='')}", form)
            _lead(site, path, f"/login?next={quote(path, safe='')}")


@pytest.mark.parametrize("form", ["<p>Sign in by your company</p>", _ASKS, "same"])
@pytest.mark.parametrize("paths", [_HIDDEN, ("/", *_HIDDEN)])
def test_login__that_has_expired_behind_a_public_page_removes_and_changes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, form: str, paths: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    pages = site.run(**_LOGIN)[0]
    etags = {entry.source: entry.etag for entry in site.open(**_LOGIN).listing()}
    replies = dict(site._server.replies)
    _expire(site, form, paths)
    for _ in range(3):
        listing = site.open(**_LOGIN).listing()
        assert {entry.source: entry.etag for entry in listing}.items() <= etags.items()
        assert not listing.complete
        assert {failure.code for failure in listing.failures} == {"no_permission"}
    site._server.replies.clear()
    site._server.replies.update(replies)
    names, listing = site.run(**_LOGIN)
    assert (names, listing.complete) == (pages, True)


@pytest.mark.parametrize("form", ["<p>Sign in by your company</p>", _ASKS])
@pytest.mark.parametrize("paths", [_HIDDEN, ("/", "/sitemap.xml", *_HIDDEN)])
def test_login__that_has_expired_before_the_first_pass_of_a_worker_removes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, form: str, paths: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    _expire(site, form, paths)
    for _ in range(3):
        listing = site.run(**_LOGIN)[1]
        assert not (listing.complete and listing.covers(f"{site.root}/guide/a"))


def test_first_page__that_leads_elsewhere_at_each_release_is_followed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    passes = []
    for version in (1, 1, 2, 2, 3, 3):
        site.put(f"/v{version}/", f'<a href="/guide/a">A</a> <a href="/guide/v{version}">new</a>')
        site.put(f"/guide/v{version}", f"<p>{version}</p>")
        _lead(site, "/", f"/v{version}/")
        names, listing = site.run(**_LOGIN)
        assert listing.complete
        passes.append(names)
    assert passes[1] == ["/guide/a", "/guide/v1", "/v1/"]
    assert passes[2] == ["/guide/a", "/guide/v1", "/guide/v2", "/v1/"]
    assert {"/v2/", "/guide/v2"} <= set(passes[3])
    assert {"/v3/", "/guide/v3"} <= set(passes[5])


@pytest.mark.parametrize("form", ["<p>Sign in by your company</p>", "same"])
def test_load__of_a_page_that_is_a_login_since_it_was_listed_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    source = site.open(**_LOGIN)
    entries = {entry.source.removeprefix(site.root): entry for entry in source.listing()}
    assert source.load(entries["/"]).data
    _expire(site, form, _HIDDEN)
    with pytest.raises(SourceError, match="another page than when it was listed") as caught:
        source.load(entries["/guide/a"])
    assert caught.value.code == "unavailable"


@pytest.mark.parametrize("box", ["", _ASKS])
def test_page_with_a_password_field__is_a_document_where_it_or_the_first_page_always_had_one(
    site: Site, monkeypatch: pytest.MonkeyPatch, box: str
) -> None:
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    site.put("/", f'<a href="/guide/a">A</a> <a href="/guide">B</a> {box}')
    site.put("/guide/b?x=1", f"<p>B</p>{box}")
    _lead(site, "/guide", "/guide/b?x=1")
    for text in ("", "changed"):
        site.put("/guide/a", _ASKS + text)
        names, listing = site.run(**_LOGIN)
        assert (names, listing.complete) == (["/", "/guide/a", "/guide/b?x=1"], True)
    source = site.open(**_LOGIN)
    assert all(source.load(entry).data for entry in source.listing())


def test_first_pass__and_those_after_incomplete_ones_remove_nothing(site: Site, tmp_path: Path) -> None:
    site.run()
    [state] = (tmp_path / "cache" / "kosmos-rag" / "sites").iterdir()
    state.unlink()
    site.remove("/guide/a")
    page = site._server.replies["/guide/b?x=1"]
    site.put("/guide/b?x=1", "", status=503)
    for replies in (None, page):
        _, listing = site.run()
        assert (listing.complete, listing.covers(f"{site.root}/guide/a")) == (replies is not None, False)
        site._server.replies["/guide/b?x=1"] = page
    assert site.run()[1].covers(f"{site.root}/guide/a")


def test_state__that_no_pass_uses_any_more_is_removed(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "kosmos-rag" / "sites"
    ages = {"a": 91, "b": 89, "": 91}
    for collection, days in ages.items():
        before = set(folder.glob("*"))
        site.run(collection=collection)
        [state] = set(folder.glob("*")) - before
        os.utime(state, (time.time() - days * 86400,) * 2)
    site.run()
    assert len(list(folder.iterdir())) == 2
    site.remove("/guide/a")
    assert "/guide/a" in site.run(collection="b")[0]
    assert "/guide/a" not in site.run(collection="b")[0]


def test_passes_of_two_collections__read_a_site_at_once(site: Site) -> None:
    first, second = site.open().listing(), site.open().listing()
    names = [[entry.source for entry in pair] for pair in zip(first, second, strict=True)]
    assert len(names) == 3
    assert first.complete
    assert second.complete


@pytest.mark.parametrize("keeps_head", [False, True])
def test_state__that_is_broken_is_made_again(site: Site, tmp_path: Path, *, keeps_head: bool) -> None:
    expected = site.run()[0]
    [state] = (tmp_path / "cache" / "kosmos-rag" / "sites").iterdir()
    state.write_bytes((state.read_bytes()[:4096] if keeps_head else b"") + b"no pages" * 600)
    for _ in range(2):
        names, listing = site.run()
        assert (names, listing.complete) == (expected, True)


def test_state__that_cannot_be_kept_is_a_failure_with_its_place(site: Site, tmp_path: Path) -> None:
    (tmp_path / "cache" / "kosmos-rag").mkdir(parents=True)
    (tmp_path / "cache" / "kosmos-rag" / "sites").write_text("a file")
    names, listing = site.run()
    assert names == []
    assert "let this user write there" in listing.failures[0].message
    assert listing.refusal_to_prune(["x"]) is not None


def test_page_that_returns__is_kept(site: Site) -> None:
    site.run()
    site.remove("/guide/a")
    site.run()
    site.put("/guide/a", "<p>again</p>")
    site.run()
    site.remove("/guide/a")
    assert "/guide/a" in site.run()[0]


def test_page_that_cannot_be_read__makes_the_pass_incomplete(site: Site) -> None:
    site.run()
    site.put("/guide/a", "busy", status=503)
    for _ in range(3):
        names, listing = site.run()
        assert [failure.code for failure in listing.failures] == ["unavailable"]
        assert listing.refusal_to_prune(["x"]) is not None
    assert names == ["/", "/guide/b?x=1"]
    site.put("/", "busy", status=503)
    for _ in range(3):
        assert site.run()[0] == []
    site.put("/", '<a href="/guide/a">A</a> <a href="/guide/b?x=1">B</a>')
    site.remove("/guide/a")
    assert "/guide/a" in site.run()[0]  # missing for the first time


def test_robots__are_followed(site: Site) -> None:
    site.put("/robots.txt", "User-agent: kosmos-rag\nDisallow: /guide/a\nCrawl-delay: 2\n", media_type="text/plain")
    names, _ = site.run()
    assert names == ["/", "/guide/b?x=1"]
    assert set(site.waits) == {2.0}
    assert "/guide/a" not in site.requests()


def test_robots__that_cannot_be_read_end_the_pass(site: Site) -> None:
    site.put("/robots.txt", "busy", status=503)
    names, listing = site.run()
    assert names == []
    assert [failure.code for failure in listing.failures] == ["unavailable"]
    assert site.requests() == ["/robots.txt"]


def test_sitemaps__name_pages_that_no_link_leads_to(site: Site) -> None:
    site.put("/robots.txt", f"Sitemap: {site.root}/index.xml\n", media_type="text/plain")
    site.put("/index.xml", f"<sitemapindex><sitemap><loc>{site.root}/pages.xml</loc></sitemap></sitemapindex>")
    site.put("/pages.xml", f"<urlset><url><loc>{site.root}/island</loc></url></urlset>")
    site.put("/island", "<p>island</p>")
    assert "/island" in site.run()[0]
    assert "/island" not in site.run(sitemaps=False, max_depth=3, exclude=["island"])[0]


def test_sitemaps__in_a_circle_end(site: Site) -> None:
    site.put("/sitemap.xml", f"<sitemapindex><sitemap><loc>{site.root}/sitemap.xml</loc></sitemap></sitemapindex>")
    assert len(site.run()[0]) == 3
    assert site.requests().count("/sitemap.xml") == 1


def test_patterns__decide_what_is_a_document_and_what_is_requested(site: Site) -> None:
    assert site.run(include=["guide/"])[0] == ["/guide/a", "/guide/b?x=1"]
    site.requests()
    assert site.run(exclude=["guide/b"])[0] == ["/", "/guide/a"]
    assert "/guide/b?x=1" not in site.requests()


def test_limits__end_the_pass(site: Site) -> None:
    for number in range(50):
        site.put(f"/chain/{number}", f'<a href="/chain/{number + 1}">next</a>')
    site.put("/", '<a href="/chain/0">chain</a>')
    assert len(site.run(max_depth=4)[0]) == 5
    assert len(site.run(max_pages=7)[0]) >= 7


def test_rules_of_pages__are_followed(site: Site) -> None:
    site.put("/guide/a", '<meta name="robots" content="noindex"><a href="/hidden">x</a>')
    site.put("/hidden", '<link rel="canonical" href="/guide/b?x=1"><a rel="nofollow" href="/never">x</a>')
    assert site.run()[0] == ["/", "/guide/b?x=1"]
    assert "/never" not in site.requests()


def test_headers__go_to_the_host_and_to_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCS_AUTHORIZATION", "Bearer secret")
    received: dict[str, str | None] = {}
    with Server.run() as other:

        def note(handler: Handler) -> None:
            received[handler.path] = handler.headers["Authorization"]
            handler.send(200, b"<p>x</p>", Content_Type="text/html")

        def redirect(handler: Handler) -> None:
            received[handler.path] = handler.headers["Authorization"]
            handler.send(302, Location=f"http://127.0.0.1:{other.port}/other")

        other.replies["/other"] = note
        site._server.replies["/guide/a"] = redirect
        names, listing = site.run(headers_env={"Authorization": "DOCS_AUTHORIZATION"})
    assert received == {"/guide/a": "Bearer secret", "/other": None}
    assert names == ["/", "/guide/b?x=1"]
    assert listing.complete


def test_source__needs_its_variable_and_its_extra(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="DOCS_TOKEN is not set"):
        site.open(headers_env={"Authorization": "DOCS_TOKEN"})
    monkeypatch.setitem(sys.modules, "protego", None)
    with pytest.raises(ConfigError, match=r"kosmos-rag\[site\]"):
        site.open()


def test_host__that_is_not_allowed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = SiteSource(SiteSpec.model_validate({"url": "https://docs.example.org/"}), IngestionSettings())
    listing = source.listing()
    assert list(listing) == []
    assert [failure.code for failure in listing.failures] == ["refused"]


def test_site_of_500_pages__is_followed_from_pass_to_pass(site: Site) -> None:
    links = "".join(f'<a href="/p/{number}">{number}</a>' for number in range(500))
    site.put("/", links)
    for number in range(500):
        site.put(f"/p/{number}", f"<p>Page {number}</p>")
    first = {entry.source: entry.etag for entry in site.open().listing()}
    assert len(first) == 501
    for number in range(0, 500, 50):
        site.put(f"/p/{number}", f"<p>Page {number} is new</p>")
    for number in range(1, 500, 100):
        site.remove(f"/p/{number}")
    second = {entry.source: entry.etag for entry in site.open().listing()}
    assert sum(second[name] != first[name] for name in second) == 10
    assert len(second) == 501
    assert len(site.run()[0]) == 496


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://Example.org:80", "http://example.org/"),
        ("https://example.org:8443/a?b=1#c", "https://example.org:8443/a?b=1"),
        ("http://[::1]:80/x", "http://[::1]/x"),
    ],
)
def test_normalize_url__has_one_form(url: str, normal: str) -> None:
    assert normalize_url(url) == normal


def test_read_page__of_broken_links_and_other_types() -> None:
    html = b'<base href="/d/"><a href="x">1</a><a href="http://[broken">2</a><a href="mailto:a@b">3</a><a>4</a>'
    content = read_page(html, "http://h/a", media_type="text/html")
    assert content.links == ("http://h/d/x",)
    assert read_page(html, "http://h/a.pdf", media_type="application/pdf").links == ()


@pytest.mark.parametrize("body", [b"<urlset", b'<!DOCTYPE x [<!ENTITY a "b">]><urlset>&a;</urlset>', b"\x1f\x8bbroken"])
def test_read_sitemap__names_what_is_malformed(body: bytes) -> None:
    with pytest.raises(SourceError, match=r"the sitemap http://h/s\.xml is malformed"):
        read_sitemap(body, "http://h/s.xml")


def test_read_sitemap__of_text_is_a_list() -> None:
    assert read_sitemap(b"http://h/a\n\nnot an address\nhttps://h/b\n", "http://h/s.txt").pages == (
        "http://h/a", "https://h/b",
    )  # fmt: skip
