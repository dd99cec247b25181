"""Filters: what they compile to, and what is refused with its place, its value and a remedy."""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from kosmos_rag.apps.cli.search import SearchOptions
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, compile_filter


def _condition(where: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    values = compile_filter(Filter(where=where))
    return values["condition"], values["condition_values"].obj


def _refusal(where: Any) -> str:
    with pytest.raises(RequestError) as caught:
        compile_filter(Filter(where=where))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_compile_filter__of_nothing_switch_the_conditions_off() -> None:
    values = compile_filter(Filter())
    assert not values["filtered"]
    assert (values["sources"], values["folders"]) == ([], [])
    assert (values["condition"], values["condition_values"].obj) == (None, {})


def test_compile_filter__escape_folders_for_like() -> None:
    values = compile_filter(Filter(sources=("/a_b%/", "c\\d")))
    assert values["filtered"]
    assert values["sources"] == ["/a_b%/", "c\\d"]
    assert values["folders"] == [r"/a\_b\%/%", r"c\\d/%"]


def test_compile_filter__hold_the_values_and_the_predicate_only_their_names() -> None:
    assert _condition({"title": "A", "metadata.year": {"$gte": 2024, "$lt": 2026}}) == (
        '($."title" == $v0 && $."metadata"."year" >= $v1 && $."metadata"."year" < $v2)',
        {"v0": "A", "v1": 2024, "v2": 2026},
    )


@pytest.mark.parametrize(
    ("where", "predicate"),
    [
        ({"$or": [{"title": "A"}, {"source": "B"}]}, '((($."title" == $v0) || ($."source" == $v1)))'),
        ({"$and": [{"title": "A"}, {"source": "B"}]}, '((($."title" == $v0) && ($."source" == $v1)))'),
        ({"$not": {"title": "A"}}, '(!exists($ ? (($."title" == $v0))))'),
        ({"title": {"$ne": "A"}}, '(!exists($ ? ($."title" == $v0)))'),
        ({"title": {"$in": ["A", "B"]}}, '($."title" == $v0[*])'),
        ({"title": {"$nin": {"A"}}}, '(!exists($ ? ($."title" == $v0[*])))'),
        ({"metadata.a.b": {"$exists": True}}, '(exists($."metadata"."a"."b"))'),
        ({"metadata.a": {"$exists": False}}, '(!exists($ ? (exists($."metadata"."a"))))'),
        ({"metadata.a": {"$empty": True}}, '(!exists($ ? (exists($."metadata"."a"[*] ? (@ != null)))))'),
        ({"title": {"$contains": 'a"b.'}}, '($."title" like_regex "a\\"b." flag "q")'),
        ({"title": {"$icontains": "É 1."}}, '($."title" like_regex "[\\u00c9\\u00e9] 1\\\\.")'),
        ({"title": {"$starts_with": "A"}}, '($."title" starts with $v0)'),
        ({"title": {"$ends_with": "[a]$"}}, '($."title" like_regex "\\\\[a\\\\]\\\\$$")'),
        ({'metadata.a" == 1 || "': 1}, '($."metadata"."a\\" == 1 || \\"" == $v0)'),
    ],
)
def test_compile_filter__compile(where: dict[str, Any], predicate: str) -> None:
    assert _condition(where)[0] == predicate


@pytest.mark.parametrize("value", ["sales", {"$eq": "sales"}])
def test_department__is_a_reader(value: Any) -> None:
    assert _condition({"department": value}) == ('($."acl" == $v0)', {"v0": "department:sales"})


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 1, 31), "2026-01-31T00:00:00.000000Z"),
        (datetime(2026, 1, 31, 1, 2, 3), "2026-01-31T01:02:03.000000Z"),
        (datetime(2026, 1, 31, 1, 0, 0, 5, EAST), "2026-01-30T23:00:00.000005Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
        ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
        ("2026-01-31T01:00+02:00", "2026-01-30T23:00:00.000000Z"),
        ("2026-01-31T01:00:00.5Z", "2026-01-31T01:00:00.500000Z"),
    ],
)
def test_times__become_one_text_in_utc(value: Any, text: str) -> None:
    assert _condition({"updated_at": {"$gte": value}})[1] == {"v0": text}


def test_times__without_an_offset_in_their_zone_are_utc() -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, _: datetime | None) -> None:
            return None

        dst = tzname = utcoffset

    assert _condition({"created_at": datetime(2026, 1, 1, tzinfo=Nowhere())})[1] == {
        "v0": "2026-01-01T00:00:00.000000Z"
    }


def test_dates__in_metadata_become_their_iso_text() -> None:
    where = {"metadata.a": {"$gte": date(2026, 1, 31)}, "metadata.b": datetime(2026, 1, 31, 1, tzinfo=EAST)}
    assert _condition(where)[1] == {"v0": "2026-01-31", "v1": "2026-01-31T01:00:00+02:00"}


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
CIRCLE: dict[str, Any] = {}
CIRCLE["$not"] = CIRCLE


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([("a", 1)], "filter at where is [('a', 1)]; give a mapping of conditions"),
        (None, "filter at where is None; give a mapping"),
        ({"year": 1}, "filter at where['year'] names no field; use source, title, media_type,"),
        ({"metadata": {"a": 1}}, "filter at where['metadata'] names no field; use source, title, media_type,"),
        ({"$nor": []}, "filter at where['$nor'] names no field; use source,"),
        ({7: 1}, "filter at where[7] names no field"),
        ({"metadata.": 1}, "filter at where['metadata.'] has an empty key"),
        ({"metadata.a..b": 1}, "filter at where['metadata.a..b'] has an empty key"),
        ({"metadata.a\x00": 1}, "filter at where['metadata.a\\x00'] has an empty key, a NUL or a lone surrogate"),
        ({"metadata.\ud800": 1}, "filter at where['metadata.\\ud800'] has an empty key, a NUL or a lone surrogate"),
        ({"metadata" + ".a" * 9: 1}, "is 9 keys deep; use at most 8"),
        ({"metadata.a": {"b": 1}}, "filter at where['metadata.a']['b'] has no such operator; use one of $eq, $ne,"),
        ({"metadata.a": {"$regex": "x"}}, "filter at where['metadata.a']['$regex'] has no such operator"),
        ({"metadata.a": {}}, "filter at where['metadata.a'] is {}; give a value, or operators"),
        ({"metadata.a": [1]}, "filter at where['metadata.a'] is [1]; give text, a finite number"),
        ({"metadata.a": object}, "is <class 'object'>; give text, a finite number"),
        ({"metadata.a": float("nan")}, "filter at where['metadata.a'] is nan; give text, a finite number"),
        ({"metadata.a": {"$gt": float("inf")}}, "filter at where['metadata.a']['$gt'] is inf"),
        ({"metadata.a": 10**400}, "give text, a finite number"),
        ({"metadata.a": 10**5000}, "filter at where['metadata.a'] is a value of type int; give text, a finite number"),
        ({"metadata.a": "\x00"}, "filter at where['metadata.a'] is '\\x00'; remove NUL and lone surrogates"),
        ({"metadata.a": {"$lt": None}}, "filter at where['metadata.a']['$lt'] is None; order by text, a finite"),
        ({"metadata.a": {"$lt": True}}, "filter at where['metadata.a']['$lt'] is True; order by text, a finite"),
        ({"metadata.a": {"$exists": 1}}, "filter at where['metadata.a']['$exists'] is 1; give true or false"),
        ({"metadata.a": {"$in": "xy"}}, "filter at where['metadata.a']['$in'] is 'xy'; give a list"),
        ({"metadata.a": {"$in": {"x": 1}}}, "filter at where['metadata.a']['$in'] is {'x': 1}; give a list"),
        ({"metadata.a": {"$nin": ["x", [1]]}}, "filter at where['metadata.a']['$nin'][1] is [1]; give text"),
        ({"metadata.a": {"$in": [1] * (MAX_VALUES + 1)}}, "has a list of 1,001 values; give at most 1,000"),
        ({"metadata.a": {"$contains": ""}}, "filter at where['metadata.a']['$contains'] is ''; give a text of 1 to"),
        ({"metadata.a": {"$ends_with": "x" * 1001}}, "give a text of 1 to 1,000 characters"),
        ({"metadata.a": {"$icontains": 5}}, "filter at where['metadata.a']['$icontains'] is 5; give text"),
        ({"metadata.a": {"$empty": 0}}, "filter at where['metadata.a']['$empty'] is 0; give true or false"),
        (
            {"created_at": {"$contains": "2026"}},
            "['$contains'] has no such operator; use one of $eq, $ne, $in, $nin, $gt",
        ),
        ({"title": 5}, "filter at where['title'] is 5; give text"),
        ({"title": None}, "filter at where['title'] is None; give text"),
        ({"acl": {"$in": ["a", 5]}}, "filter at where['acl']['$in'][1] is 5; give text"),
        ({"source": "\ud800"}, "filter at where['source'] is '\\ud800'; remove NUL and lone surrogates"),
        ({"department": 5}, "filter at where['department'] is 5; give text"),
        ({"department": {"$gt": "a"}}, "['$gt'] has no such operator; use one of $eq, $ne, $in, $nin"),
        ({"created_at": "yesterday"}, "filter at where['created_at'] is 'yesterday'; give a date, a datetime, or text"),
        ({"created_at": 2026}, "filter at where['created_at'] is 2026; give a date"),
        ({"updated_at": datetime(1, 1, 1, tzinfo=EAST)}, "; give a date, a datetime"),
        ({"$or": []}, "filter at where['$or'] is []; give a list of at least one mapping"),
        ({"$and": {"title": "A"}}, "filter at where['$and'] is {'title': 'A'}; give a list"),
        ({"$or": [{"title": "A"}, {}]}, "filter at where['$or'][1] is {}; give a mapping of conditions"),
        ({"$or": [{"title": "A"}, {"x": 1}]}, "filter at where['$or'][1]['x'] names no field"),
        ({"$not": {}}, "filter at where['$not'] is {}; give a mapping of conditions"),
        ({"$not": [1]}, "filter at where['$not'] is [1]; give a mapping of conditions"),
        (CIRCLE, "nest conditions at most 8 deep"),
        ({"metadata.a": ENDLESS}, "give text"),
    ],
)
def test_check__refuses(where: Any, message: str) -> None:
    assert message in _refusal(where)


def test_check__shows_long_values_shortened_on_one_line() -> None:
    assert len(_refusal({"metadata.a": ["x\n" * 5000]})) < 300


def test_check__bounds_depth_and_number() -> None:
    """Filters are bounded in depth and number."""
    deepest: dict[str, Any] = {"title": "A"}
    for _ in range(MAX_DEPTH - 1):
        deepest = {"$and": [deepest]}
    compile_filter(Filter(where=deepest))
    assert f"nest conditions at most {MAX_DEPTH} deep" in _refusal({"$not": deepest})
    many = [{"metadata.a": {"$gt": i, "$lt": i}} for i in range(MAX_CONDITIONS // 2)]
    compile_filter(Filter(where={"$or": many}))
    assert f"more than {MAX_CONDITIONS} conditions" in _refusal({"$or": many, "title": "A"})


@pytest.mark.parametrize("sources", ["/docs", 5, ("/docs", 5), ("\x00",)])
def test_check__refuses_sources(sources: Any) -> None:
    with pytest.raises(RequestError, match=re.escape(f"filter on sources is {sources!r}; give a tuple of names")):
        compile_filter(Filter(sources=sources))


def test_check__refuses_what_is_no_filter() -> None:
    with pytest.raises(RequestError, match=r"filter is \{'title': 'A'\}; give Filter\("):
        compile_filter({"title": "A"})  # type: ignore[arg-type]


def test_options__become_one_filter() -> None:
    expected = SearchOptions(
        source=["/kb"], metadata=["year=2026", "name=x=y", 'tag="7"'], where='{"title": {"$ne": "A"}}'
    ).filter()
    assert expected is not None
    compile_filter(expected)
    assert expected.sources == ("/kb",)
    assert expected.where == {
        "$and": [
            {"metadata.year": {"$eq": 2026}},
            {"metadata.name": {"$eq": "x=y"}},
            {"metadata.tag": {"$eq": "7"}},
            {"title": {"$ne": "A"}},
        ]
    }
    assert SearchOptions().filter() is None
    assert SearchOptions(source=["/kb"]).filter() == Filter(sources=("/kb",))
    assert SearchOptions(where='{"title": "A"}').filter() == Filter(where={"title": "A"})


@pytest.mark.parametrize("where", ["", "{", "[]", "{}", "title", "[" * 100_000])
def test_options__refuse_conditions_that_are_no_json_object(where: str) -> None:
    with pytest.raises(RequestError, match="is not a JSON object of conditions; write --where"):
        SearchOptions(where=where).filter()


def test_options__take_operators_under_where_only() -> None:
    expected = SearchOptions(metadata=['year={"$gte": 2024}']).filter()
    assert expected is not None
    with pytest.raises(RequestError, match=r"\['\$eq'\] is \{'\$gte': 2024\}; give text"):
        compile_filter(expected)
