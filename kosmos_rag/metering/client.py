"""Calls of the Python client for usage."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from kosmos_rag.apps.client.transport import Call, omit_none
from kosmos_rag.core.types.serialize import from_dict
from kosmos_rag.metering.records import Dimension, Interval, UsageReport


def usage(
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    every: Interval | None = None,
    by: Sequence[Dimension] = (),
    subject: str | None = None,
) -> Call[UsageReport]:
    """Show what the tenant has used, and what it cost.

    Args:
        since: Beginning; None for the first day of this month.
        until: End; None for now.
        every: Rows by this interval; None for one sum.
        by: Rows by these.
        subject: Only of this reader, `key:NAME` for an API key.
    """
    params = omit_none(
        since=None if since is None else since.isoformat(),
        until=None if until is None else until.isoformat(),
        every=every,
        by=list(by) or None,
        subject=subject,
    )
    return Call(method="GET", path="/v1/usage", params=params, read=partial(from_dict, UsageReport))


CALLS = {"usage": usage}
"""The methods that the client has while the wing is present."""
