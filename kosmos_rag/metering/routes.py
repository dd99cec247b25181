"""The route of usage, and the page of the console."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from kosmos_rag.apps.http.console.pages import PageRoute, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleOperator
from kosmos_rag.apps.http.toolkit.dependencies import Operator
from kosmos_rag.apps.http.toolkit.wing import HttpWing, PageLink
from kosmos_rag.engine.api_keys import OPERATE
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.metering.limits import begin_period
from kosmos_rag.metering.records import Dimension, Interval, UsageReport
from kosmos_rag.metering.store import UsageStore
from kosmos_rag.metering.tables import write_csv
from kosmos_rag.metering.times import parse_time
from kosmos_rag.metering.views import UsageView, build_view

router = APIRouter(tags=["usage"])
pages = APIRouter(route_class=PageRoute, include_in_schema=False)

Days = Annotated[int, Query(ge=1, le=366)]
_DEFAULT_DAYS = 30


@router.get("/v1/usage")
async def usage(
    caller: Operator,
    since: Annotated[str | None, Query(description="Day or time; without it, the first day of this month.")] = None,
    until: Annotated[str | None, Query(description="Day or time; without it, now.")] = None,
    every: Annotated[Interval | None, Query(description="Rows by this interval; without it, one sum.")] = None,
    by: Annotated[list[Dimension] | None, Query(description="Rows by these; may be repeated.")] = None,
    subject: Annotated[str | None, Query(description="Only of this reader, `key:NAME` for an API key.")] = None,
) -> UsageReport:
    """Show what the tenant has used, and what it cost."""
    begin, end = parse_time("since", since), parse_time("until", until)
    read = UsageStore(caller.tenant()).read
    return await caller.run(read, since=begin, until=end, every=every, by=by or (), subject=subject)


@pages.get("/usage")
async def page(
    request: Request, caller: ConsoleOperator, days: Days = _DEFAULT_DAYS, by: Dimension = "model"
) -> Response:
    """Show the usage of the last days: totals, a plot by day, and a table.

    Args:
        days: number of days.
        by: rows of the table.
    """
    view = await caller.run(_read_view, caller.tenant(), days, by)
    return render_page(request, "usage.html", view=view, days=days, by=by)


@pages.get("/usage.csv")
async def table(caller: ConsoleOperator, days: Days = _DEFAULT_DAYS, by: Dimension = "model") -> Response:
    """Return the usage of the last days by day as CSV.

    Args:
        days: number of days.
        by: rows of a day.
    """
    store = UsageStore(caller.tenant())
    report = await caller.run(store.read, since=_begin(days), every="day", by=[by], limits=False)
    headers = {"content-disposition": f'attachment; filename="usage-{datetime.now(UTC):%Y-%m-%d}.csv"'}
    return Response(write_csv(report, [by], every="day"), media_type="text/csv", headers=headers)


def _read_view(tenant: Tenant, days: int, dimension: str) -> UsageView:
    store, since = UsageStore(tenant), _begin(days)
    by_day, total = store.read(since=since, every="day", limits=False), store.read(since=since)
    listed = store.read(since=since, by=[dimension], limits=False)
    return build_view(by_day, total, listed, dimension, warn_at=store.warn_at)


def _begin(days: int) -> datetime:
    """Return the beginning of the first of the last days, in UTC."""
    return begin_period("day", datetime.now(UTC)) - timedelta(days=days - 1)


HTTP = HttpWing(
    routers=(router, pages),
    examples={
        "UsageReport": {
            "tenant": "acme",
            "since": "2026-11-01T00:00:00Z",
            "until": "2026-11-20T10:00:00Z",
            "currency": "EUR",
            "cost": 3.1,
            "amounts": [
                {
                    "start": "2026-11-19T00:00:00Z",
                    "collection": None,
                    "subject": None,
                    "model": "gpt-large",
                    "quantity": "input_tokens",
                    "amount": 1240000.0,
                    "cost": 3.1,
                }
            ],
            "limits": [{"subject": None, "per": "month", "quantity": "cost", "amount": 50.0, "total": 3.1}],
        }
    },
    templates="kosmos_rag.metering",
    links=(PageLink(path="/usage", title="Usage", scope=OPERATE),),
)
