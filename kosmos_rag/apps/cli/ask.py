"""kosmos-rag ask: a cited answer, or its evidence."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import QuestionArgument, console, print_json, warm_up
from kosmos_rag.apps.cli.options import command
from kosmos_rag.apps.cli.search import SearchOptions
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.core.types import Answer, AnswerEvent, Citation, Context

_PREVIEW = 160


@command
def ask(
    question: QuestionArgument,
    options: SearchOptions,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Token budget of the context.")] = None,
    show_context: Annotated[
        bool, typer.Option("--context", help="Show the numbered evidence for a prompt, without an answer.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all passages of the context, with their scores.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the score of each unit with its parts, and why there is no answer.")
    ] = False,
) -> None:
    """Answer a question with citations, or refuse, and show the cited sources."""
    filter_ = options.filter()
    extra: dict[str, Any] = {"max_tokens": max_tokens, "syntax": options.syntax}
    with options.open_engine() as engine:
        tenant = options.open_reader(engine)
        warm_up(engine)
        if show_context:
            _show_context(tenant.context(question, options.k, filter_, **extra), as_json=options.as_json)
        elif options.as_json:
            answer = tenant.answer(question, options.k, filter_, **extra)
            print_json(answer.to_dict())
        else:
            with tenant.stream_answer(question, options.k, filter_, **extra) as stream:
                _print_answer(stream, show_all=show_all, explain=explain)


def _reference(citation: "Citation") -> str:
    return one_line(f"{citation.link or citation.source} | {citation.location}{_freshness(citation)}")


def _freshness(citation: "Citation") -> str:
    return "".join(f" | {part}" for part in (citation.date, citation.outdated) if part)


def _print_answer(events: "Iterable[AnswerEvent]", *, show_all: bool, explain: bool) -> None:
    """Print an answer while it is written.

    Texts of models have no control characters.
    """
    from kosmos_rag.core.types import AnswerPiece, AnswerSources

    out = console()
    for event in events:
        if isinstance(event, AnswerSources):
            out.print(f"Question: {event.question}", style="bold")
            out.print()
        elif isinstance(event, AnswerPiece):
            out.print(event.text, end="")
        else:
            out.print("\n")
            _print_sources(event.answer, show_all=show_all)
            if explain:
                # Not through the console, which would wrap the table.
                typer.echo(f"\n{event.answer.explain()}", nl=False)


def _print_sources(answer: "Answer", *, show_all: bool) -> None:
    """Print problems, warnings and sources after the text."""
    out = console()
    for problem in answer.report.problems if answer.report else ():
        out.print(f"{problem.verdict}: {problem.text} ({problem.reason})", style="yellow")
    if answer.report and answer.report.problems:
        out.print()
    _print_closest(answer)
    for warning in answer.warnings:
        out.print(f"note: {one_line(warning)}")
    if answer.warnings:
        out.print()
    if answer.sentences:
        out.print("Sources", style="bold")
        for line in _cited_lines([sentence.citation for sentence in answer.sentences]):
            out.print(line)
        out.print()
    if show_all:
        _print_passages(answer.context)
    _print_notes(answer.context)
    checked = "" if answer.report is None else f", {'verified' if answer.verified else 'not verified'}"
    hint = "" if show_all or not answer.context.passages else "; --all shows the passages"
    out.print(f"confidence {answer.confidence:.2f}{checked}{hint}", style="dim")


def _cited_lines(citations: "Iterable[Citation]") -> list[str]:
    """Return one line for each cited section, with all its places."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for citation in citations:
        section, _, place = citation.location.rpartition(" | ")
        source = " | ".join(filter(None, (citation.link or citation.source, section)))
        places.setdefault((citation.marker, source), {})[place + _freshness(citation)] = None
    return [one_line(f"{marker} {source} | {', '.join(cited)}") for (marker, source), cited in places.items()]


def _print_passages(context: "Context") -> None:
    out = console()
    out.print("Passages", style="bold")
    for passage in context.passages:
        citation = passage.citation
        out.print(f"{citation.marker} {_reference(citation)}  (score {passage.score:.4f})")
        out.print(f"    {_preview(passage.quote)}", style="dim")
    out.print()


def _print_closest(answer: "Answer") -> None:
    if not answer.closest:
        return
    out = console()
    out.print("Closest sentences, which may not answer the question", style="bold")
    for sentence in answer.closest:
        out.print(f"{sentence.citation.marker} {_preview(sentence.text)}")
        out.print(f"    {_reference(sentence.citation)}", style="dim")
    out.print()


def _preview(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _PREVIEW else words[:_PREVIEW].rsplit(" ", 1)[0] + " …"


def _show_context(context: "Context", *, as_json: bool) -> None:
    if as_json:
        print_json(context.to_dict())
        return
    out = console()
    out.print(f"Question: {context.question}", style="bold")
    for passage in context.passages:
        out.print()
        out.print(f"{passage.citation.marker} {_reference(passage.citation)}", style="bold")
        out.print(passage.text)
    out.print()
    _print_notes(context)


def _print_notes(context: "Context") -> None:
    from kosmos_rag.core.types.explain import operator_lines

    out = console()
    if not context.passages:
        out.print(f"No evidence: {context.retrieval.incomplete_reason or 'nothing fits into the budget'}")
    for line in operator_lines(context.retrieval):
        out.print(line, style="dim")
    for warning in context.retrieval.warnings:
        out.print(f"note: {warning}")
    left_out = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in context.omitted.items())
    out.print(
        f"{count(len(context.passages), 'passage')}, {context.tokens} of {context.max_tokens} tokens"
        + (f"; left out: {left_out}" if left_out else ""),
        style="dim",
    )
