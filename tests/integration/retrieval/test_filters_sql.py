"""Compiled filters on a real PostgreSQL: each lets through exactly what a plain reading of the language does."""

import operator
import uuid
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.filters import compile_filter
from tests.property_examples import examples

PASSES = """
    SELECT kosmos.matches_filter(jsonb_populate_record(NULL::kosmos.documents, %(row)s), %(condition)s,
                                 %(condition_values)s, %(sources)s, %(folders)s)
"""


@pytest.fixture(scope="module")
def connection(server: Any, template: str) -> Iterator[psycopg.Connection]:
    """A connection in a time zone that is not the canonical one."""
    name = f"kosmos_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.admin, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        with psycopg.connect(server.url(name), autocommit=True) as opened:
            opened.execute("SET TimeZone = 'Asia/Kathmandu'")
            opened.execute("SET kosmos.principals = '{everyone, department:sales, department:x, x}'")
            yield opened
        admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def _passes(connection: psycopg.Connection, where: Filter, **columns: Any) -> bool:
    """Whether a document of these columns passes."""
    row = {
        "source": "/kb/churn.md",
        "title": "Churn",
        "media_type": "text/markdown",
        "language": "english",
        "collection": "default",
        "created_at": "2026-01-31T23:30:00Z",
        "updated_at": "2026-02-01T00:00:00.000005Z",
        "acl": ["everyone", "department:sales"],
        "metadata": {},
        **columns,
    }
    result = connection.execute(PASSES, {"row": Jsonb(row), **compile_filter(where)}).fetchone()
    assert result is not None
    return bool(result[0])


def _has_terms(connection: psycopg.Connection, where: Filter, **columns: Any) -> bool:
    """Whether a document has a term of each group of the filter."""
    fields = Jsonb({"metadata": columns["metadata"], "acl": columns["acl"]})
    return all(
        connection.execute("SELECT kosmos.hash_fields(%s) && kosmos.hash_fields(%s)", [fields, Jsonb(group)]).fetchone()
        == (True,)
        for group in compile_filter(where)["term_groups"]
    )


METADATA = {
    "year": 2025,
    "price": 0.1,
    "name": "Ärger",
    "draft": False,
    "owner": None,
    "tags": ["x", "y", 3],
    "empty": [],
    "grid": [[1]],
    "a": {"b": {"c": 1}},
    "parts": [{"no": 1}, {"no": 2}],
    "due": "2026-01-31",
}


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"metadata.year": 2025}, True),
        ({"metadata.year": 2025.0}, True),
        ({"metadata.year": "2025"}, False),
        ({"metadata.year": {"$ne": "2025"}}, True),
        ({"metadata.year": {"$gt": "2024"}}, False),
        ({"$not": {"metadata.year": {"$gt": "2024"}}}, True),
        ({"metadata.year": {"$gte": 2025, "$lt": 2026}}, True),
        ({"metadata.price": 0.1}, True),
        ({"metadata.name": {"$gt": "Z"}}, True),  # by code point, whatever the database's collation
        ({"metadata.draft": False}, True),
        ({"metadata.draft": 0}, False),
        ({"metadata.owner": None}, True),
        ({"metadata.owner": {"$exists": True}}, True),
        ({"metadata.missing": None}, False),
        ({"metadata.missing": {"$exists": False}}, True),
        ({"metadata.missing": {"$ne": 1}}, True),
        ({"metadata.missing": {"$nin": [1, None]}}, True),
        ({"metadata.missing": {"$gt": 1}}, False),
        ({"$not": {"metadata.missing": {"$gt": 1}}}, True),
        ({"$not": {"$not": {"metadata.missing": {"$gt": 1}}}}, False),
        ({"metadata.year": {"$ne": None}}, True),
        ({"metadata.year": {"$in": ["2025", None, 2025]}}, True),
        ({"metadata.year": {"$in": []}}, False),
        ({"metadata.year": {"$nin": []}}, True),
        ({"metadata.tags": "y"}, True),
        ({"metadata.tags": 3}, True),
        ({"metadata.tags": {"$ne": "y"}}, False),
        ({"metadata.tags": {"$in": ["z", "x"]}}, True),
        ({"metadata.tags": {"$gt": 2, "$lt": "y"}}, True),
        ({"metadata.empty": {"$exists": True}}, True),
        ({"metadata.empty": None}, False),
        *(({f"metadata.{key}": {"$empty": True}}, True) for key in ("missing", "owner", "empty")),
        *(({f"metadata.{key}": {"$empty": True}}, False) for key in ("year", "tags", "draft", "a")),
        ({"metadata.tags": {"$empty": False}, "metadata.a": {"$empty": False}}, True),
        ({"metadata.name": {"$contains": "rg"}}, True),
        ({"metadata.name": {"$contains": "RG"}}, False),
        ({"metadata.name": {"$contains": "."}}, False),
        ({"metadata.name": {"$icontains": "ÄRG"}}, True),
        ({"metadata.name": {"$icontains": "äRGER"}}, True),
        ({"metadata.name": {"$starts_with": "Är", "$ends_with": "ger"}}, True),
        ({"metadata.name": {"$ends_with": "ge"}}, False),
        ({"metadata.year": {"$contains": "20"}}, False),
        ({"metadata.tags": {"$starts_with": "x"}}, True),
        ({"$not": {"metadata.missing": {"$contains": "x"}}}, True),
        ({"source": {"$starts_with": "/kb/", "$ends_with": ".md", "$contains": "b/c"}}, True),
        ({"metadata.grid": 1}, False),
        ({"metadata.a.b.c": 1}, True),
        ({"metadata.a.b": 1}, False),
        ({"metadata.a.b": {"$exists": True}}, True),
        ({"metadata.year.b": {"$exists": False}}, True),
        ({"metadata.parts.no": 2}, True),
        ({"metadata.due": date(2026, 1, 31)}, True),
        ({"metadata.due": {"$lt": date(2026, 2, 1)}}, True),
        ({"title": "Churn", "source": {"$in": ["/kb/churn.md"]}}, True),
        ({"title": "Churn", "source": "/kb"}, False),
        ({"media_type": "text/markdown", "language": "english", "collection": "default"}, True),
        ({"acl": "everyone"}, True),
        ({"acl": {"$nin": ["everyone"]}}, False),
        ({"department": "sales"}, True),
        ({"department": {"$in": ["hr", "sales"]}}, True),
        ({"department": "hr"}, False),
        ({"department": {"$ne": "hr"}}, True),
        ({"created_at": {"$gte": date(2026, 1, 31), "$lt": date(2026, 2, 1)}}, True),
        ({"created_at": datetime(2026, 2, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))}, True),
        ({"created_at": {"$lte": "2026-01-31T23:29:59.999999Z"}}, False),
        ({"updated_at": {"$gt": "2026-02-01"}}, True),
        ({"updated_at": {"$gt": datetime(2026, 2, 1, 0, 0, 0, 5)}}, False),
        ({"$or": [{"title": "A"}, {"metadata.tags": {"$in": ["x"]}}]}, True),
        ({"$or": [{"title": "A"}, {"metadata.tags": "z"}], "metadata.year": 2025}, False),
        ({"$and": [{"title": "Churn"}, {"$not": {"metadata.tags": "z"}}]}, True),
    ],
)
def test_filter__lets_through(connection: psycopg.Connection, where: dict[str, Any], passes: bool) -> None:
    assert _passes(connection, Filter(where=where), metadata=METADATA) is passes


def test_filter__wants_both_its_sources_and_its_conditions(connection: psycopg.Connection) -> None:
    assert _passes(connection, Filter())
    assert _passes(connection, Filter(sources=("/kb",), where={"title": "Churn"}))
    assert not _passes(connection, Filter(sources=("/kb2",), where={"title": "Churn"}))
    assert not _passes(connection, Filter(sources=("/kb",), where={"title": "Quota"}))


def test_filter__of_the_largest_size_is_evaluated(connection: psycopg.Connection) -> None:
    many: dict[str, Any] = {"$or": [{"metadata.year": {"$in": [-i] * 40}} for i in range(198)] + [{"metadata.year": 1}]}
    for _ in range(5):
        many = {"$not": many}
    where = Filter(where={**many, "title": "Churn"})
    assert _passes(connection, where, metadata={"year": 2025})
    assert not _passes(connection, where, metadata={"year": 1})


@examples(150)
@given(
    st.text(st.characters(exclude_characters="\x00.", exclude_categories=["Cs"]), min_size=1, max_size=12)
    | st.text(alphabet='"\\$@*?()[]{}|&!=/u0041 \n\t%', min_size=1, max_size=12)
)
def test_key__of_any_text_is_only_a_key(connection: psycopg.Connection, key: str) -> None:
    equal, there = Filter(where={f"metadata.{key}": 1}), Filter(where={f"metadata.{key}": {"$exists": True}})
    assert _passes(connection, equal, metadata={key: 1})
    assert not _passes(connection, equal, metadata={key: 2, f"{key}x": 1})
    assert not _passes(connection, there, metadata={f"x{key}": 1})


# Clear of both ends of the calendar, which another zone would cross.
TIMES = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@examples(150)
@given(TIMES, ZONES, TIMES | st.none(), ZONES)
def test_times__compare_as_times(
    connection: psycopg.Connection, at: datetime, zone: timezone, asked_at: datetime | None, asked_zone: timezone
) -> None:
    stored = at.replace(tzinfo=zone)
    moment = stored.astimezone(asked_zone) if asked_at is None else asked_at.replace(tzinfo=asked_zone)
    for sign, holds in (("$gt", stored > moment), ("$eq", stored == moment), ("$lt", stored < moment)):
        where = Filter(where={"created_at": {sign: moment}})
        assert _passes(connection, where, created_at=stored.isoformat()) == holds


# The plain reading of the language, over the document as JSON.

SIGNS = {"$eq": operator.eq, "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}

PATTERNS: dict[str, Callable[[str, str], bool]] = {
    "$contains": operator.contains,
    "$icontains": lambda text, part: operator.contains(_one_case(text), _one_case(part)),
    "$starts_with": str.startswith,
    "$ends_with": str.endswith,
}


def _one_case(text: str) -> str:
    """Letters that are one in another case, each by itself."""
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _reads(document: Any, where: Mapping[str, Any]) -> bool:
    return all(_holds(document, key, value) for key, value in where.items())


def _holds(document: Any, key: str, value: Any) -> bool:
    if key == "$not":
        return not _reads(document, value)
    if key in ("$and", "$or"):
        return (all if key == "$and" else any)(_reads(document, each) for each in value)
    signs = value if isinstance(value, Mapping) else {"$eq": value}
    if key == "department":
        key, signs = "acl", {sign: f"department:{name}" for sign, name in signs.items()}
    return all(_compares(_values_at_path(document, key.split(".")), sign, operand) for sign, operand in signs.items())


def _values_at_path(stored_values: Any, keys: list[str]) -> list[Any]:
    """What stands at a path: nothing, one value, or one of each object of a list."""
    if not keys:
        return [stored_values]
    objects = stored_values if isinstance(stored_values, list) else [stored_values]
    return [v for o in objects if isinstance(o, dict) and keys[0] in o for v in _values_at_path(o[keys[0]], keys[1:])]


def _compares(stored_values: list[Any], sign: str, operand: Any) -> bool:
    if sign == "$exists":
        return bool(stored_values) is operand
    if sign == "$empty":
        values = [v for each in stored_values for v in (each if isinstance(each, list) else [each])]
        return all(v is None or v == [] for v in values) is operand
    if sign in ("$ne", "$nin"):
        return not _compares(stored_values, {"$ne": "$eq", "$nin": "$in"}[sign], operand)
    values = [v for each in stored_values for v in (each if isinstance(each, list) else [each])]
    if sign in PATTERNS:
        return any(isinstance(v, str) and PATTERNS[sign](v, operand) for v in values)
    if sign == "$in":
        return any(_is("$eq", _typed(v), _typed(each)) for v in values for each in operand)
    return any(_is(sign, _typed(v), _typed(operand)) for v in values)


def _is(sign: str, left: tuple[str, Any], right: tuple[str, Any]) -> bool:
    return left[0] == right[0] != "composite" and bool(SIGNS[sign](left[1], right[1]))


def _typed(value: Any) -> tuple[str, Any]:
    match value:
        case None:
            return "null", None
        case bool():
            return "bool", value
        case int() | float():
            return "number", Decimal(repr(value))
        case str():
            return "text", value
        case date():
            return "text", value.isoformat()
    return "composite", None


# Few keys and values, so that documents and filters meet; and some that nobody expects.
def _mostly(small: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from([small, small, small, rare]).flatmap(lambda of: of)


ANY_TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=3)
TEXTS = _mostly(
    st.sampled_from(["x", "y", ""]), st.sampled_from(["é", "💥", "2026-01-31", '"', "$v0", "\\"]) | ANY_TEXT
)
NUMBERS = _mostly(
    st.sampled_from([0, 1, 1.0]),
    st.sampled_from([0.1, -0.0, 1e300, 5e-324, 2**64, 1e23, 10**23])
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False),
)
ORDERED = TEXTS | NUMBERS
PARTS = _mostly(
    st.sampled_from(["x", "X", "É"]), st.sampled_from([".", "-", "1$", "^", "\\", "$v", "***=x", '"']) | ANY_TEXT
).filter(bool)
SCALARS = ORDERED | st.sampled_from([None, True, False])
OPERANDS = SCALARS | st.just(date(2026, 1, 31))
KEYS = st.sampled_from(["a", "b"])
NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2), max_leaves=4
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "title": TEXTS,
        "source": TEXTS,
        "acl": st.lists(st.sampled_from(["everyone", "department:x", "x"]), max_size=2),
        "metadata": st.fixed_dictionaries({"a": SCALARS}, optional={"b": NESTED, '"': NESTED}),
    }
)
FIELDS = st.sampled_from(["metadata.a", "metadata.b", 'metadata."', "metadata.b.a", "metadata.b.a.b"])
OPERATORS = {
    **dict.fromkeys(["$eq", "$ne"], OPERANDS),
    **dict.fromkeys(["$in", "$nin"], st.lists(OPERANDS, max_size=3)),
    **dict.fromkeys(["$gt", "$gte", "$lt", "$lte"], ORDERED),
    **dict.fromkeys(["$exists", "$empty"], st.booleans()),
    **dict.fromkeys(PATTERNS, PARTS),
}


@st.composite
def _conditions(draw: st.DrawFn) -> dict[str, Any]:
    """One condition on metadata, or one on a field of text."""
    if draw(st.integers(0, 3)):
        sign = draw(st.sampled_from([*OPERATORS, None]))
        operand = draw(OPERATORS[sign or "$eq"])
        return {draw(FIELDS): {sign: operand} if sign else operand}
    field, sign = draw(st.sampled_from(["title", "acl", "department"])), draw(st.sampled_from(["$eq", "$ne"]))
    return {field: {sign: draw(TEXTS)}}


CONDITIONS = st.lists(_conditions(), min_size=1, max_size=2).map(lambda several: dict(ChainMap(*several)))
WHERES = st.recursive(
    CONDITIONS,
    lambda inner: (
        st.fixed_dictionaries({"$not": inner})
        | st.dictionaries(st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=3), min_size=1)
    ),
    max_leaves=5,
)


@examples(400)
@given(st.lists(DOCUMENTS, min_size=1, max_size=4), WHERES)
def test_filter__agrees_with_the_plain_reading(
    connection: psycopg.Connection, documents: list[dict[str, Any]], where: dict[str, Any]
) -> None:
    for columns in documents:
        document = {**columns, "acl": columns["acl"]}
        passes = _passes(connection, Filter(where=where), **columns)
        assert passes == _reads(document, where)
        if passes:
            assert _has_terms(connection, Filter(where=where), **columns)
