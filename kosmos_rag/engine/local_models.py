"""The models on this machine: which are configured, where they are, and how to fetch them."""

from kosmos_rag.models.catalogue import ListedModel, find_listed, recommend_models
from kosmos_rag.models.configured import list_configured_models
from kosmos_rag.models.download import PulledModel, list_pulled, pull_from_folder, pull_from_hub
from kosmos_rag.models.hub import find_local, locate
from kosmos_rag.models.packaged import MINILM, MINILM_INT8

__all__ = [
    "MINILM",
    "MINILM_INT8",
    "ListedModel",
    "PulledModel",
    "find_listed",
    "find_local",
    "list_configured_models",
    "list_pulled",
    "locate",
    "pull_from_folder",
    "pull_from_hub",
    "recommend_models",
]
