"""kosmos-rag search: ranked passages for a question."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    QuestionArgument,
    console,
    open_reader,
    parse_pair,
    print_json,
    require_not_blank,
    source_names,
    warm_up,
)
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.core.types import Filter, SearchResult
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant

_PREVIEW_CHARS = 240


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions(ReadOptions):
    """Options of a search: number of hits, filters, reader."""

    k: Annotated[int | None, typer.Option("-k", help="Number of hits; default: as configured.")] = None
    source: Annotated[list[str] | None, typer.Option("--source", help="Only this file or folder; may be repeated.")] = (
        None
    )
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="Only documents with this metadata; may be repeated."),
    ] = None
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="JSON", help='Only documents that match: {"metadata.year": {"$gte": 2024}}.'),
    ] = None
    syntax: Annotated[
        Literal["auto", "operators", "plain"],
        typer.Option(
            "--syntax",
            help="Read + and - before words as operators: plain never, operators always, auto where the question has "
            "at most six other words.",
        ),
    ] = "auto"
    principal: PrincipalOption = None

    def open_reader(self, engine: "Engine") -> "Tenant":
        """Open the tenant for the reader. Raises RequestError for a malformed name."""
        return open_reader(engine, self.tenant, self.collection, self.principal)

    def filter(self) -> "Filter | None":
        """Build the filter; a document must match all options.

        Raises RequestError for a malformed one.
        """
        from kosmos_rag.core.types import Filter

        conditions = [_equality(pair) for pair in self.metadata or ()]
        if self.where is not None:
            conditions.append(_conditions(self.where))
        if not self.source and not conditions:
            return None
        source_options = require_not_blank(self.source, "--source")
        names = tuple(dict.fromkeys(name for source in source_options for name in source_names(source)))
        return Filter(sources=names, where={"$and": conditions} if len(conditions) > 1 else next(iter(conditions), {}))


ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Show the scores of each hit, and the work and duration of each stage.")
]


def _equality(pair: str) -> dict[str, Any]:
    key, value = parse_pair(pair)
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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DisplayOptions:
    """Options of how the hits are shown: pages, groups, facets, diversity."""

    cursor: Annotated[
        str | None, typer.Option("--cursor", help="* for the first of several pages, then the cursor that it shows.")
    ] = None
    group_by: Annotated[
        Literal["document"] | None, typer.Option("--group-by", help="Show one hit for each document.")
    ] = None
    group_size: Annotated[
        int | None, typer.Option("--group-size", help="Passages of a document with --group-by; default: 3.")
    ] = None
    facet: Annotated[
        list[str] | None,
        typer.Option("--facet", metavar="FIELD", help="Count the values of metadata.KEY; may be repeated."),
    ] = None
    mmr: Annotated[float | None, typer.Option("--mmr", help="Prefer diverse hits: weight of relevance, 0 to 1.")] = None
    effort: Annotated[
        Literal["low", "high"],
        typer.Option("--effort", help="high fuses up to six searches that the language model plans."),
    ] = "low"


AlsoOption = Annotated[
    list[str] | None,
    typer.Option("--also", metavar="QUESTION", help="Another question, whose hits are fused in; may be repeated."),
]


@command
def search(
    question: QuestionArgument,
    options: SearchOptions,
    result_options: DisplayOptions,
    explain: ExplainOption = False,
    also: AlsoOption = None,
) -> None:
    """Show the best passages for a question."""
    filter_ = options.filter()
    with options.open_engine() as engine:
        tenant = options.open_reader(engine)
        warm_up(engine)
        result = tenant.search(
            [question, *also] if also else question,
            options.k,
            filter_,
            syntax=options.syntax,
            cursor=result_options.cursor,
            group_by=result_options.group_by,
            group_size=result_options.group_size,
            facets=result_options.facet or (),
            mmr=result_options.mmr,
            effort=result_options.effort,
        )
    if options.as_json:
        print_json(result.to_dict())
    elif explain:
        # Not through the console, which would wrap the table.
        typer.echo(result.explain(), nl=False)
    else:
        _print(result)


def _print(result: "SearchResult") -> None:
    from kosmos_rag.core.types.explain import activity_lines, operator_lines

    out = console()
    for line in (*activity_lines(result), *operator_lines(result)):
        out.print(line, style="dim")
    for hit in result.hits:
        out.print(f"{hit.rank:>2}. {one_line(hit.source)} | {hit.location}  ({hit.score:.4f})", style="bold")
        out.print(f"    {preview(hit.text)}")
        for note in hit.notes:
            out.print(f"    note [{note.code}]: {note.message}")
        for place in hit.also_in:
            out.print(f"    also in {one_line(place.source)} | {place.location}")
        for inner in hit.inner_hits:
            out.print(f"    {inner.location}  ({inner.score:.4f}): {preview(inner.text)}")
    for field, values in result.facets.items():
        out.print(
            f"{one_line(field)}: " + ", ".join(f"{one_line(str(facet.value))} ({facet.count})" for facet in values)
        )
    for warning in result.warnings:
        out.print(f"note: {warning}")
    if result.incomplete_reason:
        out.print(f"{result.returned} of {result.requested} passages: {result.incomplete_reason}")
    if result.next_cursor:
        out.print(f"next page: --cursor {result.next_cursor}", soft_wrap=True)
    out.print(f"{count(result.returned, 'hit')} in {result.timings_ms['total']:.0f} ms", style="dim")


def preview(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW_CHARS else line[: _PREVIEW_CHARS - 1] + "…"
