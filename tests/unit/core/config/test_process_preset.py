"""`rag.preset`: a preset for the whole process, above the defaults and below all that is set."""

from pathlib import Path

import pytest

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import load
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.retrieval.signals.apply import build_signal_rules


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return path


def test_preset__takes_the_place_of_the_defaults(tmp_path: Path) -> None:
    settings, origins = Settings.load_with_origins(_file(tmp_path, "rag: {preset: corporate}"))
    corporate = load("corporate", Settings(), validate=build_signal_rules).apply(Settings())
    assert settings == corporate.model_copy(update={"rag": corporate.rag.model_copy(update={"preset": "corporate"})})
    assert str(origins["rag.retrieval.semantic_weight"]) == "preset corporate"
    assert str(origins["rag.retrieval.top_k"]) == "default"


def test_preset__yields_to_file_environment_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "rag: {preset: corporate, retrieval: {semantic_weight: 0.6}}"
    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__KEYWORD_WEIGHT", "0.4")
    settings, origins = Settings.load_with_origins(_file(tmp_path, text), overrides={"rag.retrieval.default_k": 7})
    retrieval = settings.rag.retrieval
    assert (retrieval.semantic_weight, retrieval.keyword_weight, retrieval.default_k) == (0.6, 0.4, 7)
    assert retrieval.similarity_threshold == 0.1
    assert str(origins["rag.retrieval.keyword_weight"]) == "environment KOSMOS_RAG__RETRIEVAL__KEYWORD_WEIGHT"


def test_preset__is_the_one_that_the_latest_source_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: corporate\nrag: {retrieval: {default_k: 3}}")
    monkeypatch.setenv("KOSMOS_RAG__PRESET", str(mine))
    settings = Settings.load(_file(tmp_path, "rag: {preset: analytics}"))
    assert (settings.rag.retrieval.default_k, settings.rag.retrieval.semantic_weight) == (3, 0.8)
    assert settings.rag.chunking.strategy == "paragraph"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corporat", r"rag\.preset is \"corporat\" \(file .*settings\.yaml\): there is no preset 'corporat'; use adr"),
        ("gone.yaml", r"rag\.preset is \"gone\.yaml\" .*gone\.yaml cannot be read"),
        ("7", r"rag\.preset is 7 \(file .*\): it must be a valid string in quotes"),
        ("''", r"rag\.preset is \"\" .*"),
    ],
)
def test_preset__that_cannot_be_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Settings.load(_file(tmp_path, f"rag: {{preset: {name}}}"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values", ["database: {pool_size: 5}", "rag: {preset: corporate}", "rag: {embedding: {model: x}}"]
)
def test_preset__sets_what_the_preset_of_a_collection_may_set(tmp_path: Path, values: str) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(values)
    with pytest.raises(ConfigError, match=r"\(preset mine\) is not a setting of a collection"):
        Settings.load(_file(tmp_path, f"rag: {{preset: {mine}}}"))
