"""Departments under enforcement: what others may not read changes nothing that they are told."""

import json
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE, SearchResult
from kosmos_rag.storage import lexical_statistics
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened

ROOT = Path(__file__).parents[3]
WORDS = (
    *("churn", "revenue", "refund", "trial", "cohort", "ledger", "invoice", "quota", "margin", "outage", "seat"),
    *("usage", "credit", "badge", "laptop", "pension", "audit", "travel", "salary", "backup"),
)
DEPARTMENTS = ("hr", "it", "finance", "security", "general")
PRINCIPALS = (*(f"department:{name}" for name in DEPARTMENTS), "role:Manager", "role:Intern", EVERYONE)
ENFORCED = {
    "rag.access.department_from": "folder",
    "rag.access.departments": (*DEPARTMENTS, "board"),
    "rag.access.open": ("general",),
    "rag.access.privileged": ("Manager",),
    "rag.retrieval.similarity_threshold": -1.0,
    "indexes.unsegmented_chunks": 20,
    "indexes.vector": "none",
}
MODES: dict[str, dict[str, Any]] = {
    "fused": {},
    "scores": {"rag.retrieval.fusion": "score"},
    "dense": {"rag.retrieval.keyword_weight": 0.0},
    "lexical": {"rag.retrieval.semantic_weight": 0.0},
    "feedback": {"rag.retrieval.prf_weight": 0.5},
    "signals": {
        "rag.signals": {"department_match": {"by_folder": True}, "word_overlap": {"weight": 0.2}, "one_per_source": {}}
    },
    "cached": {"rag.retrieval.result_cache": 1000},
}
WORLDS = 500
FAST = 10


@dataclass(frozen=True, kw_only=True)
class World:
    """The documents of a tenant: in folders, with metadata, and some with readers of their own."""

    documents: list[SourceDocument]
    permissions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Principals of the documents that a permission feed names, or named once, by source."""

    @classmethod
    def random(cls, seed: int) -> "World":
        """Up to 14 documents."""
        dice = random.Random(seed)
        return cls(documents=[_document(dice, number) for number in range(dice.randint(1, 14))])

    def readable(self, principals: tuple[str, ...], kind: str | None = None) -> list[SourceDocument]:
        """The oracle: what this reader may read."""
        reader = set(principals)
        return [
            document
            for document in self.documents
            if self.permissions.get(document.source, _readers(document)) & reader
            and kind in {None, document.metadata["kind"]}
        ]


def _document(dice: random.Random, number: int) -> SourceDocument:
    metadata = {"kind": dice.choice(["memo", "policy"])}
    if dice.random() < 0.2:
        metadata["department"] = dice.choice(DEPARTMENTS)
    acl = tuple(dice.sample(PRINCIPALS, k=dice.randint(1, 2))) if dice.random() < 0.15 else (EVERYONE,)
    words = " ".join(dice.choices(WORDS, k=dice.randint(4, 16)))
    return SourceDocument(
        source=f"kb/{dice.choice(DEPARTMENTS)}/doc-{number}.txt",
        data=f"{words} number{number}".encode(),
        metadata=metadata,
        acl=acl,
    )


def _with_feed(world: World, dice: random.Random, path: Path) -> World:
    """Write a permission feed about some of the documents, and return the world that it makes."""
    spaces = {f"space-{n}": dice.sample(PRINCIPALS, k=dice.randint(0, 3)) for n in range(4)}
    lies_in = {
        document.source: dice.sample([*spaces, "unknown"], k=dice.randint(0, 2))
        for document in world.documents
        if dice.random() < 0.7
    } or {"kb/hr/nowhere.txt": []}
    rows = [{"container": name, "principals": container_principals} for name, container_principals in spaces.items()]
    rows += [{"document": source, "containers": names} for source, names in lies_in.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    permissions = {
        source: frozenset(principal for name in names for principal in spaces.get(name, ()))
        for source, names in lies_in.items()
    }
    return replace(world, permissions=dict.fromkeys(world.permissions, frozenset()) | permissions)


def _readers(document: SourceDocument) -> set[str]:
    if document.acl != (EVERYONE,):
        return set(document.acl)
    department = document.metadata.get("department", document.source.split("/")[-2])
    return {EVERYONE} if department == "general" else {f"department:{department}", "role:Manager"}


@pytest.fixture(scope="module")
def modes(loaded_settings: Settings, shared_database: DatabaseSettings) -> Iterator[dict[str, Engine]]:
    """Engines over one database, one for each way of answering."""
    settings = loaded_settings.model_copy(update={"database": shared_database})
    with ExitStack() as stack:
        yield {name: stack.enter_context(opened(settings, {**ENFORCED, **mode})) for name, mode in MODES.items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds", [range(FAST), pytest.param(range(FAST, WORLDS), marks=pytest.mark.slow)], ids=["quick", "the rest"]
)
def test_random_worlds__show_each_reader_what_is_theirs_in_every_mode(
    modes: dict[str, Engine], seeds: range, tenant_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = {"kind": "json_lines", "name": "wiki", "path": tmp_path / "feed.jsonl"}
    for seed in seeds:
        monkeypatch.setattr(lexical_statistics, "WHOLE_MOVE_CHUNKS", 1 + 19 * (seed % 2))
        world, dice = World.random(seed), random.Random(-seed)
        name = f"{tenant_name}-{seed}"
        modes["fused"].tenant(name).ingest(world.documents)
        if seed % 5 == 0:
            modes["fused"].tenant(name).indexes.build()
        principals = tuple(dice.sample(PRINCIPALS, k=dice.randint(1, 4)))
        question = " ".join(dice.choices(WORDS, k=3))
        kind = dice.choice([None, "memo"])
        sampled_modes = dice.sample(sorted(modes), k=3)
        # As ingested, then after two passes of a permission feed, the second after some documents came anew.
        for step in range(3):
            if step:
                world = _with_feed(world, dice, tmp_path / "feed.jsonl")
                modes["fused"].tenant(name).sync_permissions(feed)
            for mode in sampled_modes:
                _compare(modes[mode], mode, world, name, principals, question, kind)
            _compare_with_twin(modes["lexical"], world, f"{name}-twin{step}", name, principals, question)
            anew = [replace(document, data=document.data + b" anew") for document in world.documents[step::2]]
            world = replace(world, documents=_merged(world.documents, anew))
            modes["fused"].tenant(name).ingest(anew)


def _merged(documents: list[SourceDocument], anew: list[SourceDocument]) -> list[SourceDocument]:
    """Return the documents, with new versions in the place of older ones."""
    versions = {document.source: document for document in anew}
    return [versions.get(document.source, document) for document in documents]


def _compare(
    engine: Engine, mode: str, world: World, name: str, principals: tuple[str, ...], question: str, kind: str | None
) -> None:
    scope = engine.tenant(name, principals=principals)
    chosen = Filter(where={"metadata.kind": kind}) if kind else None
    documents = world.readable(principals, kind)
    sources = {d.source for d in documents if mode != "lexical" or set(question.split()) & set(d.data.decode().split())}
    for _ in range(2 if mode == "cached" else 1):
        result = scope.search(question, 100, chosen)
        assert {hit.source for hit in result.hits} == sources, mode
    readable = {d.data.decode() for d in world.readable(principals)}
    assert {passage.text for passage in scope.context(question, 100, chosen).passages} <= readable
    answer = scope.answer(question, 100, chosen)
    assert all(citation.source in {d.source for d in documents} for citation in answer.citations)
    assert [d.source for d in scope.documents()] == sorted(d.source for d in world.readable(principals))
    assert {text for _, text in scope.texts()} == readable
    assert sum(info.chunks for info in scope.collections.infos()) == len(readable)


def _compare_with_twin(
    engine: Engine, world: World, twin_name: str, name: str, principals: tuple[str, ...], question: str
) -> None:
    """A tenant that holds only what the reader may read gives the same scores, to the last bit."""
    twin = [replace(document, acl=("twin",)) for document in world.readable(principals)]
    engine.tenant(twin_name).ingest(twin)
    result = engine.tenant(name, principals=principals).search(question, 100)
    alone = engine.tenant(twin_name, principals=("twin",)).search(question, 100)
    assert sorted((hit.lexical_score, hit.source) for hit in result.hits) == sorted(
        (hit.lexical_score, hit.source) for hit in alone.hits
    )
    assert (result.incomplete_reason or "").replace(name, "") == (alone.incomplete_reason or "").replace(name, "")


def _without_timings(result: SearchResult) -> SearchResult:
    """All that a reader is told but how long it took."""
    return replace(result, timings_ms={}, stages=())


def _policy(number: int, department: str, words: str) -> SourceDocument:
    return SourceDocument(source=f"kb/{department}/p{number}.txt", data=f"{words} rule{number}".encode())


SECRET = "zephyrine"
QUESTIONS = (f"{SECRET} badge travel", f'"{SECRET} badge"', f"salary +{SECRET}", "häuser backup")
PLANTS = {
    "one": [_policy(900, "security", f"{SECRET} badge")],
    "one that says it often": [_policy(900, "security", f"{SECRET} {SECRET} salary " * 20)],
    "a hundred": [_policy(900 + n, "security", f"{SECRET} badge travel salary " * (1 + n % 7)) for n in range(100)],
    "a department that was not there": [_policy(900, "board", f"{SECRET} backup")],
    "another language": [replace(_policy(900, "security", f"{SECRET} häuser badges"), language="german")],
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_secret_term__changes_nothing_that_readers_of_other_departments_are_told(
    modes: dict[str, Engine], plant: str, tenant_name: str
) -> None:
    """A secret term changes no result of readers of other departments."""
    dice = random.Random(7)
    documents = [
        _policy(n, DEPARTMENTS[n % 5], " ".join(dice.choices(WORDS, k=dice.randint(4, 30)))) for n in range(40)
    ]
    owner = modes["fused"].tenant(tenant_name)
    owner.ingest(documents)
    owner.indexes.build()
    readers = [(EVERYONE,), (EVERYONE, "department:hr", "role:Intern")]

    def answers() -> dict[tuple[str, tuple[str, ...], str], SearchResult]:
        return {
            (mode, principals, question): engine.tenant(tenant_name, principals=principals).search(question, 50)
            for mode, engine in modes.items()
            for principals in readers
            for question in QUESTIONS
        }

    def listed() -> list[object]:
        scopes = [modes["fused"].tenant(tenant_name, principals=principals) for principals in readers]
        return [(scope.documents(), scope.texts(), scope.collections.infos()) for scope in scopes]

    before, lists = answers(), listed()
    before = {searches: replace(value, cached=searches[0] == "cached") for searches, value in before.items()}
    assert any(value.hits for value in before.values())
    owner.ingest(PLANTS[plant])
    modes["fused"].tenant(tenant_name, principals=("role:Manager",)).search(SECRET, 5)
    for maintained in (False, True):
        if maintained:
            owner.indexes.rebuild()
        for searches, value in answers().items():
            assert _without_timings(value) == _without_timings(before[searches]), searches
        assert listed() == lists
    manager = modes["lexical"].tenant(tenant_name, principals=("role:Manager",)).search(SECRET, 200)
    assert manager.returned == len(PLANTS[plant])


def test_readers__follow_from_the_department_when_the_mode_changes_and_nothing_is_embedded_again(
    settings: Settings, database: DatabaseSettings, tenant_name: str
) -> None:
    documents = [_policy(1, "hr", "salary bands"), _policy(2, "general", "travel rules")]

    def readers() -> list[list[str]]:
        with psycopg.connect(database.admin_url or "") as connection:
            rows = connection.execute(
                "SELECT acl FROM kosmos.documents WHERE tenant_id = %s ORDER BY source DESC", [tenant(tenant_name).id]
            ).fetchall()
        return [acl for (acl,) in rows]

    with opened(settings, {}) as engine:
        assert engine.tenant(tenant_name).ingest(documents).new == 2
        assert readers() == [[EVERYONE], [EVERYONE]]
    with opened(settings, ENFORCED) as engine:
        report = engine.tenant(tenant_name).ingest(documents)
        assert (report.changed, report.reused, report.chunks) == (2, 2, 2)
        assert readers() == [["department:hr", "role:Manager"], [EVERYONE]]
        assert [hit.source for hit in engine.tenant(tenant_name).search("salary").hits] == ["kb/general/p2.txt"]
        assert engine.tenant(tenant_name).ingest(documents).unchanged == 2
    with opened(settings, {}) as engine:
        report = engine.tenant(tenant_name).ingest(documents)
        assert (report.changed, report.reused) == (2, 2)
        assert readers() == [[EVERYONE], [EVERYONE]]


def test_a_document_without_a_department__fails_by_name(settings: Settings, tenant_name: str) -> None:
    with opened(settings, ENFORCED) as engine:
        report = engine.tenant(tenant_name).ingest(
            [SourceDocument(source="loose.txt", data=b"salary"), _policy(1, "hr", "salary")]
        )
        assert [(failure.source, failure.code) for failure in report.failed] == [("loose.txt", "no_department")]
        assert (report.new, engine.tenant(tenant_name).documents()) == (1, [])


def test_failed_documents__do_not_stay_open_when_departments_begin_to_decide(
    settings: Settings, tenant_name: str
) -> None:
    loose = SourceDocument(source="loose.txt", data=b"salary")
    broken, open_ = _policy(1, "hr", "salary"), _policy(2, "general", "salary")
    with opened(settings, {}) as engine:
        engine.tenant(tenant_name).ingest([loose, broken, open_])
    again = [loose, *(replace(document, data=b"salary" * 2**19) for document in (broken, open_))]
    with opened(settings, ENFORCED | {"ingestion.max_file_mb": 1}) as engine:
        report = engine.tenant(tenant_name).ingest(again)
        assert [failure.code for failure in report.failed] == ["no_department", "too_large", "too_large"]
        assert report.removed == 2
        assert engine.tenant(tenant_name).sources() == [open_.source]


def test_account__tells_no_plan_where_a_collection_that_enforces_could_be_among_those_asked(
    settings: Settings, tenant_name: str
) -> None:
    with opened(settings, {}) as engine:
        engine.tenant(tenant_name).collections.create("policies", preset="corporate-enforced")
        engine.tenant(tenant_name, collection="wiki").ingest(SourceDocument(source="a", data=b"salary rules"))
        for planted in (False, True):
            if planted:
                engine.tenant(tenant_name, collection="policies").ingest(_policy(1, "security", "salary secrets"))
            over_all = engine.tenant(tenant_name).search("salary")
            assert {retriever.plan for retriever in over_all.retrievers.values()} == {"hidden"}, planted
            alone = engine.tenant(tenant_name, collection="wiki").search("salary")
            assert {retriever.plan for retriever in alone.retrievers.values()} == {"exact scan"}, planted


def test_totals__name_no_principals_of_others(settings: Settings, tenant_name: str) -> None:
    """Totals by readers name no principals of others."""
    with opened(settings, {}) as engine:
        engine.tenant(tenant_name).ingest(
            [
                SourceDocument(source="a", data=b"salary", acl=("department:hr", "role:Manager", "user:jo")),
                SourceDocument(source="b", data=b"bonus", acl=("department:finance", "department:hr", "user:ann")),
                SourceDocument(source="c", data=b"secret", acl=("user:ann",)),
            ]
        )
        assert engine.tenant(tenant_name, principals=("department:hr",)).department_totals() == (2, {"hr": 2})
        assert engine.tenant(tenant_name, principals=("user:ann",)).department_totals() == (2, {"general": 2})


def test_languages__of_a_list_of_readers_go_with_its_documents(
    settings: Settings, database: DatabaseSettings, tenant_name: str
) -> None:
    def languages() -> list[list[str]]:
        with psycopg.connect(database.admin_url or "") as connection:
            rows = connection.execute(
                "SELECT languages FROM kosmos.acl_statistics WHERE tenant_id = %s", [tenant(tenant_name).id]
            ).fetchall()
            return [row for (row,) in rows]

    with opened(settings, {}) as engine:
        scope = engine.tenant(tenant_name)
        german = SourceDocument(source="a", data="die Häuser".encode(), language="german")
        english = SourceDocument(source="b", data=b"houses")
        scope.ingest(german)
        assert languages() == [["german"]]
        scope.ingest(english)
        assert languages() == [["german", "english"]]
        scope.delete("b")
        scope.ingest(replace(german, language="english"))
        assert languages() == [["english"]]
        scope.delete("a")
        assert languages() == []


def test_readers__in_another_order_are_the_same_list(
    settings: Settings, database: DatabaseSettings, tenant_name: str
) -> None:
    with opened(settings, {}) as engine:
        lists = [("board", "hr"), ("hr", "board"), ("hr", "board", "hr")]
        engine.tenant(tenant_name).ingest(
            [SourceDocument(source=str(n), data=b"salary", acl=readers) for n, readers in enumerate(lists)]
        )
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT acl, chunks FROM kosmos.acl_statistics WHERE tenant_id = %s", [tenant(tenant_name).id]
        ).fetchall()
    assert rows == [(["board", "hr"], 3)]


def test_preset__enforces_departments_in_its_collection_alone(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {}) as engine:
        engine.tenant(tenant_name).collections.create("policies", preset="corporate-enforced")
        document = _policy(1, "finance", "The quarterly budget is closed on the fifth working day of the month.")
        for collection in ("policies", "wiki"):
            engine.tenant(tenant_name, collection=collection).ingest(document)
        assert [result.collection for result in engine.tenant(tenant_name).documents()] == ["wiki"]
        for principals in (("department:finance",), ("role:Auditor",)):
            result = engine.tenant(tenant_name, principals=principals, collection="policies").search("quarterly budget")
            assert [hit.source for hit in result.hits] == ["kb/finance/p1.txt"]
            assert {(retriever.plan, len(retriever.read)) for retriever in result.retrievers.values()} == {
                ("hidden", 0)
            }


def test_account__of_one_who_may_not_read_all_tells_no_plan(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {}) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(SourceDocument(source="a", data=b"salary rules"))
        assert {retriever.plan for retriever in scope.search("salary").retrievers.values()} == {"exact scan"}
        scope.ingest(SourceDocument(source="b", data=b"salary secrets", acl=("board",)))
        assert {retriever.plan for retriever in scope.search("salary").retrievers.values()} == {"hidden"}
        both = engine.tenant(tenant_name, principals=(EVERYONE, "board")).search("salary")
        assert {retriever.plan for retriever in both.retrievers.values()} == {"exact scan"}


ACL_HASH = r"""
CREATE FUNCTION pg_temp.acl_hash(acl text[]) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substring(sha256(convert_to('{' || string_agg(
               '"' || replace(replace(u.name, '\', '\\'), '"', '\"') || '"', ',' ORDER BY u.number) || '}', 'UTF8'))
               FROM 1 FOR 16), 'hex')::uuid
      FROM unnest(acl) WITH ORDINALITY AS u (name, number)
$$
"""


def test_a_list_of_readers__may_be_long_and_hold_any_sign(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    many = tuple(f"user:{uuid.uuid4()}" for _ in range(300))
    odd = ("back\\slash", 'quo"te', "com,ma", "{brace}", "ümlaut 😀")
    documents = [
        SourceDocument(source=str(number), title="-", data=b"alpha beta", acl=readers)
        for number, readers in enumerate([many, odd, ("everyone",)])
    ]
    assert engine.tenant(tenant_name).ingest(documents).failed == ()
    for name, source in {many[7]: "0", odd[0]: "1", odd[1]: "1"}.items():
        assert [hit.source for hit in engine.tenant(tenant_name, principals=[name]).search("alpha").hits] == [source]
    # The hash is that of the array literal: PostgreSQL makes the same one.
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(ACL_HASH)
        for table in ("acl_statistics", "lexemes"):
            rows = connection.execute(
                f"SELECT acl_hash, pg_temp.acl_hash(acl) FROM kosmos.{table} WHERE tenant_id = %s",
                [tenant(tenant_name).id],
            ).fetchall()
            assert len({stored for stored, _ in rows}) == 3
            assert all(stored == result for stored, result in rows)
        connection.rollback()
