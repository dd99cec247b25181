"""Issues, comments and attachments of a Jira, and who may read them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import GONE, RequestError, SourceError
from kosmos_rag.ingestion.permission_feed import read_feed
from kosmos_rag.ingestion.sources import atlassian
from kosmos_rag.ingestion.sources.listing import Entry, Listing, Source
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.sources.spec import validate_feed
from tests.unit.ingestion.sources.atlassian_site import TOKEN, fail
from tests.unit.ingestion.sources.jira_site import JiraSite

PREFIX = "jira://kb/"
Readers = Callable[..., dict[str, tuple[str, ...]]]


@pytest.fixture(params=["cloud", "data_center"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JiraSite]:
    monkeypatch.setenv("SITE_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(atlassian, "_WAITS_S", (0.01, 0.01))
    groups = {"staff": {"ann", "ben", "cem"}, "hr": {"ben", "dora"}}
    with JiraSite(is_cloud=request.param == "cloud", groups=groups).serve() as served:
        yield served


def _access(site: JiraSite, **options: Any) -> dict[str, Any]:
    deployment = "cloud" if site.is_cloud else "data_center"
    return {"name": "kb", "url": site.url, "token_env": "SITE_TOKEN", "deployment": deployment, "projects": ["ENG"],
            **options}  # fmt: skip


@pytest.fixture
def source(site: JiraSite, ingestion: IngestionSettings) -> Callable[..., Source]:
    def create(**options: Any) -> Source:
        return create_source({"kind": "jira", **_access(site), "acl": ["everyone"], **options}, ingestion)

    return create


@pytest.fixture
def readers(site: JiraSite, ingestion: IngestionSettings) -> Readers:
    """Returns the acl of each document by a feed."""

    def read(**options: Any) -> dict[str, tuple[str, ...]]:
        feed = read_feed(validate_feed({"kind": "jira", **_access(site, **options)}), ingestion)
        return {name.removeprefix(PREFIX): acl for name, acl in feed.resolve().items()}

    return read


def _list(source: Source) -> tuple[dict[str, Entry], Listing]:
    listing = source.listing()
    return {entry.source.removeprefix(PREFIX): entry for entry in listing}, listing


def test_issue__is_read_with_the_comments_that_all_its_readers_see(
    site: JiraSite, source: Callable[..., Source]
) -> None:
    site.put(
        "10", summary="It rains", description="<p>Since noon.</p>", status="Open", labels=("wind",),
        files={"5": ("log ä.txt", b"drip")},
        comments=[
            {"renderedBody": "<p>Still.</p>"},
            {"renderedBody": "<p>for a role</p>", "visibility": {"type": "role", "value": "Developers"}},
            {"renderedBody": "<p>internal</p>", "internal": True},
            {"renderedBody": "<p>to the customer</p>", "internal": False},
            {"renderedBody": "<p>on the next page</p>"},
        ],
    )  # fmt: skip
    entries, listing = _list(source())
    assert listing.complete
    assert entries.keys() == {"10", "10/5/log ä.txt"}
    issue = source().load(entries["10"])
    author = "<p>ann:</p>"
    assert issue.data.decode() == (
        f"<p>Open, wind</p><p>Since noon.</p><h2>Comments</h2>{author}<p>Still.</p>{author}<p>to the customer</p>"
        f"{author}<p>on the next page</p>"
    )
    assert (issue.title, issue.metadata["link"]) == ("ENG-10 It rains", f"{site.url}/browse/ENG-10")
    assert source().load(entries["10/5/log ä.txt"]).data == b"drip"
    assert source(comments=False).load(entries["10"]).data == b"<p>Open, wind</p><p>Since noon.</p>"


def test_comment__of_a_service_desk_is_read_if_the_site_says_that_customers_see_it(
    site: JiraSite, source: Callable[..., Source]
) -> None:
    site.project_type = "service_desk"
    comments = [{"renderedBody": "a", "internal": True}, {"renderedBody": "b", "internal": False}]
    site.put("10", summary="It rains", comments=[*comments, {"renderedBody": "c"}])
    entries, _ = _list(source())
    author = "<p>ann:</p>"
    expected = f"<h2>Comments</h2>{author}b" + (f"{author}c" if site.is_cloud else "")
    assert source().load(entries["10"]).data.decode() == expected


def test_second_pass__asks_for_changes_alone(site: JiraSite, source: Callable[..., Source]) -> None:
    for number in range(10, 30):
        site.put(str(number), summary=str(number)).updated -= 7200
    first, _ = _list(source())
    site.requests.clear()
    site.put("15", summary="new")
    second, listing = _list(source())
    assert listing.complete
    assert len([path for path in site.requests if "search" in path]) == (1 if site.is_cloud else 2)
    assert {name for name in second if second[name].etag != first[name].etag} == {"15"}
    assert second.keys() == first.keys()
    del site.issues["16"]
    assert first.keys() - _list(source())[0].keys() == (set() if site.is_cloud else {"16"})


def test_missing_issue__is_removed_only_if_the_site_says_that_it_is_gone(
    site: JiraSite, source: Callable[..., Source]
) -> None:
    site.projects["OPS"] = []
    for number in range(10, 16):
        site.put(str(number), summary=str(number))
    site.issues["10"].files = {"5": ("a.txt", b"a")}
    site.unindexed.add("11")
    site.issues["12"].archived = True
    site.issues["13"].project = "OPS"
    del site.issues["14"]
    _, listing = _list(source(full_every_s=0))
    names = ("10/5/a.txt", "10/6/b.txt", *map(str, range(11, 15)))
    assert {name for name in names if listing.covers(PREFIX + name)} == {"10/6/b.txt", "12", "13", "14"}
    site.faults.append(fail("issue/14", status=403))
    _, listing = _list(source(full_every_s=0))
    assert not listing.covers(f"{PREFIX}14")
    site.faults.clear()
    _, listing = _list(source(full_every_s=0))
    site.faults.append(fail(".", status=404))  # as a proxy answers without the site
    assert not listing.covers(f"{PREFIX}14")


def test_listing__that_ends_early_is_incomplete(site: JiraSite, source: Callable[..., Source]) -> None:
    if site.is_cloud:
        pytest.skip("the cloud counts no results")
    for number in range(10, 20):
        site.put(str(number), summary=str(number))
    site.drops = 2
    _, listing = _list(source())
    assert "ends after 8 of 10 results" in listing.failures[0].message


def test_half_a_listing__that_fails_removes_nothing(site: JiraSite, source: Callable[..., Source]) -> None:
    for number in range(10, 20):
        site.put(str(number), summary=str(number))
    half = "search.*(startAt=6|at-6)"
    site.faults.append(fail(half))
    _, listing = _list(source())
    assert listing.refusal_to_prune([f"{PREFIX}10"]) is not None
    site.faults[:] = [fail(half, times=1, status=429, Retry_After="0")]
    assert len(_list(source())[0]) == 10


def test_token__that_loses_a_scope_in_the_middle_of_a_pass_removes_nothing(
    site: JiraSite, source: Callable[..., Source], readers: Readers
) -> None:
    for number in range(10, 20):
        site.put(str(number), summary=str(number))
    _list(source())
    site.faults.append(fail("search.*(startAt=6|at-6)", status=403))
    entries, listing = _list(source(full_every_s=0))
    assert not entries
    assert [failure.code for failure in listing.failures] == ["no_permission"]
    assert listing.refusal_to_prune([f"{PREFIX}10"]) is not None
    with pytest.raises(SourceError):
        readers()
    site.faults[:] = [fail("permissionscheme", status=403)]
    assert set(readers().values()) == {()}
    site.faults.clear()
    assert len(_list(source())[0]) == 10


@pytest.mark.parametrize("shift_s", [-50_000.0, 50_000.0])
def test_changes__are_found_by_a_site_with_another_clock(
    site: JiraSite, source: Callable[..., Source], shift_s: float
) -> None:
    site.now_s = shift_s
    site.put("10", summary="a")
    first, _ = _list(source())
    site.put("10", summary="b")
    assert _list(source())[0]["10"].etag != first["10"].etag


def test_expired_token__is_told_by_the_name_of_its_variable(
    site: JiraSite, source: Callable[..., Source], readers: Readers
) -> None:
    site.token = "another"
    _, listing = _list(source())
    assert [failure.code for failure in listing.failures] == ["no_permission"]
    assert "refuses the token in SITE_TOKEN; renew it" in listing.failures[0].message
    with pytest.raises(SourceError, match="SITE_TOKEN"):
        readers()


def test_project__that_the_account_does_not_see_is_reported(
    site: JiraSite, source: Callable[..., Source], readers: Readers
) -> None:
    site.put("10", summary="a")
    entries, listing = _list(source(projects=["ENG", "HR"]))
    assert entries.keys() == {"10"}
    assert [(failure.source, failure.code) for failure in listing.failures] == [(f"{PREFIX}HR", "not_found")]
    del site.projects["ENG"]
    assert readers() == {}


def test_issue__is_readable_by_who_may_browse_the_project(site: JiraSite, readers: Readers) -> None:
    site.projects["ENG"] = [
        {"type": "group", "name": "staff"}, {"type": "user", "name": "eve"}, {"type": "projectRole", "name": "3"},
        {"type": "projectLead"}, {"type": "reporter"}, {"type": "applicationRole", "name": "jira"},
        {"type": "applicationRole"}, {"type": "userCustomField", "name": "10"}, {"type": "sd.customer.portal.only"},
    ]  # fmt: skip
    site.roles["3"] = {"fay"}, {"testers"}
    site.put("10", summary="a", reporter="gus", assignee="hal", files={"5": ("a.txt", b"a")})
    expected = {"group:staff", "group:testers", "group:jira-users", *map(site.principal, ("eve", "fay", "lead", "gus"))}
    assert set(readers()["10"]) == set(readers()["10/5/a.txt"]) == expected
    assert set(readers(signed_in=["group:all"])["10"]) == {*expected, "group:all"}


def test_anyone__is_everyone_where_the_site_is_open(site: JiraSite, readers: Readers) -> None:
    site.projects["ENG"] = [{"type": "anyone"}]
    site.put("10", summary="a")
    assert readers() == {"10": ()}
    site.anonymous.add("ENG")
    assert readers() == {"10": ("everyone",)}


def test_security_level__narrows_the_readers(site: JiraSite, readers: Readers) -> None:
    site.levels = {"9": [{"type": "group", "name": "hr"}, {"type": "reporter"}], "8": [{"type": "assignee"}]}
    site.put("10", summary="a", level="9", reporter="cem")
    site.put("11", summary="b", level="8", assignee="ann")
    site.put("12", summary="c", level="7")
    site.put("13", summary="d")
    acls = readers()
    assert acls["13"] == ("group:staff",)
    if site.is_cloud:
        assert acls["10"] == tuple(sorted(map(site.principal, ("ben", "cem"))))
        assert (acls["11"], acls["12"]) == ((site.principal("ann"),), ())
    else:  # its REST API does not list who is in a level
        assert acls["10"] == acls["11"] == acls["12"] == ()


@pytest.mark.parametrize(
    ("restriction", "is_restricted"),
    [
        ({"issuerestrictions": {}, "shouldDisplay": True}, False),
        ({"issuerestrictions": {"projectrole": []}, "shouldDisplay": True}, False),
        ({"issuerestrictions": {"projectrole": [{"id": "10002"}]}, "shouldDisplay": True}, True),
        ({"restrictions": ["10002"]}, True),
    ],
)
def test_issue__that_a_team_managed_project_restricts_has_no_readers(
    site: JiraSite, readers: Readers, restriction: dict[str, Any], is_restricted: bool
) -> None:
    site.put("10", summary="a", restriction=restriction)
    assert readers() == {"10": () if is_restricted else ("group:staff",)}


def test_level__that_the_search_does_not_show_yet_narrows_the_readers(site: JiraSite, readers: Readers) -> None:
    if not site.is_cloud:
        pytest.skip("Data Center updates its index with the issue")
    site.levels = {"9": [{"type": "user", "name": "cem"}]}
    for number in range(10, 18):
        site.indexed[str(number)] = replace(site.put(str(number), summary="a"))
    site.put("10", level="9")
    site.issues["11"].project = "OPS"
    del site.issues["12"]
    acls = readers()
    assert (acls["10"], acls["13"]) == ((site.principal("cem"),), ("group:staff",))
    assert acls.keys() == {"10", *map(str, range(13, 18))}
    site.projects["OPS"] = []
    acls = readers()
    assert acls["11"] == ()
    site.faults.append(fail("bulkfetch", times=1, status=429, Retry_After="0"))
    assert readers() == acls
    site.faults[:] = [fail("bulkfetch", status=400)]
    with pytest.raises(SourceError):
        readers()


def test_scheme__that_the_account_may_not_read_makes_issues_unreadable(site: JiraSite, readers: Readers) -> None:
    site.put("10", summary="a")
    site.faults.append(fail("permissionscheme", status=403))
    assert readers() == {"10": ()}
    site.faults[:] = [fail("permissionscheme", status=503)]
    with pytest.raises(SourceError):
        readers()


def test_project__that_becomes_private_during_a_pass_is_private_after_it(site: JiraSite, readers: Readers) -> None:
    for number in range(10, 20):
        site.put(str(number), summary="a")

    def restrict(path: str, parameters: Any) -> None:
        if "search" in path:
            site.projects["ENG"] = [{"type": "user", "name": "ann"}]

    site.faults.append(restrict)
    assert set(readers().values()) == {(site.principal("ann"),)}


def test_document__has_the_readers_of_the_time_when_it_was_loaded(site: JiraSite, ingestion: IngestionSettings) -> None:
    site.put("10", summary="a", files={"5": ("a.txt", b"a")})
    spec = {"kind": "jira", **_access(site), "permissions": {"kind": "jira", **_access(site)}}
    opened = create_source(spec, ingestion)
    entries, _ = _list(opened)
    assert {opened.load(entry).readers for entry in entries.values()} == {("group:staff",)}
    site.issues["10"].level = "9"
    assert {opened.load(entry).readers for entry in entries.values()} == {()}


def test_document__that_left_the_projects_is_not_loaded(site: JiraSite, source: Callable[..., Source]) -> None:
    site.put("10", summary="a", files={"5": ("a.txt", b"a")})
    entries, _ = _list(source())
    site.projects["HR"] = []
    site.put("10", project="HR", description="salaries")
    for entry in entries.values():
        with pytest.raises(SourceError) as caught:
            source().load(entry)
        assert caught.value.code == GONE


def test_document__that_opens_while_it_is_loaded_has_its_former_readers(
    site: JiraSite, ingestion: IngestionSettings
) -> None:
    site.put("10", summary="a", description="secret", level="9")
    spec = {"kind": "jira", **_access(site), "permissions": {"kind": "jira", **_access(site)}}
    opened = create_source(spec, ingestion)
    entries, _ = _list(opened)

    def open_issue(path: str, parameters: Any) -> None:
        if path.endswith("/comment"):
            site.put("10", description="public", level=None)

    site.faults.append(open_issue)
    issue = opened.load(entries["10"])
    assert (issue.data, issue.readers) == (b"secret", ())
    assert opened.load(entries["10"]).readers == ("group:staff",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projects": []}, "projects"),
        ({"projects": ['A" or project = "B']}, "projects.0"),
        ({"url": "http://jira.example.org"}, "must begin with https://"),
    ],
)
def test_spec__that_is_malformed_is_refused(
    source: Callable[..., Source], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        source(**options)
