"""How PostgreSQL runs the statements of a question, as the role that asks them: by keys of the tenant, whatever it has
counted. Each statement is explained while it runs, on tables that were never analysed, that were analysed before the
large tenant came, and that were analysed since.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector import HalfVector, SparseVector
from psycopg import sql
from psycopg.types.json import Jsonb

from kosmos_rag import Engine, Filter, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.statements import parse
from kosmos_rag.core.text import bm25
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.indexing.recall import NO_FILTER
from kosmos_rag.retrieval.filters import compile_filter
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.conftest import end_sessions
from tests.integration.indexing.ann.worlds import CHUNKS_A_DOCUMENT, TopicEmbedder, load

SMALL_TENANTS, SMALL, LARGE = 20, 500, 3_000
DOCUMENTS = LARGE // CHUNKS_A_DOCUMENT
EMBEDDER = TopicEmbedder(dimensions=32)
STATES = ("never analysed", "analysed before", "analysed since")
# Rows of these are many for each tenant. Of the others there are a few for each, and a scan of all may be the best.
LARGE_TABLES = {"documents", "document_versions", "chunks", "embeddings", "unsegmented_terms", "lexemes", "postings"}
FORGET_COUNTS = [
    "DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'kosmos'::regnamespace)",
    (
        "UPDATE pg_class SET (reltuples, relpages, relallvisible) ="
        " (SELECT CASE relkind WHEN 'r' THEN -1 ELSE 0 END, CASE relkind WHEN 'r' THEN 0 ELSE 1 END, 0)"
        " WHERE relnamespace = 'kosmos'::regnamespace AND relkind IN ('r', 'i')"
        " AND oid <> 'kosmos.embeddings'::regclass AND NOT starts_with(relname, 'vec_')"
    ),
]
"""Make the counts those before the first ANALYZE. What builds an index of vectors counts its table anyway."""

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True, kw_only=True)
class World:
    """A database with small tenants and a large one, and values for every statement about the large one."""

    database: Database
    worker: str
    admin: str
    values: Mapping[str, Any]

    def explain(self, name: str, **values: Any) -> dict[str, Any]:
        """Run a statement as a question does, and return its plan with what it really read."""
        bound = {**self.values, **values}
        if name in OF_FUNCTIONS:
            return {"Node Type": "Function", "Plans": list(self._plans_of_function(name, bound))}
        query = sql.SQL("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) " + statement(name))
        with self.database.app.transaction(self.values["tenant_id"], [EVERYONE]) as connection:
            connection.execute(statement("set_vector_search"), {"probes": 3, "ef_search": 100})
            if name in {"dense_by_index", "dense_by_bits"}:
                connection.execute(statement("disable_sort"))
            row = connection.execute(query.format(dimensions=sql.Literal(EMBEDDER.dimensions)), bound).fetchone()
        assert row
        return dict(row[0][0]["Plan"])

    def _plans_of_function(self, name: str, bound: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Run each statement of a function by itself, planned for its values and for any values."""
        function, names = OF_FUNCTIONS[name]
        values = sql.SQL(", ").join([sql.Literal(bound[argument]) for argument in names])
        explain = sql.SQL("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) EXECUTE kept ({})").format(values)
        with psycopg.connect(str(self.database.urls()["url"])) as connection:
            connection.execute(statement("set_tenant_context"), {**self.values, "principals": [EVERYONE]})
            row = connection.execute(
                "SELECT prosrc, proargnames, oidvectortypes(proargtypes) FROM pg_proc"
                " WHERE proname = %s AND pronamespace = 'kosmos'::regnamespace",
                [function],
            ).fetchone()
            assert row
            source, arguments, types = row
            text = re.sub(r"--.*|\bINTO \w+", "", source)
            for number, argument in enumerate(arguments[: len(names)], start=1):
                text = re.sub(rf"\b{argument}\b", f"${number}", text)
            matches = re.findall(r"^\s+(?:RETURN QUERY\s+)?(SELECT\b.*?);", text, re.DOTALL | re.MULTILINE)
            assert matches
            for item in matches:
                connection.execute(f"PREPARE kept ({types}) AS {item}".encode())
                for mode in ("force_custom_plan", "force_generic_plan"):
                    connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
                    explained = connection.execute(explain).fetchone()
                    assert explained
                    yield dict(explained[0][0]["Plan"])
                connection.execute("DEALLOCATE kept")


def _copied(server: Any, original: str, stack: ExitStack) -> str:
    name = f"kosmos_plans_{uuid.uuid4().hex[:8]}"
    names = {"name": sql.Identifier(name), "original": sql.Identifier(original)}
    with psycopg.connect(server.admin, autocommit=True) as connection:
        end_sessions(connection, original)
        connection.execute(sql.SQL("CREATE DATABASE {name} TEMPLATE {original} STRATEGY file_copy").format(**names))
        connection.execute(  # settings by role and database are not cloned
            sql.SQL("ALTER ROLE kosmos_app IN DATABASE {name} SET plan_cache_mode = force_custom_plan").format(**names)
        )
    stack.callback(_dropped, server, name)
    return name


def _dropped(server: Any, name: str) -> None:
    with psycopg.connect(server.admin, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _run(server: Any, name: str, statements: list[str]) -> None:
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        for text in statements:
            connection.execute(text.encode())


@contextmanager
def _engine(settings: DatabaseSettings, **overrides: Any) -> Iterator[Engine]:
    loaded = Settings.load(
        overrides={
            "rag.reranking.enabled": False,
            "indexes.vector": "ivfflat",
            "indexes.vector_min_chunks": 1_000,
            "indexes.unsegmented_chunks": LARGE - 100,
            **overrides,
        }
    )
    with Engine(loaded.model_copy(update={"database": settings}), embedder=EMBEDDER) as engine:
        yield engine


def _with_large_tenants(server: Any, name: str) -> None:
    """Add a tenant with an index of vectors, and one with an index of bits; of both a part is packed."""
    for owner, precision in (("large", "half"), ("bits", "bit")):
        with _engine(server.settings(name), **{"indexes.precision": precision}) as engine:
            load(engine, owner, range(LARGE - 100), metadata=lambda n: {"n": n, "quarter": n // CHUNKS_A_DOCUMENT % 4})
            engine.tenant(owner).indexes.build()
            load(engine, owner, range(LARGE - 100, LARGE), metadata=lambda n: {"n": n, "quarter": 1})


@pytest.fixture(scope="module")
def databases(server: Any, template: str) -> Iterator[dict[str, str]]:
    """The names of databases with the same rows, by what PostgreSQL has counted of them."""
    with ExitStack() as stack:
        before = _copied(server, template, stack)
        # When tables are analysed is what these tests are about.
        _run(server, before, [f"ALTER TABLE kosmos.{name} SET (autovacuum_enabled = false)" for name in LARGE_TABLES])
        with _engine(server.settings(before)) as engine:
            for number in range(SMALL_TENANTS):
                load(engine, f"small{number}", range(SMALL))
        _run(server, before, ["ANALYZE"])
        _with_large_tenants(server, before)
        never, since = (_copied(server, before, stack) for _ in range(2))
        _run(server, never, FORGET_COUNTS)
        _run(server, since, ["ANALYZE"])
        yield dict(zip(STATES, (never, before, since), strict=True))


@pytest.fixture(scope="module", params=STATES)
def worlds(request: pytest.FixtureRequest, server: Any, databases: dict[str, str]) -> Iterator[dict[str, World]]:
    """Both large tenants in one state of the tables."""
    settings = server.settings(databases[request.param])
    database = Database(settings)
    yield {
        name: World(
            database=database,
            worker=settings.worker_url,
            admin=settings.admin_url,
            values=_values(database, tenant(name).id),
        )
        for name in ("large", "bits")
    }
    database.close()


def _values(database: Database, tenant_id: uuid.UUID) -> dict[str, Any]:
    with database.worker.transaction(tenant_id, [EVERYONE]) as connection:

        def column(query: str) -> list[Any]:
            return [row[0] for row in connection.execute(query.encode(), (tenant_id,)).fetchall()]

        sequences = column("SELECT sequence FROM kosmos.chunks WHERE tenant_id = %s ORDER BY id LIMIT 125")
        chunk_ids = column("SELECT id FROM kosmos.chunks WHERE tenant_id = %s ORDER BY id LIMIT 100")
        documents = column("SELECT id FROM kosmos.documents WHERE tenant_id = %s ORDER BY id LIMIT 30")
        versions = column("SELECT id FROM kosmos.document_versions WHERE tenant_id = %s ORDER BY id LIMIT 30")
        segments = column("SELECT id FROM kosmos.indexes WHERE tenant_id = %s AND kind = 'segment'")
        indexes = column("SELECT id FROM kosmos.indexes WHERE tenant_id = %s AND kind = 'ivfflat'")
        spaces = column("SELECT live_space_id FROM kosmos.tenants WHERE tenant_id = %s")
    return {
        **NO_FILTER,
        "tenant_id": tenant_id,
        "space_id": spaces[0],
        "segment_id": segments[0],
        "index_id": indexes[0],
        "vector": HalfVector(EMBEDDER.embed_query("topic3 question").astype(np.float16)),
        "weights": SparseVector({1: 1.0, 4: 0.4}, bm25.DIMENSIONS),
        "average": 15.0,
        "k1": bm25.K1,
        "b": bm25.B,
        "stored_b": bm25.STORED_B,
        "depth": 100,
        "pool": 1_000,
        "limit": 1_001,
        "phrases": ["common words"],
        "excluded": [False],
        "sequences": sequences,
        "chunk_ids": chunk_ids,
        "best": chunk_ids[:5],
        "candidates": chunk_ids,
        "document_ids": documents,
        "version_ids": versions,
        "version_id": versions[0],
        "start": 0,
        "length": 10,
        "lexeme_ids": [1, 2, 3, 5],
    }


FILTERED = {
    name: value for name, value in compile_filter(Filter(where={"metadata.quarter": 1})).items() if name in NO_FILTER
}
ONE_DOCUMENT = {"term_groups": Jsonb([[{"metadata": {"quarter": 1}}], [{"metadata": {"n": 40}}]]), "limit": 20}
A_QUARTER = {"term_groups": Jsonb([[{"metadata": {"quarter": 1}}]])}
REQUIRED = {"required": "'third'"}
CORPUS = {"collection": "default"}
TEXTS = {"texts": ["what says topic3 of common words", "usual words", "chunk7"], "weights": [1.0, 0.5, 0.5]}
VARIANTS = ["common", *(f"co{number}mon" for number in range(1_999))]
CLOSE = {"words": ["commmon"], "variants": [" ".join(VARIANTS)]}
# Rows that a statement may read: by its keys, in a few tables; with those that an index is searched through; all of
# the tenant's, once or twice in each table.
BY_KEY, BY_INDEX, WHOLE = 1_000, 2 * LARGE, 4 * LARGE
CASES: dict[str, list[tuple[dict[str, Any], int]]] = {
    "search_state": [(TEXTS, 6 * 200)],
    "close_terms": [(CLOSE, len(VARIANTS) + 200)],
    "lexemes_by_prefix": [({**CORPUS, "prefix": "topic3", "above": "topic3\U0010ffff"}, 200)],
    "required_terms": [({}, 200)],
    "unsegmented_scan": [({**CORPUS, **also}, BY_KEY) for also in ({}, REQUIRED)]
    + [({**CORPUS, **FILTERED}, BY_KEY + DOCUMENTS), ({**CORPUS, **FILTERED, **REQUIRED}, BY_KEY + DOCUMENTS)],
    "postings": [({}, 200)],
    "segment_chunks": [({}, 200)],
    "query_routing": [({}, 10), (CORPUS, 10)],
    "vectors_of_chunks": [({}, 200)],
    "visible_chunks": [({**CORPUS, **also}, BY_KEY) for also in ({}, FILTERED, REQUIRED, FILTERED | REQUIRED)],
    "sequences_of_documents": [({}, BY_KEY)],
    "filtered_documents": [(FILTERED, 4 * DOCUMENTS)],
    "documents_by_terms": [(FILTERED | ONE_DOCUMENT, 30), (FILTERED | A_QUARTER, 2 * DOCUMENTS)],
    "dense_exact": [(also, WHOLE) for also in ({}, FILTERED, REQUIRED, FILTERED | REQUIRED)],
    "dense_by_documents": [(also, BY_KEY) for also in ({}, REQUIRED)],
    "visible_sequences": [({**also, "limit": LARGE}, WHOLE) for also in ({}, CORPUS, FILTERED)],
    "lexemes_of_chunks": [(CORPUS, BY_KEY)],
    "collection_states": [(also, 2 * SMALL_TENANTS) for also in ({}, CORPUS)],
    "collection_changes": [({"collections": ["default"], "epochs": [0]}, 200)],
    "changed_chunks": [({**CORPUS, **also}, 2 * BY_KEY) for also in ({}, FILTERED)],
    "unsegmented_terms": [(CORPUS, WHOLE)],
    "visible_vectors": [({**also, "limit": LARGE}, WHOLE) for also in ({}, CORPUS, FILTERED)],
    "dense_by_index": [(also, BY_INDEX) for also in ({}, FILTERED, REQUIRED, FILTERED | REQUIRED)],
    "dense_by_bits": [(also, 4 * LARGE) for also in ({}, FILTERED, REQUIRED, FILTERED | REQUIRED)],
    "pseudo_relevance_feedback": [({}, 200)],
    "passages": [({}, 2 * BY_KEY)],
    "passages_of_reader": [({"principals": [EVERYONE]}, 2 * BY_KEY)],
    "version_text": [({}, 10)],
}
"""For each statement of a question values in place of the world's, and how many rows it may read with them."""
# The function of `search_state_of_reader` calls that of `search_state`.
WITHOUT_TABLES = {
    "set_vector_search",
    "disable_sort",
    "disable_jit",
    "enable_sort",
    "search_state_of_reader",
}
OF_FUNCTIONS = {
    "search_state": ("search_state", ("tenant_id", "collection", "texts", "weights")),
    "passages": ("located_passages", ("tenant_id", "chunk_ids")),
    "passages_of_reader": ("passages_of_reader", ("tenant_id", "principals", "collection", "chunk_ids")),
}
"""Statements that call a function, which keeps the plans of its own: its name, and the values of its arguments."""


def test_cases__are_all_statements_of_a_question() -> None:
    text = (files("kosmos_rag.storage.sql") / "retrieval.sql").read_text(encoding="utf-8")
    assert set(parse(text)) == CASES.keys() | WITHOUT_TABLES


def _scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node):
        yield node
    for child in node.get("Plans", []):
        yield from _scans(child)


def _read(scan: dict[str, Any]) -> float:
    """Rows that a scan fetched, those it then threw away included."""
    if "Relation Name" not in scan:
        return 0  # a bitmap of an index: its table's scan counts
    thrown = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
    return float((scan["Actual Rows"] + thrown) * scan["Actual Loops"])


def _by_tenant(scan: dict[str, Any]) -> bool:
    """Whether an index leads to the rows of the tenant alone."""
    reads_one_tenant = scan["Index Name"].startswith("vec_")
    return reads_one_tenant or "tenant_id = " in scan.get("Index Cond", "")


@pytest.mark.parametrize("name", CASES)
def test_statement__reads_the_tenants_rows_by_key(name: str, worlds: dict[str, World]) -> None:
    world = worlds["bits" if name == "dense_by_bits" else "large"]
    for also, allowed in CASES[name]:
        index_id = world.values["segment_id" if name in {"postings", "segment_chunks"} else "index_id"]
        plan = world.explain(name, **also, index_id=index_id)
        scans = list(_scans(plan))
        for scan in scans:
            if scan["Node Type"] == "Seq Scan":
                assert scan["Relation Name"] not in LARGE_TABLES, (also, scan)
            elif "Index Name" in scan:
                assert _by_tenant(scan), (also, scan)
        read = sum(_read(scan) for scan in scans)
        assert read <= allowed, (also, read, [(scan.get("Relation Name"), _read(scan)) for scan in scans])


def test_statements__leave_the_rows_of_other_tenants_alone(worlds: dict[str, World]) -> None:
    """A scan of all of a tenant's vectors throws none away: none of another tenant was fetched."""
    plan = worlds["large"].explain("dense_exact")
    [scan] = [scan for scan in _scans(plan) if scan.get("Relation Name") == "embeddings"]
    assert scan["Actual Rows"] == LARGE
    assert scan.get("Rows Removed by Filter", 0) == 0


@pytest.mark.parametrize("name", ["dense_by_index", "dense_by_bits"])
def test_search__is_by_the_index_that_is_meant(name: str, worlds: dict[str, World]) -> None:
    world = worlds["bits" if name == "dense_by_bits" else "large"]
    index_name = f"vec_{world.values['index_id'].hex}"
    for also, _ in CASES[name]:
        index_names = {scan["Index Name"] for scan in _scans(world.explain(name, **also)) if "Index Name" in scan}
        assert {index for index in index_names if index.startswith("vec_")} == {index_name}, also
    # Of an index that is not there, or not meant, none is used.
    index_names = {
        scan["Index Name"] for scan in _scans(world.explain(name, index_id=uuid.uuid4())) if "Index Name" in scan
    }
    assert not any(index.startswith("vec_") for index in index_names)


@pytest.mark.parametrize("name", ["dense_by_index", "dense_by_bits"])
def test_search__is_by_the_index_where_the_table_has_a_million_rows(name: str, worlds: dict[str, World]) -> None:
    """A few vectors are expected of a tenant, and to sort these seems cheap."""
    world = worlds["bits" if name == "dense_by_bits" else "large"]
    update = "UPDATE pg_class SET reltuples = %s WHERE oid = 'kosmos.embeddings'::regclass"
    with psycopg.connect(world.admin, autocommit=True) as admin:
        row = admin.execute("SELECT reltuples FROM pg_class WHERE oid = 'kosmos.embeddings'::regclass").fetchone()
        assert row is not None
        admin.execute(update, [1_000_000])
        try:
            used_names = {scan.get("Index Name", "") for scan in _scans(world.explain(name))}
        finally:
            admin.execute(update, row)
    assert f"vec_{world.values['index_id'].hex}" in used_names


@pytest.mark.parametrize("name", ["visible_chunks", "dense_by_index", "dense_by_bits"])
def test_conditions__on_a_few_candidates_are_looked_up_for_these(name: str, worlds: dict[str, World]) -> None:
    """A subquery that is hashed is run for all of the tenant, however few candidates it is asked for."""
    world = worlds["bits" if name == "dense_by_bits" else "large"]
    for also, _ in CASES[name]:
        assert "hashed SubPlan" not in str(world.explain(name, **also)), also


def test_filter__is_part_of_the_statement_and_no_call(worlds: dict[str, World]) -> None:
    """PostgreSQL takes the function's body over, so that what it needs not is left out: here everything."""
    assert "jsonb_path_match" in str(worlds["large"].explain("filtered_documents", **FILTERED))
    for also in (FILTERED, {}):
        assert not re.search(r"\bmatches_filter\(", str(worlds["large"].explain("filtered_documents", **also)))
    assert "jsonb_path_match" not in str(worlds["large"].explain("filtered_documents"))


@pytest.mark.parametrize(
    ("name", "most"), [("filtered_documents", DOCUMENTS), ("dense_exact", LARGE), ("unsegmented_scan", DOCUMENTS)]
)
def test_filter__reads_no_row_twice(name: str, most: int, worlds: dict[str, World]) -> None:
    plan = worlds["large"].explain(name, **(CORPUS if name == "unsegmented_scan" else {}), **FILTERED)
    [scan] = [scan for scan in _scans(plan) if scan.get("Relation Name") == "documents"]
    # A document that is looked up by key is one a loop; what a loop threw away is given rounded.
    assert (scan["Actual Loops"] if scan["Actual Loops"] > 1 else _read(scan)) <= most


@pytest.mark.parametrize(
    "name", ["delete_unsegmented_terms", "versions_of_documents", "size_of_documents", "lexemes_of_documents"]
)
def test_publication__finds_what_it_replaces_by_key(name: str, worlds: dict[str, World]) -> None:
    world = worlds["large"]
    with psycopg.connect(world.worker) as connection:
        connection.execute(statement("set_tenant_context"), {**world.values, "principals": [EVERYONE]})
        query = sql.SQL("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) " + statement(name))
        row = connection.execute(query, {**world.values, **CORPUS}).fetchone()
        connection.rollback()
    assert row
    scans = list(_scans(row[0][0]["Plan"]))
    assert sum(_read(scan) for scan in scans) <= 2 * LARGE
    assert max(scan["Actual Loops"] for scan in scans) <= 200
