"""Calls of the Python client for gaps."""

from functools import partial

from kosmos_rag.apps.client.transport import Call, omit_none
from kosmos_rag.core.types.serialize import from_dict
from kosmos_rag.evaluation.gaps.records import GapReport


def gaps(*, collection: str | None = None) -> Call[GapReport]:
    """Show what people ask and the documents do not answer.

    Args:
        collection: Only questions to this collection; None for all.
    """
    params = omit_none(collection=collection)
    return Call(method="GET", path="/v1/gaps", params=params, read=partial(from_dict, GapReport))


CALLS = {"gaps": gaps}
"""The methods that the client has while the wing is present."""
