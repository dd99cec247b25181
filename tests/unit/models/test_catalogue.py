"""The list of recommended models: each entry is a configuration that loads."""

import pytest

from kosmos_rag import Settings
from kosmos_rag.models.catalogue import ListedModel, find_listed, list_languages, load_catalogue, recommend_models

MODELS = load_catalogue()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_settings__of_each_model_are_valid(model: ListedModel) -> None:
    settings = Settings.load(overrides={f"rag.{model.use}.{key}": value for key, value in model.settings().items()})
    configured = settings.rag.embedding if model.use == "embedding" else settings.rag.reranking
    assert configured.model == model.name
    if model.use == "embedding":
        embedding = settings.rag.embedding
        assert embedding.dimensions == model.dimensions
        assert (embedding.query_prefix, embedding.passage_prefix) == (model.query_prefix, model.passage_prefix)


@pytest.mark.parametrize("model", [model for model in MODELS if model.matryoshka], ids=lambda model: model.name)
def test_settings__of_fewer_dimensions_are_valid_with_matryoshka(model: ListedModel) -> None:
    assert model.dimensions is not None
    for dimensions in model.matryoshka:
        assert dimensions < model.dimensions
        changes = model.settings() | {"dimensions": dimensions, "matryoshka": "client"}
        Settings.load(overrides={f"rag.embedding.{key}": value for key, value in changes.items()})


def test_catalogue__names_each_model_once() -> None:
    assert len({(model.use, model.name) for model in MODELS}) == len(MODELS)


def test_recommend__excludes_models_of_other_languages_and_machines() -> None:
    german = recommend_models("de", "processor")
    assert next(model.name for model in german if model.use == "embedding") == "intfloat/multilingual-e5-small"
    assert all("*" in model.languages or "de" in model.languages for model in german)
    assert "BAAI/bge-m3" not in {model.name for model in german}
    assert "BAAI/bge-m3" in {model.name for model in recommend_models("de", "gpu")}
    assert {model.use for model in recommend_models("en", "processor")} == {"embedding", "reranking"}


def test_find__takes_the_name_with_or_without_its_organisation() -> None:
    assert find_listed("all-MiniLM-L6-v2", "embedding") == find_listed(
        "sentence-transformers/all-MiniLM-L6-v2", "embedding"
    )
    assert find_listed("folder/of/mine", "embedding") is None


def test_list_languages__is_empty_where_they_are_unknown_or_about_a_hundred() -> None:
    assert list_languages("packaged:all-MiniLM-L6-v2", "embedding") == ("en",)
    assert list_languages("BAAI/bge-m3", "embedding") == ()
    assert list_languages("folder/of/mine", "embedding") == ()
