"""kosmos-rag keyword-context: paragraphs of a text file that match a query."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import print_json
from kosmos_rag.apps.cli.options import JsonOption, command


class Scoring(StrEnum):
    """How paragraphs are scored."""

    bm25 = "bm25"
    classic = "classic"


@command
def keyword_context(
    query: Annotated[str, typer.Argument(help="The query, in plain words.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="Text file with paragraphs separated by blank lines.")],
    k: Annotated[int, typer.Option("-k", help="Number of paragraphs.")] = 5,
    ranking: Annotated[Scoring, typer.Option(help="Scoring function.")] = Scoring.bm25,
    fallback: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Context where the file is missing or has no text.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the paragraphs of a text file that match a query.

    Without a match, shows the first ten.

    Needs no model and no database.
    """
    from kosmos_rag.engine.keywords import KeywordContext

    keyword_context_index = KeywordContext.from_file(file, ranking=ranking.value, fallback=fallback)
    matches, text = keyword_context_index.search(query, k), keyword_context_index.get_context(query, k)
    if as_json:
        print_json({"query": query, "context": text, "matches": [asdict(match) for match in matches]})
        return
    if not matches:
        context = "this is the fallback" if text == fallback else "these are the first ones"
        typer.echo(f"note: no paragraph matches; {context}", err=True)
    typer.echo(text)
