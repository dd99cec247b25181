"""Convert the equations of web pages (MathML) to one line.

For example `x=(-b±√(b^2-4ac))/(2a)`, as those of Office.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kosmos_rag.ingestion.parsing.omml import grouped, scripts

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_DEEPEST = 50
"""Levels of an equation; what is deeper has its letters alone."""
_NOT_READ = frozenset({"annotation", "annotation-xml", "mphantom"})


def math_text(node: "LexborNode", depth: int = 0) -> str:
    """Return an equation, or a part of one, as text."""
    if node.is_text_node:
        return " ".join((node.text_content or "").split())
    tag = node.tag or ""
    if tag in _NOT_READ or not node.is_element_node:
        return ""
    if depth > _DEEPEST:
        return node.text(strip=True)
    parts = [math_text(child, depth + 1) for child in node.iter(include_text=True)]
    parts = [part for part in parts if part]
    count, write = _WRITERS.get(tag, (0, "".join))
    return write(parts) if len(parts) >= count else "".join(parts)


def _fraction(parts: list[str]) -> str:
    return f"{grouped(parts[0])}/{grouped(parts[1])}"


def _above(parts: list[str]) -> str:
    return grouped(parts[0]) + scripts("", parts[1])


def _below(parts: list[str]) -> str:
    return grouped(parts[0]) + scripts(parts[1], "")


def _both(parts: list[str]) -> str:
    return grouped(parts[0]) + scripts(parts[1], parts[2])


def _square_root(parts: list[str]) -> str:
    return f"√({''.join(parts)})"


def _root(parts: list[str]) -> str:
    return f"root{grouped(parts[1])}({parts[0]})"


_WRITERS: dict[str, tuple[int, Callable[[list[str]], str]]] = {
    "mfrac": (2, _fraction),
    "msup": (2, _above),
    "mover": (2, _above),
    "msub": (2, _below),
    "munder": (2, _below),
    "msubsup": (3, _both),
    "munderover": (3, _both),
    "msqrt": (1, _square_root),
    "mroot": (2, _root),
    "mtr": (1, ", ".join),
    "mtable": (1, "; ".join),
}
"""By element: how many parts it needs, and how they are written."""
