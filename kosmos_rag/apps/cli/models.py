"""kosmos-rag models: recommend, fetch and list models."""

import re
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from kosmos_rag.apps.cli.common import console, print_json, progress, table
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import ModelUnavailable, RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.engine.local_models import ListedModel, PulledModel

app = typer.Typer(help="Recommend models, and fetch and list those that run on this machine.", no_args_is_help=True)


@app.command("pull")
@command
def pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names on the hub; default: the configured models."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Copy one model from this folder instead.")
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Fetch models into the cache folder, and check their SHA-256.

    From the hub, the mirror that HF_ENDPOINT names, or a folder. A model that was fetched before is fetched again.
    """
    settings = common.load_settings()
    from kosmos_rag.engine.local_models import pull_from_folder, pull_from_hub

    model_names = names or _list_hub_models(settings)
    if folder is not None and len(model_names) != 1:
        raise RequestError(f"--from FOLDER has one model, and {len(model_names)} are named; name only that model")
    pulled = []
    for name in model_names:
        if folder is not None:
            pulled.append(pull_from_folder(name, folder, settings.models))
        else:
            with progress(visible=not common.as_json) as advance:
                pulled.append(pull_from_hub(name, settings.models, advance))
    if common.as_json:
        print_json({"models": [_serialize_model(model) for model in pulled]})
        return
    if not pulled:
        console().print("nothing to fetch: no configured model is on the hub")
    for model in pulled:
        console().print(f"{model.name}: {len(model.sha256)} files, {_megabytes(model)} MB, in {model.folder}")


@app.command("list")
@command
def list_models(
    *,
    common: CommonOptions,
) -> None:
    """List the configured and the fetched models, and where they are.

    The SHA-256 of fetched models is checked: their files are read. Exits with 1 where a file has changed.
    """
    settings = common.load_settings()
    rows = _rows(settings)
    if common.as_json:
        print_json({"models": rows})
    else:
        listing = table("model", "use", "state", "where")
        for row in rows:
            listing.add_row(row["name"], row["use"] or "", row["state"], row["folder"] or "")
        console().print(listing)
    if any(row["state"] == "changed" for row in rows):
        raise typer.Exit(1)


class Machine(StrEnum):
    """Where a model runs."""

    PROCESSOR = "processor"
    GPU = "gpu"
    SERVER = "server"


@app.command("recommend")
@command
def recommend(
    *,
    language: Annotated[
        str, typer.Option("--language", metavar="CODE", help="Of the documents, ISO 639-1: en, de, zh.")
    ] = "en",
    machine: Annotated[
        Machine, typer.Option("--machine", help="This machine's processor, a GPU, or a server behind an address.")
    ] = Machine.PROCESSOR,
    common: CommonOptions,
) -> None:
    """List models that fit a language and a machine, and the configuration of the first ones."""
    from kosmos_rag.engine.local_models import recommend_models

    if re.fullmatch("[a-z]{2}", language) is None:
        raise RequestError(f"--language {language} is no ISO 639-1 code; give two letters, such as en, de or zh")
    models = recommend_models(language, machine.value)
    if common.as_json:
        print_json({"models": [{**asdict(model), "settings": model.settings()} for model in models]})
        return
    listing = table("model", "use", "dimensions", "tokens", "parameters", "licence", "published by its authors", "note")
    for model in models:
        published = "" if model.published is None else f"{model.published.value} ({model.published.measure})"
        listing.add_row(
            model.name, model.use, str(model.dimensions or ""), str(model.max_tokens), f"{model.million} M",
            model.licence, published, model.note,
        )  # fmt: skip
    console().print(listing)
    first: dict[str, ListedModel] = {}
    for model in models:
        first.setdefault(model.use, model)
    configuration = {"rag": {use: model.settings() for use, model in first.items()}}
    console().print("\nThe first of each in the configuration:\n")
    typer.echo(yaml.safe_dump(configuration, sort_keys=False, allow_unicode=True), nl=False)


def _list_hub_models(settings: "Settings") -> list[str]:
    """Return the configured models that are neither folders nor packaged."""
    from kosmos_rag.engine.local_models import list_configured_models, locate

    models = list_configured_models(settings.rag)
    return list(dict.fromkeys(model.name for model in models if locate(model.name) == model.name))


def _rows(settings: "Settings") -> list[dict[str, Any]]:
    from kosmos_rag.engine.local_models import list_configured_models, list_pulled

    uses: dict[str, list[str]] = {}
    for model in list_configured_models(settings.rag):
        uses.setdefault(model.name, []).append(model.use)
    pulled = {model.name: model for model in list_pulled(settings.models)}
    rows = []
    for name in [*uses, *(name for name in pulled if name not in uses)]:
        pulled_model = pulled.get(name)
        state, folder = _state(name, settings) if pulled_model is None else _check(pulled_model)
        rows.append({"name": name, "use": ", ".join(uses.get(name, [])) or None, "state": state, "folder": folder})
    return rows


def _check(model: "PulledModel") -> tuple[str, str]:
    return ("changed" if model.list_changed_files() else "checked"), str(model.folder)


def _state(name: str, settings: "Settings") -> tuple[str, str | None]:
    """Return state and folder of a model that was not pulled."""
    from kosmos_rag.engine.local_models import find_local

    try:
        location = find_local(name, settings.models)
    except ModelUnavailable:
        return "missing", None
    if location is None:
        return "missing", None
    return ("present", location) if Path(location).is_dir() else ("cached", None)


def _serialize_model(model: "PulledModel") -> dict[str, Any]:
    return {"name": model.name, "folder": str(model.folder), "bytes": model.bytes, "sha256": dict(model.sha256)}


def _megabytes(model: "PulledModel") -> int:
    return round(model.bytes / 1e6)
