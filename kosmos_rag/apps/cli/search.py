"""kosmos-rag search: ranked passages for a question."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    console,
    not_blank,
    print_json,
    reader,
    shown,
)
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import Filter, SearchResult
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant

_PREVIEW_CHARS = 240

QuestionArgument = Annotated[str, typer.Argument(help="What to look for, in plain words.")]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions(ReadOptions):
    """How many passages are looked for, in which documents of whom, as whom."""

    k: Annotated[int | None, typer.Option("-k", help="How many hits; the configured number by default.")] = None
    source: Annotated[list[str] | None, typer.Option("--source", help="Only this file or folder; may be repeated.")] = (
        None
    )
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Only documents with this metadata; may be repeated."),
    ] = None
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="JSON", help='Only documents like this: {"metadata.year": {"$gte": 2024}}.'),
    ] = None
    principal: PrincipalOption = None

    def scope(self, engine: "Engine") -> "Tenant":
        """Return what is searched. Raises RequestError on a malformed name."""
        return reader(engine, self.tenant, self.collection, self.principal)

    def filter(self) -> "Filter | None":
        """Build the filter that the options describe; all of them must hold. Raises RequestError on a malformed one."""
        from kosmos_rag.core.types import Filter
        from kosmos_rag.ingestion.sources.files import name_of

        conditions = [_equality(pair) for pair in self.metadata or ()]
        if self.where is not None:
            conditions.append(_conditions(self.where))
        if not self.source and not conditions:
            return None
        # A source need not be a file: what is not there is taken as the name it was ingested under.
        names = tuple(
            name_of(Path(source)) if Path(source).exists() else source for source in not_blank(self.source, "--source")
        )
        return Filter(sources=names, where={"$and": conditions} if len(conditions) > 1 else next(iter(conditions), {}))


ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Show how each hit came to its rank, and what each stage did and took.")
]


def _equality(pair: str) -> dict[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise RequestError(f"--metadata {pair!r} is not KEY=VALUE; write --metadata year=2026")
    try:
        return {f"metadata.{key}": {"$eq": json.loads(value)}}
    except ValueError:
        return {f"metadata.{key}": {"$eq": value}}


def _conditions(where: str) -> dict[str, Any]:
    try:
        conditions = json.loads(where)
    except (ValueError, RecursionError):
        conditions = None
    if not isinstance(conditions, dict) or not conditions:
        example = '{"metadata.year": {"$gte": 2024}}'
        raise RequestError(f"--where {where!r} is not a JSON object of conditions; write --where '{example}'")
    return conditions


@command
def search(question: QuestionArgument, options: SearchOptions, explain: ExplainOption = False) -> None:
    """Show the best passages for a question."""
    wanted = options.filter()
    with options.open_engine() as engine:
        scope = options.scope(engine)
        engine.warm_up()
        found = scope.search(question, options.k, wanted)
    if options.as_json:
        print_json(found.to_dict())
    elif explain:
        # Not through the console, which would fold the table at the width of the window.
        typer.echo(found.explain(), nl=False)
    else:
        _print(found)


def _print(found: "SearchResult") -> None:
    out = console()
    for hit in found.hits:
        out.print(f"{hit.rank:>2}. {shown(hit.source)} | {hit.location}  ({hit.score:.4f})", style="bold")
        out.print(f"    {preview(hit.text)}")
    for note in found.warnings:
        out.print(f"note: {note}")
    if found.incomplete_reason:
        out.print(f"{found.returned} of {found.requested} asked for: {found.incomplete_reason}")
    out.print(f"{found.returned} hits in {found.timings_ms['total']:.0f} ms", style="dim")


def preview(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW_CHARS else line[: _PREVIEW_CHARS - 1] + "…"
