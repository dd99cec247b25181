"""Which of defaults, file, environment and arguments gives a value, and that the settings say so."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from kosmos_rag.core.config import Settings, flatten
from kosmos_rag.core.config.keys import iter_keys

TOP_K = "rag.retrieval.top_k"


def write(path: Path, top_k: int) -> Path:
    path.write_text(f"rag:\n  retrieval:\n    top_k: {top_k}\n")
    return path


def test_precedence__each_level_wins_over_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("given.yaml")
    settings, origins = Settings.load_with_origins()
    assert (settings.rag.retrieval.top_k, str(origins[TOP_K])) == (20, "default")

    write(path, 30)
    settings, origins = Settings.load_with_origins(path)
    assert (settings.rag.retrieval.top_k, str(origins[TOP_K])) == (30, "file given.yaml")

    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__TOP_K", "40")
    settings, origins = Settings.load_with_origins(path)
    assert settings.rag.retrieval.top_k == 40
    assert str(origins[TOP_K]) == "environment KOSMOS_RAG__RETRIEVAL__TOP_K"

    settings, origins = Settings.load_with_origins(path, overrides={TOP_K: 50})
    assert (settings.rag.retrieval.top_k, str(origins[TOP_K])) == (50, "argument")


def test_precedence__levels_give_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("rag-config.yaml"), 30)
    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__CANDIDATES", "300")
    settings = Settings.load(overrides={"rag.retrieval.rrf_k": 10})
    retrieval = settings.rag.retrieval
    assert (retrieval.top_k, retrieval.candidates, retrieval.rrf_k, retrieval.keyword_weight) == (30, 300, 10, 0.5)


def test_file__path_wins_over_variable_wins_over_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "rag-config.yaml", 31)
    assert Settings.load().rag.retrieval.top_k == 31
    monkeypatch.setenv("KOSMOS_CONFIG", str(write(tmp_path / "named.yaml", 32)))
    assert Settings.load().rag.retrieval.top_k == 32
    assert Settings.load(write(tmp_path / "given.yaml", 33)).rag.retrieval.top_k == 33


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "rag:\n", "rag:\n  retrieval:\n"])
def test_file__without_keys_means_the_defaults(text: str) -> None:
    Path("rag-config.yaml").write_text(text)
    assert Settings.load() == Settings()


def test_file__with_byte_order_mark_is_read() -> None:
    Path("rag-config.yaml").write_bytes(b"\xef\xbb\xbfmodels:\n  offline: true\n")
    assert Settings.load().models.offline is True


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("RAG__RETRIEVAL__TOP_K", "5", "rag.retrieval.top_k", 5),
        ("RAG__RETRIEVAL__KEYWORD_WEIGHT", "1", "rag.retrieval.keyword_weight", 1.0),
        ("RAG__RERANKING__ENABLED", "false", "rag.reranking.enabled", False),
        ("RAG__RERANKING__ENABLED", "0", "rag.reranking.enabled", False),
        ("RAG__CHUNKING__SEPARATORS", '["\\n", " "]', "rag.chunking.separators", ["\n", " "]),
        ("RAG__CHUNKING__STRATEGY", "markdown", "rag.chunking.strategy", "markdown"),
        ("RAG__CONTEXT__CITATION_FORMAT", "({index})", "rag.context.citation_format", "({index})"),
        ("DATABASE__DATA_DIR", "/var/kosmos", "database.data_dir", "/var/kosmos"),
        ("MODELS__CACHE_DIR", "null", "models.cache_dir", None),
        ("MODELS", '{"device": "cuda"}', "models.device", "cuda"),
        ("RAG__RETRIEVAL", '{"top_k": 5}', "rag.retrieval.top_k", 5),
    ],
)
def test_environment__text_becomes_the_type_of_its_key(
    name: str, text: str, key: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"KOSMOS_{name}", text)
    settings, origins = Settings.load_with_origins()
    assert flatten(settings) == flatten(Settings()) | {key: value}
    assert type(flatten(settings)[key]) is type(value)
    assert {key for key, origin in origins.items() if origin.level != "default"} == {key}
    assert origins[key].name == f"KOSMOS_{name}"


def test_environment__null_takes_back_what_the_file_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("rag-config.yaml").write_text("database: {url: 'postgres://h/d', worker_url: 'postgres://w@h/d'}\n")
    monkeypatch.setenv("KOSMOS_DATABASE__URL", "embedded")
    monkeypatch.setenv("KOSMOS_DATABASE__WORKER_URL", "null")
    assert Settings.load() == Settings()


def test_environment__single_key_wins_over_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__TOP_K", "6")
    monkeypatch.setenv("KOSMOS_RAG", '{"retrieval": {"top_k": 5, "candidates": 50}}')
    settings, origins = Settings.load_with_origins()
    assert (settings.rag.retrieval.top_k, settings.rag.retrieval.candidates) == (6, 50)
    assert origins["rag.retrieval.top_k"].name == "KOSMOS_RAG__RETRIEVAL__TOP_K"
    assert origins["rag.retrieval.candidates"].name == "KOSMOS_RAG"


def test_environment__variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_TEST_DATABASE_URL", "postgresql://h/d")
    monkeypatch.setenv("RAG__RETRIEVAL__TOP_K", "5")
    assert Settings.load() == Settings()


def test_arguments__text_is_read_as_the_environment_reads_it() -> None:
    settings = Settings.load(overrides={TOP_K: "5", "models.offline": "true", "models.device": "cuda"})
    assert (settings.rag.retrieval.top_k, settings.models.offline, settings.models.device) == (
        5,
        True,
        "cuda",
    )


def test_origins__name_every_key() -> None:
    _, origins = Settings.load_with_origins()
    assert list(origins) == list(flatten(Settings())) == [key for key, _ in iter_keys(Settings)]


def test_constructor__takes_nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("rag-config.yaml"), 30)
    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__TOP_K", "40")
    assert Settings().rag.retrieval.top_k == 20


def test_settings__are_frozen_at_every_level() -> None:
    settings = Settings()
    for model, name in [(settings, "rag"), (settings.rag, "context"), (settings.rag.context, "max_tokens")]:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, name, 1)


def test_data_dir__default_is_under_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_data_path", lambda app, appauthor: tmp_path / app)
    assert Settings().database.resolved_data_dir == tmp_path / "kosmos-rag" / "postgres"


def test_cache_dir__default_is_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda app, appauthor: tmp_path / app)
    assert Settings().models.resolved_cache_dir == tmp_path / "kosmos-rag" / "models"
    settings = Settings.load(overrides={"models.cache_dir": "ours"})
    assert settings.models.resolved_cache_dir == tmp_path / "ours"


def test_data_dir__default_of_root_is_outside_of_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    usual = tmp_path / "data" / "kosmos-rag" / "postgres"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert Settings().database.resolved_data_dir == Path("/var/lib/kosmos-rag/postgres")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert Settings().database.resolved_data_dir == usual
    monkeypatch.setattr("os.geteuid", lambda: 0)
    usual.mkdir(parents=True)
    assert Settings().database.resolved_data_dir == usual, "a database that is there is found again"


def test_data_dir__relative_and_home_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value, resolved in [("server", tmp_path / "server"), ("~/server", tmp_path / "home" / "server")]:
        settings = Settings.load(overrides={"database.data_dir": value})
        assert settings.database.resolved_data_dir == resolved


def test_load__takes_an_empty_name_of_a_file_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOSMOS_CONFIG", "")
    assert Settings.load() == Settings()
    (tmp_path / "rag-config.yaml").write_text("rag: {retrieval: {top_k: 7}}")
    assert Settings.load().rag.retrieval.top_k == 7
