"""View models of the page Usage."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kosmos_rag.core.telemetry import usage
from kosmos_rag.metering.records import LimitState, UsageAmount, UsageReport, format_limit

_SMALLEST_COST = 0.005
"""What the page shows as a hundredth."""
_UNITS = {
    usage.Quantity.PARSING_SECONDS: "s",
    usage.Quantity.OCR_SECONDS: "s",
    usage.Quantity.BYTES: "bytes",
    usage.Quantity.STORED_BYTES: "bytes",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageBar:
    """A day in the plot.

    Coordinates are from 0 to 100: time to the right, and from the top down.
    """

    day: datetime
    x: float
    width: float
    y: float
    height: float
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageRowView:
    """A row of the table."""

    label: str
    """Name of the collection, reader or model; empty where there is none."""
    quantity: str
    amount: float
    unit: str
    cost: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageView:
    """What the page shows."""

    currency: str
    cost: float
    shows_cost: bool
    """Whether the whole cost is more than nothing when it is rounded."""
    totals: tuple[UsageRowView, ...]
    rows: tuple[UsageRowView, ...]
    bars: tuple[UsageBar, ...]
    """The cost of each day, or its questions where nothing has a price."""
    plotted: str
    """What the bars show."""
    highest: float
    near: tuple[tuple[LimitState, str], ...]
    """Limits of which nearly all is used, and the same as text."""


def build_view(
    by_day: UsageReport, total: UsageReport, listed: UsageReport, dimension: str, *, warn_at: float = 0.8
) -> UsageView:
    """Build the page from reports of one time.

    Args:
        by_day: Rows of each day.
        total: One sum of each quantity.
        listed: Rows of the dimension.
        dimension: What the table is by.
        warn_at: Share of a limit from which on it is shown.
    """
    shows_cost = total.cost >= _SMALLEST_COST
    values = _sum_by_day(by_day, shows_cost=shows_cost)
    return UsageView(
        currency=total.currency,
        cost=total.cost,
        shows_cost=shows_cost,
        totals=tuple(_build_row(amount, "") for amount in total.amounts),
        rows=tuple(_build_row(amount, getattr(amount, dimension) or "") for amount in listed.amounts),
        bars=tuple(_build_bars(values)),
        plotted=f"cost in {total.currency}" if shows_cost else "questions",
        highest=max((value for _, value in values), default=0.0),
        near=tuple(
            (limit, format_limit(limit, total.currency))
            for limit in total.limits
            if limit.total >= warn_at * limit.amount
        ),
    )


def _build_row(amount: UsageAmount, label: str) -> UsageRowView:
    return UsageRowView(
        label=label,
        quantity=amount.quantity.replace("_", " "),
        amount=amount.amount,
        unit=_UNITS.get(usage.Quantity(amount.quantity), ""),
        cost=amount.cost,
    )


def _sum_by_day(report: UsageReport, *, shows_cost: bool) -> list[tuple[datetime, float]]:
    """Return each day of the report with its cost or its questions.

    Days without usage have 0.
    """
    sums: dict[datetime, float] = {}
    for amount in report.amounts:
        if amount.start is not None:
            value = amount.cost or 0.0 if shows_cost else amount.amount * (amount.quantity == usage.Quantity.QUESTIONS)
            sums[amount.start] = sums.get(amount.start, 0.0) + value
    days = (report.until - timedelta.resolution - report.since).days + 1  # the end is not included
    return [(day, sums.get(day, 0.0)) for day in (report.since + timedelta(days=number) for number in range(days))]


def _build_bars(values: Sequence[tuple[datetime, float]]) -> list[UsageBar]:
    highest = max((value for _, value in values), default=0.0) or 1.0
    width = 100 / max(1, len(values))
    return [
        UsageBar(
            day=day,
            x=round(number * width, 3),
            width=round(0.8 * width, 3),
            y=round(100 - 100 * value / highest, 2),
            height=round(100 * value / highest, 2),
            value=value,
        )
        for number, (day, value) in enumerate(values)
    ]
