"""Convert the equations of web pages (MathML) to one line.

For example `x=(-b±√(b^2-4ac))/(2a)`, as those of Office.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.office.omml import group, write_scripts

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_NOT_READ = frozenset({"annotation", "annotation-xml", "mphantom"})


def write_math(node: "LexborNode", depth: int = 0) -> str:
    """Return an equation, or a part of one, as text."""
    if node.is_text_node:
        return " ".join((node.text_content or "").split())
    tag = node.tag or ""
    if tag in _NOT_READ or not node.is_element_node:
        return ""
    if depth > bounds.MAX_EQUATION_LEVELS:
        return node.text(strip=True)
    parts = [write_math(child, depth + 1) for child in node.iter(include_text=True)]
    parts = [part for part in parts if part]
    count, write = _WRITERS.get(tag, (0, "".join))
    return write(parts) if len(parts) >= count else "".join(parts)


def _write_fraction(parts: list[str]) -> str:
    return f"{group(parts[0])}/{group(parts[1])}"


def _write_superscript(parts: list[str]) -> str:
    return group(parts[0]) + write_scripts("", parts[1])


def _write_subscript(parts: list[str]) -> str:
    return group(parts[0]) + write_scripts(parts[1], "")


def _write_both_scripts(parts: list[str]) -> str:
    return group(parts[0]) + write_scripts(parts[1], parts[2])


def _write_square_root(parts: list[str]) -> str:
    return f"√({''.join(parts)})"


def _write_root(parts: list[str]) -> str:
    return f"root{group(parts[1])}({parts[0]})"


_WRITERS: dict[str, tuple[int, Callable[[list[str]], str]]] = {
    "mfrac": (2, _write_fraction),
    "msup": (2, _write_superscript),
    "mover": (2, _write_superscript),
    "msub": (2, _write_subscript),
    "munder": (2, _write_subscript),
    "msubsup": (3, _write_both_scripts),
    "munderover": (3, _write_both_scripts),
    "msqrt": (1, _write_square_root),
    "mroot": (2, _write_root),
    "mtr": (1, ", ".join),
    "mtable": (1, "; ".join),
}
"""By element: how many parts it needs, and how they are written."""
