"""Pull models into the cache folder, checked by SHA-256.

A pulled model is a folder with a file `SHA256SUMS`, in the format of `sha256sum --check`. It is written under another
name and renamed when it is complete and checked: a folder that exists is usable.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ModelUnavailable, first_line
from kosmos_rag.core.extras import require_extra

SUMS = "SHA256SUMS"
MPNET = "sentence-transformers/all-mpnet-base-v2"

KNOWN_SHA256: Mapping[str, Mapping[str, str]] = {
    MPNET: {"model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"}
}
"""SHA-256 of the weights of models by name and file: another content is refused, whatever the hub says."""

_WEIGHTS = (".safetensors", ".bin")
_OTHER_WEIGHTS = (".bin", ".h5", ".ot", ".msgpack", ".onnx", ".ckpt", ".pt", ".tflite")
_OTHER_RUNTIMES = ("onnx", "openvino", "coreml")
_METADATA = frozenset({SUMS, ".cache", ".git", ".gitattributes", "desktop.ini"})
_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")

Progress = Callable[[int, int, str], None]
"""Called with the number of files done, the number of files, and the name of the next one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledModel:
    """A model in the cache folder."""

    name: str
    folder: Path
    sha256: Mapping[str, str]
    """By path of the file within the folder."""

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum((self.folder / name).stat().st_size for name in self.sha256 if (self.folder / name).is_file())

    def list_changed_files(self) -> list[str]:
        """Return the files that are missing or have another SHA-256.

        All files are read.
        """
        return [name for name, digest in self.sha256.items() if _sha256_if_file(self.folder / name) != digest]


def require_local_models() -> None:
    """Raise ModelUnavailable if the extra `local` is not installed."""
    require_extra(
        "local",
        "a model on this machine",
        "sentence_transformers",
        "huggingface_hub",
        alternative="set url in rag.embedding and rag.reranking to servers",
        error=ModelUnavailable,
    )


def find_pulled(name: str, models: ModelsSettings) -> PulledModel | None:
    """Return a pulled model by its name on the hub.

    The result is None where it was not pulled.
    """
    folder = _folder(name, models)
    try:
        text = (folder / SUMS).read_text(encoding="utf-8")
    except OSError:
        return None
    sums = {file: digest for digest, _, file in (line.partition("  ") for line in text.splitlines())}
    return PulledModel(name=name, folder=folder, sha256=sums)


def list_pulled(models: ModelsSettings) -> list[PulledModel]:
    """List the pulled models by name."""
    names = [file.parent.name.replace("--", "/", 1) for file in _root(models).glob(f"*/{SUMS}")]
    return [model for name in sorted(names) if (model := find_pulled(name, models)) is not None]


def pull_from_folder(name: str, source: Path, models: ModelsSettings) -> PulledModel:
    """Copy a model from a folder into the cache folder.

    Args:
        name: name of the model on the hub, by which the configuration names it.
        source: folder with the files of the model.
        models: the cache folder.

    Raises:
        ModelUnavailable: the folder has no complete model, or its weights are not those of the model of that name.
    """
    _check_name(name)
    if not source.is_dir():
        raise ModelUnavailable(f"there is no folder {str(source)!r}; give the folder of a model")
    files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    selected_files = _select([file.as_posix() for file in files])
    _check_complete(selected_files, f"folder {str(source)!r}")
    with _new_folder(name, models) as folder:
        for file in selected_files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, folder / file)
        _seal(name, folder, selected_files, {})
    return _load_pulled(name, models)


def pull_from_hub(name: str, models: ModelsSettings, on_progress: Progress | None = None) -> PulledModel:
    """Download a model from the hub into the cache folder.

    HF_ENDPOINT names a mirror of the hub.

    Args:
        name: name of the model on the hub.
        models: the cache folder.
        on_progress: called before each file.

    Raises:
        ModelUnavailable: the extra `local` is missing, the hub cannot be reached or has no such model, or a file is
            not what the hub or this package says it is.
    """
    _check_name(name)
    require_local_models()
    if models.offline:
        raise ModelUnavailable(f"{name!r} is not downloaded: models.offline is true; {_remedy(name)}")
    try:
        revision, digests = _list_hub_files(name)
        selected_files = _select(list(digests))
        _check_complete(selected_files, f"{name!r} on the hub")
        with _new_folder(name, models) as folder:
            for number, file in enumerate(selected_files):
                if on_progress is not None:
                    on_progress(number, len(selected_files), file)
                _download(name, file, revision, folder)
            _seal(name, folder, selected_files, {file: digest for file, digest in digests.items() if digest})
    except ModelUnavailable:
        raise
    except Exception as error:  # the client of the hub raises errors of its transport too, by version
        reason = f"{type(error).__name__}: {first_line(error)[:160]}"
        raise ModelUnavailable(
            f"{name!r} cannot be downloaded from {endpoint()} ({reason}); {_remedy(name)}"
        ) from error
    return _load_pulled(name, models)


def endpoint() -> str:
    """Return the address of the hub: HF_ENDPOINT, if it is set."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _remedy(name: str) -> str:
    return (
        "set HF_ENDPOINT to a mirror that is reachable, or copy the model from a folder: "
        f"kosmos-rag models pull {name} --from FOLDER"
    )


def _list_hub_files(name: str) -> tuple[str, dict[str, str | None]]:
    """Return the revision, and the files with their SHA-256.

    The hub states it for large files only.
    """
    from huggingface_hub import HfApi

    info = HfApi().model_info(name, timeout=10, files_metadata=True)
    files = {file.rfilename: file.lfs.sha256 if file.lfs else None for file in info.siblings or ()}
    return info.sha or "main", files


def _download(name: str, file: str, revision: str, folder: Path) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download(name, file, revision=revision, local_dir=folder)


def _select(files: Sequence[str]) -> list[str]:
    """Return the files that PyTorch needs.

    Weights are left out that are for other runtimes, or a second copy.
    """
    runtime_files = [
        file
        for file in files
        if not _METADATA & set(PurePosixPath(file).parts) and PurePosixPath(file).parts[0] not in _OTHER_RUNTIMES
    ]
    if any(file.endswith(".safetensors") for file in runtime_files):
        return [file for file in runtime_files if not file.endswith(_OTHER_WEIGHTS)]
    return [file for file in runtime_files if file.endswith(".bin") or not file.endswith(_OTHER_WEIGHTS)]


def _check_complete(files: Sequence[str], place: str) -> None:
    if "config.json" not in files and "modules.json" not in files:
        raise ModelUnavailable(f"{place} contains no model (no config.json); name another one")
    if not any(file.endswith(_WEIGHTS) for file in files):
        raise ModelUnavailable(f"{place} contains no weights (*.safetensors or *.bin); name another one")


def _seal(name: str, folder: Path, files: Sequence[str], digests: Mapping[str, str]) -> None:
    """Check the files of a model and write their SHA-256. Raises ModelUnavailable."""
    expected = {**digests, **KNOWN_SHA256.get(name, {})}
    sums = {file: _sha256(folder / file) for file in files}
    for file, digest in expected.items():
        if file in sums and sums[file] != digest:
            raise ModelUnavailable(
                f"{file} of {name!r} has SHA-256 {sums[file]} and should have {digest}: it is damaged or another "
                "model; nothing was kept, fetch it again or from another place"
            )
    (folder / SUMS).write_text("".join(f"{digest}  {file}\n" for file, digest in sums.items()), encoding="utf-8")


@contextmanager
def _new_folder(name: str, models: ModelsSettings) -> Iterator[Path]:
    """Yield a scratch folder that becomes the model's folder.

    It is deleted where the block raises.
    """
    target = _folder(name, models)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".pull-", dir=target.parent))
    try:
        yield scratch
        shutil.rmtree(scratch / ".cache", ignore_errors=True)  # the hub library's own notes
        # Private while it is written; other users of the machine, such as a service's, may read it.
        scratch.chmod(0o755)
        if target.exists():
            # Two renames: the former model is replaced only by a complete one.
            former = Path(tempfile.mkdtemp(prefix=".former-", dir=target.parent))
            target.rename(former / target.name)
            scratch.rename(target)
            shutil.rmtree(former, ignore_errors=True)
        else:
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or "--" in name:
        raise ModelUnavailable(f"{name!r} is not the name of a model on the hub; write it as {MPNET}")


def _load_pulled(name: str, models: ModelsSettings) -> PulledModel:
    model = find_pulled(name, models)
    assert model is not None, "it was written just now"
    return model


def _root(models: ModelsSettings) -> Path:
    return models.resolved_cache_dir / "pulled"


def _folder(name: str, models: ModelsSettings) -> Path:
    return _root(models) / name.replace("/", "--")


def _sha256_if_file(path: Path) -> str | None:
    return _sha256(path) if path.is_file() else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
