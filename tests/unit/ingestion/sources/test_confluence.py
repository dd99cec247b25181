"""Pages, comments and attachments of a Confluence, and who may read them."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import GONE, ConfigError, RequestError, SourceError
from kosmos_rag.ingestion.permission_feed import read_feed
from kosmos_rag.ingestion.sources import atlassian
from kosmos_rag.ingestion.sources.atlassian import AtlassianClient
from kosmos_rag.ingestion.sources.listing import Entry, Listing, Source
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.sources.spec import ConfluencePermissions, validate_feed
from tests.unit.ingestion.sources.atlassian_site import TOKEN, fail
from tests.unit.ingestion.sources.confluence_site import ConfluenceSite, Space

PREFIX = "confluence://kb/"
Readers = Callable[..., dict[str, tuple[str, ...]]]


@pytest.fixture(params=["cloud", "data_center"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfluenceSite]:
    monkeypatch.setenv("SITE_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(atlassian, "_WAITS_S", (0.01, 0.01))
    groups = {"staff": {"ann", "ben", "cem", "dora"}, "hr": {"ben", "dora"}, "leads": {"dora", "eve"}}
    with ConfluenceSite(is_cloud=request.param == "cloud", groups=groups).serve() as served:
        yield served


def _access(site: ConfluenceSite, **options: Any) -> dict[str, Any]:
    deployment = "cloud" if site.is_cloud else "data_center"
    return {"name": "kb", "url": site.url, "token_env": "SITE_TOKEN", "deployment": deployment, "spaces": ["ENG"],
            **options}  # fmt: skip


@pytest.fixture
def source(site: ConfluenceSite, ingestion: IngestionSettings) -> Callable[..., Source]:
    def create(**options: Any) -> Source:
        return create_source({"kind": "confluence", **_access(site), "acl": ["everyone"], **options}, ingestion)

    return create


@pytest.fixture
def readers(site: ConfluenceSite, ingestion: IngestionSettings) -> Readers:
    """Returns the acl of each document by a feed."""

    def read(**options: Any) -> dict[str, tuple[str, ...]]:
        feed = read_feed(validate_feed({"kind": "confluence", **_access(site, **options)}), ingestion)
        return {name.removeprefix(PREFIX): acl for name, acl in feed.resolve().items()}

    return read


def _list(source: Source) -> tuple[dict[str, Entry], Listing]:
    listing = source.listing()
    return {entry.source.removeprefix(PREFIX): entry for entry in listing}, listing


def test_page__is_read_with_its_comments_and_attachments(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    site.put("10", title="Leave", body="<p>Thirty days.</p>")
    site.put("20", type="comment", parent="10", body="<p>Since 2024?</p>")
    site.put("11", type="blogpost", title="News", body="<p>We moved.</p>")
    site.put("att7", type="attachment", parent="10", title="plan b.csv", data=b"a,b\n1,2\n")
    entries, listing = _list(source())
    assert listing.complete
    assert entries.keys() == {"10", "11", "10/att7/plan b.csv"}
    page = source().load(entries["10"])
    assert page.data == b"<p>Thirty days.</p><h2>Comments</h2><p>Ann &lt;b&gt;:</p><p>Since 2024?</p>"
    assert (page.title, page.media_type, page.metadata["space"]) == ("Leave", "text/html", "ENG")
    assert page.metadata["link"] == f"{site.url}/spaces/ENG/pages/10"
    assert source().load(entries["10/att7/plan b.csv"]).data == b"a,b\n1,2\n"
    assert source(comments=False).load(entries["10"]).data == b"<p>Thirty days.</p>"
    assert _list(source(attachments=False))[0].keys() == {"10", "11"}
    assert TOKEN not in json.dumps([dict(entry.locator) for entry in entries.values()])


def test_second_pass__asks_for_changes_alone(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    for number in range(10, 30):
        site.put(str(number), title=str(number)).modified -= 7200
    first, _ = _list(source())
    site.requests.clear()
    site.put("15", body="<p>New.</p>")
    site.put("90", type="comment", parent="17", body="<p>Hm.</p>")
    second, listing = _list(source())
    assert listing.complete
    assert len([path for path in site.requests if "search" in path]) == 2
    assert second.keys() == first.keys()
    assert {name for name in second if second[name].etag != first[name].etag} == {"15", "17"}


def test_second_pass__misses_what_was_deleted(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    site.spaces["OPS"] = Space(id="2")
    site.others = 5
    for number in range(10, 15):
        site.put(str(number), space="ENG" if number < 13 else "OPS").modified -= 7200
    site.put("20", type="comment", parent="10", body="<p>secret</p>").modified -= 7200
    site.put("att7", type="attachment", parent="11", title="a.txt", data=b"a").modified -= 7200
    opened = source(spaces=["ENG", "OPS"])
    first, _ = _list(opened)
    site.content["20"].status = "trashed"
    site.requests.clear()
    second, _ = _list(opened)
    assert {name for name in second if second[name].etag != first[name].etag} == {"10"}
    full = [path for path in site.requests if "content/search" in path and "lastmodified" not in path]
    assert all("ENG" in path for path in full if "cql" in path)
    assert full
    site.content["11"].status = site.content["att7"].status = "trashed"
    assert first.keys() - _list(opened)[0].keys() == {"11", "11/att7/a.txt"}
    site.requests.clear()
    _list(opened)
    assert all("lastmodified" in path for path in site.requests if "content/search" in path)


def test_page__that_is_deleted_while_a_space_is_listed_is_missed_by_the_next_pass(
    site: ConfluenceSite, source: Callable[..., Source]
) -> None:
    for number in range(10, 20):
        site.put(str(number)).modified -= 7200
    left = [2]

    def delete(path: str, parameters: Any) -> None:
        left[0] -= path.endswith("content/search")
        if left[0] == 0:
            site.content["10"].status = "trashed"

    site.faults.append(delete)
    assert "10" in _list(source())[0]
    assert "10" not in _list(source())[0]


@pytest.mark.parametrize("status", [200, 403, 404])
def test_site__that_counts_no_results_is_listed_at_intervals_alone(
    site: ConfluenceSite, source: Callable[..., Source], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(ConfluenceSite, "count", lambda site, *, parameters: {"results": []})
    if status != 200:
        site.faults.append(fail("rest/api/search", status=status))
    site.put("10")
    site.put("11").modified -= 7200
    assert _list(source())[0].keys() == {"10", "11"}
    site.content["10"].status = "trashed"
    assert _list(source())[0].keys() == {"10", "11"}
    assert _list(source(full_every_s=0))[0].keys() == {"11"}


@pytest.mark.parametrize("shift_s", [-50_000.0, 50_000.0])
def test_changes__are_found_by_a_site_with_another_clock(
    site: ConfluenceSite, source: Callable[..., Source], shift_s: float
) -> None:
    site.now_s = shift_s
    site.put("10", title="a")
    first, _ = _list(source())
    site.put("10", body="<p>New.</p>")
    assert _list(source())[0]["10"].etag != first["10"].etag


def test_pass__with_a_clock_that_went_back_lists_everything(
    site: ConfluenceSite, source: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put("10", title="a").modified -= 7200
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    _list(source())
    site.content["10"].version += 1
    monkeypatch.setattr(time, "time", lambda: now - 60)
    site.requests.clear()
    _list(source())
    assert not [path for path in site.requests if "lastmodified" in path]


def test_missing_page__is_removed_only_if_the_site_says_that_it_is_gone(
    site: ConfluenceSite, source: Callable[..., Source]
) -> None:
    site.spaces["OPS"] = Space(id="2")
    for number in range(10, 17):
        site.put(str(number), title=str(number))
    site.put("att7", type="attachment", parent="10", title="a.txt", data=b"a")
    site.put("att8", type="attachment", parent="10", title="b.txt", data=b"b")
    site.unindexed |= {"11", "att7"}
    site.content["12"].status = "trashed"
    site.content["13"].status = "archived"
    site.content["14"].space = "OPS"
    del site.content["15"], site.content["att8"]
    _, listing = _list(source(full_every_s=0))
    assert listing.complete
    names = ("10/att7/a.txt", "10/att8/b.txt", "10/att7/old name.txt", *map(str, range(11, 16)))
    removals = {name for name in names if listing.covers(PREFIX + name)}
    assert removals == {"10/att8/b.txt", "10/att7/old name.txt", "12", "13", "14", "15"}
    site.content["12"].status = "current"  # restored
    assert "12" in _list(source(full_every_s=0))[0]


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_missing_page__is_kept_while_the_site_does_not_answer(
    site: ConfluenceSite, source: Callable[..., Source], status: int
) -> None:
    site.put("10", title="a")
    _, listing = _list(source())
    site.faults.append(fail("pages/11|content/11", status=status))
    assert not listing.covers(f"{PREFIX}11")


def test_missing_page__is_kept_where_nothing_of_the_site_is_found(
    site: ConfluenceSite, source: Callable[..., Source]
) -> None:
    site.put("10", title="a")
    _, listing = _list(source())
    site.faults.append(fail(".", status=404))  # as a proxy answers without the site
    assert not listing.covers(f"{PREFIX}11")


def test_confirmations__are_bounded(
    site: ConfluenceSite, source: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kosmos_rag.ingestion.sources.atlassian_source.MAX_CONFIRMATIONS", 2)
    site.put("10", title="a")
    _, listing = _list(source())
    assert [listing.covers(f"{PREFIX}{number}") for number in range(20, 24)] == [True, True, False, False]


def test_confirmations__go_on_after_one_answer_of_another_form(
    site: ConfluenceSite, source: Callable[..., Source]
) -> None:
    site.put("10", title="a")
    _, listing = _list(source())
    site.faults.append(fail("pages/20|content/20", status=200))  # with an empty object
    assert not listing.covers(f"{PREFIX}20")
    assert listing.covers(f"{PREFIX}21")


def test_confirmations__end_at_the_first_without_an_answer(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    site.put("10", title="a")
    _, listing = _list(source())
    site.faults.append(fail("pages/20|content/20", status=503))
    assert listing.covers(f"{PREFIX}19")
    requests = len(site.requests)
    assert not listing.covers(f"{PREFIX}20")
    assert len(site.requests) > requests
    requests = len(site.requests)
    assert not listing.covers(f"{PREFIX}21")
    assert len(site.requests) == requests


def test_space__that_the_account_does_not_see_is_reported_and_removes_nothing(
    site: ConfluenceSite, source: Callable[..., Source]
) -> None:
    site.put("10", title="a")
    entries, listing = _list(source(spaces=["ENG", "HR"]))
    assert entries.keys() == {"10"}
    assert [(failure.source, failure.code) for failure in listing.failures] == [(f"{PREFIX}HR", "not_found")]
    assert listing.refusal_to_prune([f"{PREFIX}99"]) is not None
    site.spaces |= {"OPS": Space(id="2"), "~ann": Space(id="3", type="personal")}
    site.put("11", title="b", space="OPS")
    site.put("12", title="c", space="~ann")
    assert _list(source(spaces=[]))[0].keys() == {"10", "11"}


def test_half_a_listing__that_fails_removes_nothing(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    for number in range(10, 20):
        site.put(str(number), title=str(number))
    site.faults.append(fail("search.*(start=6|from-6)"))
    entries, listing = _list(source())
    assert not entries
    assert [failure.code for failure in listing.failures] == ["unavailable"]
    assert listing.refusal_to_prune([f"{PREFIX}10"]) is not None
    site.faults[:] = [fail("search.*(start=6|from-6)", times=1, status=429, Retry_After="0")]
    entries, listing = _list(source())
    assert (len(entries), listing.complete) == (10, True)


def test_token__that_loses_a_scope_in_the_middle_of_a_pass_removes_nothing(
    site: ConfluenceSite, source: Callable[..., Source], readers: Readers
) -> None:
    for number in range(10, 20):
        site.put(str(number), title=str(number))
    _list(source())
    site.faults.append(fail("search.*(start=6|from-6)", status=403))
    for _ in range(2):  # nothing of the half pass is kept
        entries, listing = _list(source(full_every_s=0))
        assert not entries
        assert [failure.code for failure in listing.failures] == ["no_permission"]
        assert listing.refusal_to_prune([f"{PREFIX}10"]) is not None
    with pytest.raises(SourceError):
        readers()  # a feed that ends early takes and gives nothing
    site.faults[:] = [fail("/permissions", status=403)]
    assert set(readers().values()) == {()}  # nobody, where the account may not ask who
    site.faults.clear()
    assert len(_list(source())[0]) == 10


def test_rate_limit__is_waited_for_up_to_a_minute(site: ConfluenceSite, ingestion: IngestionSettings) -> None:
    waits: list[float] = []
    site.put("10", title="a")
    site.faults.append(fail("search", times=2, status=429, Retry_After="7"))
    feed = validate_feed({"kind": "confluence", **_access(site)})
    assert isinstance(feed, ConfluencePermissions)
    client = AtlassianClient(feed, ingestion, sleep=waits.append)
    path = "rest/api/content/search"
    [page] = client.list_linked(path, cql="id = 10", expand="space", limit=5)
    assert (page["id"], waits) == ("10", [7.0, 7.0])
    site.faults[:] = [fail("search", status=429, Retry_After="3600")]
    with pytest.raises(SourceError, match="asks to wait 3600 s"):
        list(client.list_linked(path, cql="id = 10", expand="space", limit=5))


def test_expired_token__is_told_by_the_name_of_its_variable(
    site: ConfluenceSite, source: Callable[..., Source], readers: Readers
) -> None:
    site.put("10", title="a")
    entries, _ = _list(source())
    site.token = "another"
    _, listing = _list(source())
    [failure] = listing.failures
    assert (failure.source, failure.code) == (PREFIX, "no_permission")
    assert failure.message == f"{site.url} refuses the token in SITE_TOKEN; renew it"
    for ask in (readers, lambda: source().load(entries["10"])):
        with pytest.raises(SourceError, match="renew it") as caught:
            ask()
        assert TOKEN not in str(caught.value)


def test_account__that_the_site_does_not_know_is_refused(
    site: ConfluenceSite, source: Callable[..., Source], readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConfluenceSite, "get_account", lambda *_, **__: {"type": "anonymous"})
    assert _list(source())[1].failures[0].code == "no_permission"
    with pytest.raises(SourceError, match="renew it"):
        readers()


@pytest.mark.parametrize("reply", [[], {"results": 5}, {"results": [7]}, {"results": [{"id": 1}]}, "<html>"])
def test_answer__of_another_form_is_an_error_of_the_source(
    site: ConfluenceSite, source: Callable[..., Source], readers: Readers, monkeypatch: pytest.MonkeyPatch, reply: Any
) -> None:
    data = reply.encode() if isinstance(reply, str) else reply
    monkeypatch.setattr(ConfluenceSite, "search", lambda *_, **__: data)
    _, listing = _list(source())
    assert [failure.code for failure in listing.failures] == ["unavailable"]
    with pytest.raises(SourceError):
        readers()


def test_page__that_a_site_under_maintenance_does_not_show_is_tried_again(
    site: ConfluenceSite, source: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put("10", title="a")
    entries, _ = _list(source())
    monkeypatch.setattr(ConfluenceSite, "search", lambda *_, **__: b"<html>We are back soon</html>")
    with pytest.raises(SourceError) as caught:
        source().load(entries["10"])
    assert caught.value.retryable


def test_attachment__at_another_address_is_refused(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    site.put("10", title="a")
    entry = Entry(
        source=f"{PREFIX}10/att7/a.txt", etag=None,
        locator={"page": "10", "download": "https://elsewhere.example.org/a.txt"},
    )  # fmt: skip
    with pytest.raises(SourceError, match="another address"):
        source().load(entry)


def test_large_attachment__is_refused_before_it_is_read(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    site.put("10", title="a")
    site.put("att7", type="attachment", parent="10", title="a.txt", data=bytes(2 * 1024 * 1024))
    entries, listing = _list(source())
    assert entries.keys() == {"10"}
    assert [failure.code for failure in listing.failures] == ["too_large"]


def test_page__is_readable_by_those_who_meet_every_condition(site: ConfluenceSite, readers: Readers) -> None:
    site.put("10", title="open")
    site.put("11", title="hr", parent="10", groups={"hr"})
    site.put("12", title="below", parent="11")
    site.put("13", title="hr and leads", parent="12", groups={"leads"})
    site.put("14", title="one", parent="10", users={"cem"}, groups={"staff"})
    site.put("15", title="stranger", parent="10", users={"mallory"})
    site.put("16", title="one below", parent="14", users={"cem"})
    site.put("att1", type="attachment", parent="13", title="a.txt", data=b"a")
    ben, cem, dora = map(site.principal, ("ben", "cem", "dora"))
    both = tuple(sorted((ben, dora)))
    assert readers() == {
        "10": ("group:staff",),
        "11": both,
        "12": both,
        "13": (dora,),
        "13/att1/a.txt": (dora,),
        "14": ("group:staff",),
        "15": (),
        "16": (cem,),
    }


def test_group__that_each_condition_names_stays_a_group(site: ConfluenceSite, readers: Readers) -> None:
    site.spaces["ENG"] = Space(id="1", groups={"hr", "leads"}, users={"ann"})
    site.put("10", title="a", groups={"hr"}, users={"ann"})
    assert readers()["10"] == ("group:hr", site.principal("ann"))
    assert not [path for path in site.requests if "member" in path]


def test_members__that_the_account_may_not_list_are_nobody(site: ConfluenceSite, readers: Readers) -> None:
    site.put("10", title="a", groups={"hr"})
    site.faults.append(fail("member", status=403))
    assert readers()["10"] == ()


def test_members__that_cannot_be_listed_now_change_nothing(site: ConfluenceSite, readers: Readers) -> None:
    site.put("10", title="a", groups={"hr"})
    site.faults.append(fail("member", status=503))
    with pytest.raises(SourceError):
        readers()


def test_restriction__of_more_users_than_a_page_is_read_to_the_end(site: ConfluenceSite, readers: Readers) -> None:
    names = {f"user{number}" for number in range(8)}
    site.spaces["ENG"] = Space(id="1", groups=set(), users=names | {"ann"})
    site.put("10", title="a", users=names)
    assert set(readers()["10"]) == set(map(site.principal, names))


@pytest.mark.parametrize("counts_subjects", [True, False])
def test_restriction__to_users_that_the_account_does_not_see_leaves_nobody(
    site: ConfluenceSite, readers: Readers, counts_subjects: bool
) -> None:
    site.counts_subjects = counts_subjects
    site.put("10", title="a", users={"ann"})
    site.put("11", title="b", users={"ann", "ben"})
    site.put("12", title="c")
    site.hidden_subjects = {"ann"}
    assert readers() == {"10": (), "11": (site.principal("ben"),), "12": ("group:staff",)}


def test_ancestor__that_is_hidden_makes_the_page_unreadable(site: ConfluenceSite, readers: Readers) -> None:
    site.put("10", title="draft")
    site.put("11", title="below", parent="10")
    site.invisible.add("10")
    assert readers() == {"11": ()}


def test_ancestor__that_the_search_does_not_find_is_asked_for(site: ConfluenceSite, readers: Readers) -> None:
    site.put("10", title="late", groups={"hr"})
    site.put("11", title="below", parent="10")
    site.unindexed.add("10")
    assert readers() == {"11": tuple(sorted(map(site.principal, ("ben", "dora"))))}


def test_folder__restricts_the_pages_in_it(site: ConfluenceSite, readers: Readers) -> None:
    if not site.is_cloud:
        pytest.skip("Data Center has no folders")
    site.put("10", type="folder", groups={"leads"})
    site.put("11", title="below", parent="10")
    assert readers() == {"11": (site.principal("dora"),)}
    site.put("12", type="whiteboard")
    site.content["11"].parent = "12"
    assert readers() == {"11": ()}


def test_space__that_becomes_private_during_a_pass_is_private_after_it(site: ConfluenceSite, readers: Readers) -> None:
    for number in range(10, 20):
        site.put(str(number), title="a")

    def restrict(path: str, parameters: Any) -> None:
        if "start=6" in f"{path}{parameters}" or "from-6" in str(parameters):
            site.spaces["ENG"] = Space(id="1", groups=set(), users={"ann"})

    site.faults.append(restrict)
    site.faults.append(lambda path, parameters: restrict(path, "start=6") if "attachment" in str(parameters) else None)
    assert set(readers().values()) == {(site.principal("ann"),)}


def test_space__that_is_gone_has_no_readers(site: ConfluenceSite, readers: Readers) -> None:
    site.put("10", title="a")
    assert readers() == {"10": ("group:staff",)}
    del site.spaces["ENG"]
    assert readers() == {}


def test_page__that_moved_has_the_readers_of_its_new_space(site: ConfluenceSite, readers: Readers) -> None:
    site.spaces["OPS"] = Space(id="2", groups={"leads"})
    site.put("10", title="a")
    site.content["10"].space = "OPS"
    assert readers(spaces=["ENG", "OPS"]) == {"10": ("group:leads",)}
    assert readers() == {}


def test_anonymous_access__is_for_everyone_where_the_site_is_open(site: ConfluenceSite, readers: Readers) -> None:
    site.spaces["ENG"].anonymous = True
    site.put("10", title="a")
    assert readers() == {"10": ("group:staff",)}
    assert readers(signed_in=["group:wiki"]) == {"10": ("group:staff", "group:wiki")}
    site.is_public = True
    assert readers() == {"10": ("everyone",)}
    site.put("11", title="b", groups={"hr"})
    assert readers()["11"] == ("group:hr",)


def test_roles__of_the_cloud_let_their_groups_read(site: ConfluenceSite, readers: Readers) -> None:
    if not site.is_cloud:
        pytest.skip("Data Center has no roles")
    site.spaces["ENG"] = Space(id="1", groups=set(), roles={"viewer": {"hr"}, "writer": {"leads"}})
    site.put("10", title="a")
    assert readers() == {"10": ("group:hr",)}
    for status in (404, 400, 200):  # a site without roles, and one that answers in another form
        site.faults[:] = [fail("role-assignments", status=status)]
        assert readers() == {"10": ()}


def test_user__without_a_visible_address_is_no_reader(site: ConfluenceSite, readers: Readers) -> None:
    if not site.is_cloud:
        pytest.skip("Data Center names users")
    site.hidden_emails |= {"ann", "ben"}
    site.spaces["ENG"] = Space(id="1", groups=set(), users={"ann", "ben", "cem"})
    site.put("10", title="a")
    assert readers() == {"10": (site.principal("cem"),)}


def test_document__has_the_readers_of_the_time_when_it_was_loaded(
    site: ConfluenceSite, source: Callable[..., Source], ingestion: IngestionSettings
) -> None:
    site.put("10", title="a")
    site.put("11", title="b", parent="10")
    site.put("att1", type="attachment", parent="11", title="a.txt", data=b"a")
    feed = {"kind": "confluence", **_access(site)}
    opened = create_source({"kind": "confluence", **_access(site), "permissions": feed}, ingestion)
    entries, _ = _list(opened)
    assert {opened.load(entry).readers for entry in entries.values()} == {("group:staff",)}
    site.content["10"].groups = {"leads"}
    assert {opened.load(entry).readers for entry in entries.values()} == {(site.principal("dora"),)}
    site.spaces["ENG"] = Space(id="1", groups=set())
    assert {opened.load(entry).readers for entry in entries.values()} == {()}
    assert source().load(entries["10"]).readers is None


def test_names__of_a_space_are_asked_for_once_a_minute(
    site: ConfluenceSite, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not site.is_cloud:
        pytest.skip("Data Center names users and groups")
    site.spaces["ENG"] = Space(id="1", users={"ann", "ben"}, groups={"staff"}, roles={"viewer": {"hr", "leads"}})
    site.put("10", title="a")
    spec = {"kind": "confluence", **_access(site), "permissions": {"kind": "confluence", **_access(site)}}
    opened = create_source(spec, ingestion)
    entries, _ = _list(opened)
    for _ in range(2):
        assert opened.load(entries["10"]).readers == (
            "group:hr", "group:leads", "group:staff", site.principal("ann"), site.principal("ben"),
        )  # fmt: skip
    names = [path for path in site.requests if re.search("rest/api/(user[?]|group/by-id)", path)]
    assert (len(names), len(set(names))) == (5, 5)
    assert len([path for path in site.requests if "space-roles" in path]) == 4
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    site.hidden_emails.add("ann")
    assert site.principal("ann") not in (opened.load(entries["10"]).readers or ())


def test_document__that_left_the_spaces_is_not_loaded(site: ConfluenceSite, source: Callable[..., Source]) -> None:
    site.spaces |= {"HR": Space(id="2"), "~ann": Space(id="3", type="personal")}
    site.put("10", title="a")
    site.put("att1", type="attachment", parent="10", title="a.txt", data=b"a")
    entries, _ = _list(source())
    for space, spaces in (("HR", ["ENG"]), ("~ann", [])):
        site.put("10", space=space, body="salaries")
        for entry in entries.values():
            with pytest.raises(SourceError) as caught:
                source(spaces=spaces).load(entry)
            assert caught.value.code == GONE
    site.put("10", space="HR")
    assert source(spaces=[]).load(entries["10"]).data == b"salaries"


def test_document__that_opens_while_it_is_loaded_has_its_former_readers(
    site: ConfluenceSite, ingestion: IngestionSettings
) -> None:
    site.put("10", title="a", body="secret", users={"ann"})
    feed = {"kind": "confluence", **_access(site)}
    opened = create_source({"kind": "confluence", **_access(site), "permissions": feed}, ingestion)
    entries, _ = _list(opened)

    def open_page(path: str, parameters: Any) -> None:
        if "container" in str(parameters):
            site.put("10", body="public", users=set())

    site.faults.append(open_page)
    page = opened.load(entries["10"])
    assert (page.data, page.readers) == (b"secret", ())
    assert opened.load(entries["10"]).readers == ("group:staff",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://wiki.example.org"}, "it must begin with https://"),
        ({"url": "https://ann:secret@wiki.example.org"}, "must not contain a user or password"),
        ({"url": "https://wiki.example.org?os_authType=basic"}, "must not have a query"),
        ({"spaces": ['A" or type = "page']}, "spaces.0"),
        ({"token": "secret"}, "token is not a key of it"),
    ],
)
def test_spec__that_is_malformed_is_refused(
    source: Callable[..., Source], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        source(**options)


def test_spec__names_its_readers(site: ConfluenceSite, ingestion: IngestionSettings) -> None:
    with pytest.raises(RequestError, match="name the readers"):
        create_source({"kind": "confluence", **_access(site)}, ingestion)


def test_token__that_is_not_set_is_named(source: Callable[..., Source], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_TOKEN")
    with pytest.raises(ConfigError, match="SITE_TOKEN is not set"):
        source()


def test_host__that_is_not_allowed_is_refused(site: ConfluenceSite) -> None:
    opened = create_source({"kind": "confluence", **_access(site), "acl": ["everyone"]}, IngestionSettings())
    assert [failure.code for failure in _list(opened)[1].failures] == ["refused"]
    assert not site.requests
