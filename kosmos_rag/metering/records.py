"""Usage as it is read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from kosmos_rag.core.types.serialize import Serializable

Interval: TypeAlias = Literal["hour", "day", "month"]
INTERVALS: tuple[str, ...] = get_args(Interval)
Dimension: TypeAlias = Literal["collection", "subject", "model"]
DIMENSIONS: tuple[str, ...] = get_args(Dimension)

_LEAST_DECIMAL = 0.0001
"""What four decimals can show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageAmount:
    """How much of one quantity was used."""

    start: datetime | None
    """Beginning of the interval, in UTC; None for the whole time."""
    collection: str | None
    """None where usage is not listed by collection, or all were searched."""
    subject: str | None
    """The reader, `key:NAME` for an API key; None where usage is not listed by reader, or the reader is not known."""
    model: str | None
    """None where usage is not listed by model, or no model took part."""
    quantity: str
    amount: float
    cost: float | None
    """In the currency of the settings; None where no model of it had a price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitState:
    """What is used of a limit in the present period."""

    subject: str | None
    """The reader; None for the whole tenant."""
    per: str
    quantity: str
    amount: float
    """What may be used."""
    total: float
    """What is used."""


def format_limit(limit: LimitState, currency: str) -> str:
    """Return what is used of a limit: `0.5 of 20 EUR a month`."""
    return f"{format_amount(limit.total)} of {format_rule(limit.quantity, limit.amount, limit.per, currency)}"


def format_rule(quantity: str, amount: float, per: str, currency: str) -> str:
    """Return what may be used as text: `10 questions a day`.

    Args:
        quantity: Name of the limit.
        amount: How much may be used.
        per: Its period.
        currency: That of the prices.
    """
    period = "an hour" if per == "hour" else f"a {per}"
    return f"{format_amount(amount)} {currency if quantity == 'cost' else quantity} {period}"


def format_amount(amount: float) -> str:
    """Return an amount with commas and at most four decimals, or its first two digits."""
    if 0 < abs(amount) < _LEAST_DECIMAL:
        return f"{amount:.2g}"
    return f"{amount:,.4f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageReport(Serializable):
    """What a tenant has used in a time."""

    tenant: str
    since: datetime
    until: datetime
    """The end: usage of this hour is not included."""
    currency: str
    cost: float
    """Of all that had a price."""
    amounts: tuple[UsageAmount, ...]
    limits: tuple[LimitState, ...] = ()
    """Those of the tenant and its readers, whatever the time of the report."""

    def total(self, quantity: str) -> float:
        """Return the sum of a quantity over all rows."""
        return sum(amount.amount for amount in self.amounts if amount.quantity == quantity)
