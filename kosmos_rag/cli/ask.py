"""kosmos-rag ask: numbered, cited evidence for a question."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.cli.common import (
    ConfigOption,
    JsonOption,
    PrincipalOption,
    ReadCollectionOption,
    SetOption,
    TenantOption,
    console,
    opened,
    print_json,
    reader,
    reported,
    shown,
)
from kosmos_rag.cli.search import (
    LimitOption,
    MetadataOption,
    QuestionArgument,
    SourceOption,
    WhereOption,
    as_object,
    filter_of,
)

if TYPE_CHECKING:
    from kosmos_rag.records import Context


def ask(
    question: QuestionArgument,
    k: LimitOption = None,
    source: SourceOption = None,
    metadata: MetadataOption = None,
    where: WhereOption = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Budget of the context.")] = None,
    tenant: TenantOption = "default",
    collection: ReadCollectionOption = None,
    principal: PrincipalOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the passages that answer a question best, numbered and cited, as they would go into a prompt."""
    with reported(as_json=as_json):
        wanted = filter_of(source, metadata, where)
        with opened(config, set_) as engine:
            scope = reader(engine, tenant, collection, principal)
            engine.warm_up()
            context = scope.context(question, k, wanted, max_tokens=max_tokens)
    if as_json:
        print_json(_as_object(context))
    else:
        _print(context)


def _as_object(context: "Context") -> dict[str, Any]:
    return {
        "question": context.question,
        "context": context.text,
        "tokens": context.tokens,
        "max_tokens": context.max_tokens,
        "passages": [
            {
                "text": passage.text,
                "score": passage.score,
                "tokens": passage.tokens,
                "citation": {
                    **asdict(passage.citation),
                    "reference": f"{shown(passage.citation.source)} | {passage.citation.place}",
                },
            }
            for passage in context.passages
        ],
        "omitted": dict(context.omitted),
        "retrieval": as_object(context.retrieval),
    }


def _print(context: "Context") -> None:
    out = console()
    out.print(f"Question: {context.question}", style="bold")
    if not context.passages:
        out.print(f"No evidence: {context.retrieval.shortfall or 'nothing fits into the budget'}")
    for passage in context.passages:
        citation = passage.citation
        out.print()
        out.print(f"{citation.marker} {shown(citation.source)} | {citation.place}", style="bold")
        out.print(passage.text)
    out.print()
    for note in context.retrieval.notes:
        out.print(f"note: {note}")
    left_out = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in context.omitted.items())
    out.print(
        f"{len(context.passages)} passages, {context.tokens} of {context.max_tokens} tokens"
        + (f"; left out: {left_out}" if left_out else ""),
        style="dim",
    )
