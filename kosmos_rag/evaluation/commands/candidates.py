"""kosmos-rag eval candidates: judge questions that readers have rated."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.commands.runner import OutputOption, require_new, write

if TYPE_CHECKING:
    from kosmos_rag.evaluation.judging.records import CandidateQuestion

app = typer.Typer(help="Accept questions of readers, with the places of their answers, as judged questions.")

CandidatesArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, from `eval candidates list`.")]
JudgeOption = Annotated[str, typer.Option("--judge", metavar="NAME", help="Who decides; stored with the decision.")]


@app.command("list")
@command
def list_(
    judgement: Annotated[str, typer.Option("--judgement", help="open, accepted or rejected.")] = "open",
    *,
    common: ReadOptions,
) -> None:
    """List candidates from ratings and clicks, those with the strongest evidence first."""
    from kosmos_rag.evaluation.judging.questions import JudgedQuestions

    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=common.collection)
        candidates = JudgedQuestions(tenant).list_candidates(judgement)
    if common.as_json:
        values = [candidate.to_dict() for candidate in candidates]
        print_json({"tenant": common.tenant, "judgement": judgement, "candidates": values})
    elif candidates:
        _print(candidates)
    else:
        console().print(f"tenant {common.tenant} has no {judgement} candidates")


@app.command("accept")
@command
def accept(candidates: CandidatesArgument, judge: JudgeOption = "", *, common: ReadOptions) -> None:
    """Accept candidates as judged questions."""
    _judge(candidates, "accepted", judge, common)


@app.command("reject")
@command
def reject(candidates: CandidatesArgument, judge: JudgeOption = "", *, common: ReadOptions) -> None:
    """Reject candidates; they are not proposed again."""
    _judge(candidates, "rejected", judge, common)


@app.command("reopen")
@command
def reopen(candidates: CandidatesArgument, *, common: ReadOptions) -> None:
    """Withdraw decisions."""
    _judge(candidates, "open", "", common)


@app.command("export")
@command
def export(output: OutputOption = Path("judged.yaml"), *, common: ReadOptions) -> None:
    """Write the accepted questions as a question file."""
    from kosmos_rag.evaluation.judging.questions import JudgedQuestions

    require_new(output)
    with common.open_engine() as engine:
        text = JudgedQuestions(engine.tenant(common.tenant, collection=common.collection)).dump()
    write(output, text)
    if common.as_json:
        print_json({"file": str(output)})
    else:
        console().print(f"written: {output}")


def _judge(names: list[str], judgement: str, judge: str, common: ReadOptions) -> None:
    from kosmos_rag.evaluation.judging.questions import JudgedQuestions

    try:
        ids = [uuid.UUID(name) for name in names]
    except ValueError as error:
        raise RequestError("an id is malformed; copy it from `kosmos-rag eval candidates list`") from error
    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=common.collection, subject=judge or None)
        candidates = [JudgedQuestions(tenant).judge(candidate_id, judgement) for candidate_id in ids]
    if common.as_json:
        print_json({"tenant": common.tenant, "candidates": [candidate.to_dict() for candidate in candidates]})
    else:
        for candidate in candidates:
            console().print(f"{judgement}: {candidate.question}")


def _print(candidates: "list[CandidateQuestion]") -> None:
    columns = ("id", "question", "answer", "reader", "up", "down", "clicks", "readers")
    rows = table(*columns, right={"up", "down", "clicks", "readers"})
    for candidate in candidates:
        rows.add_row(
            str(candidate.id),
            candidate.question,
            candidate.place,
            candidate.principal,
            *(str(number) for number in (candidate.ups, candidate.downs, candidate.clicks, candidate.readers)),
        )
    console().print(rows)
