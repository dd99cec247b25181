"""Search a tree of XML elements."""

from collections.abc import Collection, Iterator
from typing import Any


def find_outermost(root: Any, tags: Collection[str], *, excluded: Collection[str]) -> Iterator[Any]:
    """Yield the outermost descendants with one of the tags, in order.

    Wrappers may enclose them at any depth, such as the content controls and tracked insertions of Word.

    Args:
        root: element of lxml or of the standard library.
        tags: tags of the elements to yield, with their namespaces.
        excluded: tags of elements that are not searched.
    """
    pending = list(reversed(root))
    while pending:
        element = pending.pop()
        if element.tag in tags:
            yield element
        elif element.tag not in excluded:
            pending.extend(reversed(element))
