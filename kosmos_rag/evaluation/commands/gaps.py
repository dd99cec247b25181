"""kosmos-rag gaps: what people ask and the documents do not answer, and whether sampled answers hold."""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import TenantOptions, command

if TYPE_CHECKING:
    from kosmos_rag.evaluation.answer_checks.records import AnswerCheckReport
    from kosmos_rag.evaluation.gaps.records import GapReport

app = typer.Typer(help="Show what people ask and the documents do not answer.")

CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-C", metavar="NAME", help="Only questions to this collection.")
]


@app.command("list")
@command
def list_(collection: CollectionOption = None, *, common: TenantOptions) -> None:
    """List groups of questions without an answer, open ones first."""
    from kosmos_rag.evaluation.gaps.gaps import Gaps

    with common.open_engine() as engine:
        report = Gaps(engine.tenant(common.tenant, collection=collection)).report()
    if common.as_json:
        print_json(report.to_dict())
    else:
        _print(report)


@app.command("check")
@command
def check(collection: CollectionOption = None, *, common: TenantOptions) -> None:
    """Group new questions now, and ask all open ones again.

    The worker's maintenance does both.
    """
    from kosmos_rag.evaluation.gaps.gaps import Gaps, check_unanswered
    from kosmos_rag.evaluation.settings import GapSettings

    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=collection)
        grouped = Gaps(tenant).group()
        limit = engine.settings.section(GapSettings).max_questions
        answered = check_unanswered(engine, tenant, limit=limit)
    if common.as_json:
        print_json({"tenant": common.tenant, "grouped": grouped, "answered": answered})
    else:
        console().print(f"{grouped} questions were grouped, and {answered} are answered now")


@app.command("answers")
@command
def answers(
    collection: CollectionOption = None,
    is_checking: Annotated[bool, typer.Option("--check", help="Check the answers that wait first.")] = False,
    *,
    common: TenantOptions,
) -> None:
    """Show what the checks of sampled answers found, and what their readers say.

    The worker's maintenance checks them.
    """
    from kosmos_rag.evaluation.answer_checks.checks import AnswerChecks, check_answers
    from kosmos_rag.evaluation.settings import AnswerCheckSettings

    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=collection)
        if is_checking:
            check_answers(engine, tenant, limit=engine.settings.section(AnswerCheckSettings).max_answers)
        report = AnswerChecks(tenant).report()
    if common.as_json:
        print_json(report.to_dict())
    else:
        _print_answers(report)


def _print_answers(report: "AnswerCheckReport") -> None:
    out = console()
    answered = ("answers", "supported", "unsupported", "outdated", "waiting", "rated_up", "rated_down")
    names = (*answered, "refusals", "confirmed", "disputed")
    columns = [name.replace("_", " ") for name in names]
    rows = table("collection", *columns, right=set(columns))
    for counts in report.collections:
        rows.add_row(counts.collection or "all", *(str(getattr(counts, name)) for name in names))
    if report.collections:
        out.print(rows)
    else:
        out.print(f"tenant {report.tenant} has no sampled answers")
    if not report.share:
        out.print("answers are not sampled: answer_checks.share is 0")


def _print(report: "GapReport") -> None:
    out = console()
    columns = ("question or words", "collection", "questions", "times", "readers", "new", "last", "state")
    rows = table(*columns, right={"questions", "times", "readers", "new"})
    for gap in report.gaps:
        state = f"{gap.answered} of {gap.entries} answered"
        rows.add_row(
            gap.question or ", ".join(gap.words),
            gap.collection or "all",
            *(str(number) for number in (gap.questions, gap.times, gap.readers, gap.new)),
            f"{gap.last_at:%Y-%m-%d}",
            state if gap.closed_at is None else f"closed {gap.closed_at:%Y-%m-%d}",
        )
    if report.gaps:
        out.print(rows)
    else:
        out.print(f"tenant {report.tenant} has no group of questions from {report.min_readers} readers or more")
    if report.hidden_gaps:
        out.print(f"{report.hidden_questions} questions are in {report.hidden_gaps} groups of fewer readers")
    if report.ungrouped:
        out.print(f"{report.ungrouped} questions wait for maintenance, or for `kosmos-rag gaps check`")
    out.print(f"first asked in the last seven days: {report.new}; in the seven days before: {report.earlier}")
    if not report.recorded:
        out.print("questions are not recorded: gaps.record is false")
