"""Presets of collections: read, extended, stored, and gone by in ingestion and retrieval."""

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.config.presets import list_shipped, load
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from tests.integration.variants import opened

SALES = SourceDocument(
    source="schema_docs.txt",
    data=b"Table: sales\n\nTotal sales:\nSELECT SUM(amount) FROM sales\n\nRegions are North and South",
)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _policies(*departments: str) -> list[SourceDocument]:
    text = b"Annual leave is twenty days a year for all employees of the company."
    return [SourceDocument(source=f"/kb/{name}/policy.txt", data=text) for name in departments]


@pytest.mark.parametrize("name", ["adr", "analytics", "corporate", "keyword"])
def test_list_shipped__can_be_laid_over_the_defaults(name: str) -> None:
    assert name in list_shipped()
    assert load(name, Settings(), validate=build_signal_rules).apply(Settings()) != Settings()


def test_list_shipped__say_what_the_documents_of_their_systems_say() -> None:
    analytics = load("analytics", Settings(), validate=build_signal_rules).apply(Settings()).rag
    assert 500 <= analytics.chunking.max_size <= 900
    assert 80 <= analytics.chunking.overlap <= 120
    assert analytics.chunking.min_size == 80
    corporate = load("corporate", Settings(), validate=build_signal_rules).apply(Settings()).rag
    assert (corporate.retrieval.semantic_weight, corporate.retrieval.keyword_weight) == (0.8, 0.2)
    assert (corporate.chunking.strategy, corporate.chunking.min_size) == ("paragraph", 40)
    keyword = load("keyword", Settings(), validate=build_signal_rules).apply(Settings()).rag
    assert keyword.retrieval.semantic_weight == 0


def test_extends__lays_a_file_over_what_it_extends(tmp_path: Path) -> None:
    _write(tmp_path / "base.yaml", "extends: analytics\nrag: {retrieval: {top_k: 7}, signals: {one_per_source: null}}")
    mine = _write(
        tmp_path / "mine.yaml",
        "extends: base.yaml\nrag: {signals: {header_match: {weight: 0.9}, exact_phrase: {weight: 1.0}}}",
    )
    rag = load(mine, Settings(), validate=build_signal_rules).apply(Settings()).rag
    assert rag.retrieval.top_k == 7
    assert rag.chunking.strategy == "hierarchical"
    assert list(rag.signals) == ["intro_penalty", "header_match", "word_overlap", "keyword_gate", "exact_phrase"]
    assert rag.signals["header_match"] == {"weight": 0.9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: mine.yaml", "extend each other in a circle"),
        ("extends: other.yaml", "extend each other in a circle"),
        (
            "extends: analitics",
            "there is no preset 'analitics'; use adr, analytics, corporate, corporate-enforced, keyword",
        ),
        ("extends: gone.yaml", "gone.yaml cannot be read"),
        ("extends: [analytics]", "name one preset"),
        ("rag: {retrieval: {topk: 5}}", r"rag\.retrieval\.topk \(preset mine\) is not a key .*rag\.retrieval\.top_k\?"),
        ("rag: {retrieval: {top_k: 0}}", r"rag\.retrieval\.top_k is 0 \(preset mine\): it must be"),
        ("rag: {chunking: {min_size: 5000}}", r"min_size is 5000 \(preset mine\) and .*max_size is 1000 \(settings\)"),
        ("rag: {signals: {zzz: {}}}", r"rag\.signals\.zzz is no signal"),
        ("rag: {embedding: {batch_size: 5}}", r"rag\.embedding\.batch_size \(preset mine\) is not a setting of a coll"),
        ("rag: {retrieval: {result_cache: 5}}", "is not a setting of a collection"),
        ("database: {pool_size: 5}", "is not a setting of a collection"),
        ("rag: {answer: {template: ./own.j2}}", r"the preset mine is \./own\.j2: a preset is stored without files"),
        ("rag: {answer: {template: strict}}", r"rag\.answer\.template is \"strict\" \(preset mine\): it must"),
        ("- rag", "its top level must be a mapping"),
        ("rag: {a: 1, a: 2}", "given twice"),
    ],
)
def test_preset__that_cannot_be_is_named(tmp_path: Path, text: str, message: str) -> None:
    _write(tmp_path / "other.yaml", "extends: mine.yaml")
    with pytest.raises(ConfigError, match=message) as caught:
        load(_write(tmp_path / "mine.yaml", text), Settings(), validate=build_signal_rules)
    assert "\n" not in str(caught.value)


def test_collection__goes_by_its_preset_in_ingestion_and_retrieval(engine: Engine, tenant_name: str) -> None:
    acme = engine.tenant(tenant_name)
    acme.collections.create("sql", preset="keyword")
    for name in ("sql", "plain"):
        engine.tenant(tenant_name, collection=name).ingest([SALES])
    result = engine.tenant(tenant_name, collection="sql").search("sum of sales")
    assert list(result.retrievers) == ["lexical"]
    assert "signals" in result.stages
    assert result.hits[0].text == "Total sales:\nSELECT SUM(amount) FROM sales"
    assert result.hits[0].signals == {"sql_keywords": 0.2}
    assert "0.200 sql_keywords = 1.200" in result.explain()
    plain = engine.tenant(tenant_name, collection="plain").search("sum of sales")
    assert set(plain.retrievers) == {"dense", "lexical"}
    assert [dict(hit.signals) for hit in plain.hits] == [{}]
    assert [(c.name, c.preset, c.chunks) for c in acme.collections.infos()] == [
        ("plain", None, 1),
        ("sql", "keyword", 3),
    ]


def test_question_over_all_collections__goes_by_the_tenants_settings_and_says_so(
    engine: Engine, tenant_name: str
) -> None:
    engine.tenant(tenant_name).collections.create("sql", preset="keyword")
    engine.tenant(tenant_name, collection="sql").ingest([SALES])
    result = engine.tenant(tenant_name).search("sum of sales")
    assert "the presets of sql apply to questions that name the collection" in result.warnings
    assert not any(hit.signals for hit in result.hits)
    assert engine.tenant(f"{tenant_name}-other").search("sum of sales").warnings == ()


def test_context__goes_by_the_preset_of_the_collection(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    preset = _write(tmp_path / "mine.yaml", "extends: keyword\nrag: {context: {citation_format: '<{index}>'}}")
    engine.tenant(tenant_name).collections.create("sql", preset=preset)
    scope = engine.tenant(tenant_name, collection="sql")
    scope.ingest([SALES])
    assert scope.context("sum of sales").text.startswith("<1>")


def test_preset__is_stored_whole(settings: Settings, engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    path = _write(tmp_path / "mine.yaml", "extends: keyword\nrag: {signals: {sql_keywords: {weight: 0.7}}}")
    engine.tenant(tenant_name).collections.create("sql", preset=path)
    path.write_text("extends: analytics")
    with opened(settings, {}) as other:
        scope = other.tenant(tenant_name, collection="sql")
        scope.ingest([SALES])
        assert scope.search("sum of sales").hits[0].signals == {"sql_keywords": 0.7}
        assert other.tenant(tenant_name).collections.settings("sql")["rag"]["signals"]["sql_keywords"] == {
            "weight": 0.7
        }


def test_create__with_the_same_preset_changes_nothing_and_with_another_is_refused(
    engine: Engine, tenant_name: str
) -> None:
    collections = engine.tenant(tenant_name).collections
    assert collections.create("kb", preset="keyword") == collections.create("kb", preset="keyword")
    with pytest.raises(
        RequestError, match="has the preset keyword with other settings; change it with `collection set-preset kb`"
    ):
        collections.create("kb", preset="analytics")
    with pytest.raises(RequestError, match="malformed"):
        collections.create("K B", preset="analytics")
    assert [info.preset for info in engine.tenant(tenant_name).collections.infos()] == ["keyword"]
    assert engine.tenant(f"{tenant_name}-other").collections.infos() == []


def test_delete__removes_documents_and_preset(engine: Engine, tenant_name: str) -> None:
    collections = engine.tenant(tenant_name).collections
    collections.create("sql", preset="keyword")
    scope = engine.tenant(tenant_name, collection="sql")
    scope.ingest([SALES])
    assert collections.delete("sql") == 1
    assert collections.infos() == []
    assert collections.settings("sql") == {}
    scope.ingest([SALES])
    assert set(scope.search("sum of sales").retrievers) == {"dense", "lexical"}


def test_documents__take_a_preset_with_their_next_ingestion(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name, collection="sql")
    assert scope.ingest([SALES]).chunks == 1
    engine.tenant(tenant_name).collections.create("sql", preset="keyword")
    report = scope.ingest([SALES])
    assert (report.changed, report.chunks) == (1, 3)
    assert scope.ingest([SALES]).unchanged == 1


def test_kept_results__are_those_of_the_preset(settings: Settings, tmp_path: Path, tenant_name: str) -> None:
    with opened(settings, {"rag.retrieval.result_cache": 10}) as engine:
        collections = engine.tenant(tenant_name).collections
        scope = engine.tenant(tenant_name, collection="sql")
        scope.ingest([SALES])
        assert [scope.search("sum of sales").cached for _ in range(2)] == [False, True]
        weights = []
        for weight in (0.2, 0.9):
            rag = {"chunking": _chunking(settings), "signals": {"sql_keywords": {"weight": weight}}}
            preset = _write(tmp_path / "mine.yaml", json.dumps({"rag": rag}))
            collections.set_preset("sql", preset=preset)
            first, second = scope.search("sum of sales"), scope.search("sum of sales")
            assert (first.cached, second.cached) == (False, True)
            weights.append(second.hits[0].signals["sql_keywords"])
        assert weights == [0.2, 0.9]


def test_refused_question__is_asked_again_by_the_preset_that_another_process_has_set(
    settings: Settings, engine: Engine, tmp_path: Path, tenant_name: str
) -> None:
    short, long = (
        _write(tmp_path / f"{limit}.yaml", f"rag: {{retrieval: {{max_question_chars: {limit}}}}}")
        for limit in (10, 100)
    )
    scope = engine.tenant(tenant_name, collection="limits")
    engine.tenant(tenant_name).collections.create("limits", preset=short)
    scope.ingest(SourceDocument(source="a", data=b"Twenty days of leave."))
    assert scope.search("leave").returned == 1
    # The engine keeps the preset of the last question.
    with pytest.raises(RequestError, match="max_question_chars allows 10"):
        scope.search("twenty days of leave")
    with opened(settings, {}) as other:
        other.tenant(tenant_name).collections.set_preset("limits", preset=long)
    assert scope.search("twenty days of leave").returned == 1
    with opened(settings, {}) as other:
        other.tenant(tenant_name).collections.set_preset("limits", preset=short)
    with pytest.raises(RequestError, match="max_question_chars allows 10"):
        scope.search("twenty days of leave")


def _chunking(settings: Settings) -> dict[str, Any]:
    return settings.rag.chunking.model_dump(mode="json")


def test_corporate__prefers_the_readers_department_and_hides_nothing(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).collections.create("policies", preset="corporate")
    engine.tenant(tenant_name, collection="policies").ingest(_policies("finance", "hr", "it"))

    def order(*principals: str) -> list[tuple[str, float]]:
        scope = engine.tenant(tenant_name, collection="policies", principals=("everyone", *principals))
        hits = scope.search("annual leave").hits
        return [(hit.source.split("/")[2], round(sum(hit.signals.values()), 4)) for hit in hits]

    plain = order()
    assert {change for _, change in plain} == {0.0}
    assert order("department:hr")[0] == ("hr", 0.2)
    assert order("department:HR of another spelling")[0][1] == -0.1
    assert {change for name, change in order("department:hr") if name != "hr"} == {-0.1}
    assert order("department:hr", "role:Manager") == plain
    analyst = dict(order("department:finance", "role:SecurityAnalyst"))
    assert analyst == pytest.approx({"finance": 0.2, "it": -0.1 + 0.9 * 0.15, "hr": -0.1})


def test_question__outside_of_the_collections_words_is_answered_short(
    engine: Engine, tmp_path: Path, tenant_name: str
) -> None:
    preset = _write(tmp_path / "mine.yaml", "rag: {signals: {one_per_source: {}}, chunking: {strategy: paragraph}}")
    engine.tenant(tenant_name).collections.create("kb", preset=preset)
    scope = engine.tenant(tenant_name, collection="kb")
    scope.ingest([SourceDocument(source="a", data=b"\n\n".join(b"churn %d " % n * 90 for n in range(5)))])
    result = scope.search("churn", 3)
    assert result.returned == 1
    assert result.incomplete_reason is not None
    assert "left by signals: one_per_source left out" in result.incomplete_reason


def test_database__keeps_the_presets_of_tenants_apart(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    import psycopg

    engine.tenant(tenant_name).collections.create("sql", preset="keyword")
    with psycopg.connect(database.url) as connection:
        connection.execute(
            "SELECT kosmos.set_tenant_context(%s, %s)", [engine.tenant(f"{tenant_name}-other").id, ["everyone"]]
        )
        assert connection.execute("SELECT count(*) FROM kosmos.collection_presets").fetchone() == (0,)
