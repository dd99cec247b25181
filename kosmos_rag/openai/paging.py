"""Pages of lists by cursor: `after`, `before`, `limit` and `order`."""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from kosmos_rag.core.errors import RequestError
from kosmos_rag.openai.bodies import PageQuery
from kosmos_rag.openai.rows import PageRequest


class _Entry(Protocol):
    @property
    def created_at(self) -> datetime: ...


E = TypeVar("E", bound=_Entry)


def read_page(
    find: Callable[..., Sequence[E]],
    identify: Callable[[E], uuid.UUID | str],
    parse: Callable[[str], Any],
    query: PageQuery,
) -> tuple[list[E], bool]:
    """Return a page of a list, and whether there is another.

    Args:
        find: Lists entries by `ids` or by `page`.
        identify: Returns the id that the list is sorted by.
        parse: Reads such an id from a cursor.
        query: Its cursors are the id of the entry before the page, or of the one after it.

    Raises:
        RequestError: the cursor is no id of an entry that the caller sees.
    """
    if query.after is not None and query.before is not None:
        raise RequestError("after and before exclude each other; give one of them")
    cursor, position = query.after if query.after is not None else query.before, None
    if cursor is not None:
        entries = find(ids=[parse(cursor)])
        if not entries:
            raise RequestError(f"there is no entry {cursor[:60]!r} in the list; start at its first page")
        position = (entries[0].created_at, identify(entries[0]))
    page = PageRequest(limit=query.limit + 1, descending=query.order == "desc", position=position)
    page_entries = list(find(page=page if query.before is None else page.backward()))
    has_more = len(page_entries) > query.limit
    entries_of_page = page_entries[: query.limit]
    return (entries_of_page if query.before is None else entries_of_page[::-1]), has_more
