"""Convert the equations of Office (OMML) to one line.

For example `x = (-b ± √(b^2-4ac))/(2a)`.
"""

import re
from typing import Any

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_SIMPLE = re.compile(r"[\w.]*|[^\w\s]")
_PROPERTY = re.compile(r"(?:r|ctrl|f|rad|nary|d|m|acc|bar|groupChr|sSup|sSub|sSubSup|func|lim\w+|eqArr|box)Pr")


def write_equation(element: Any) -> str:
    """Return an equation, or a part of one, as text."""
    name = element.tag.removeprefix(_M) if isinstance(element.tag, str) else ""
    if name == "t":
        return element.text or ""
    if not name or _PROPERTY.fullmatch(name):
        return ""
    if name in _WRITERS:
        return str(_WRITERS[name](element))
    return "".join(map(write_equation, element))


def _part(element: Any, name: str) -> str:
    part = element.find(_M + name)
    return "" if part is None else write_equation(part)


def group(text: str) -> str:
    """Return a part of an equation, in brackets if needed."""
    return text if _SIMPLE.fullmatch(text) else f"({text})"


def _property(element: Any, name: str, default: str) -> str:
    node = element.find(f"{_M}{element.tag.removeprefix(_M)}Pr/{_M}{name}")
    return default if node is None else node.get(f"{_M}val", "")


def _write_fraction(element: Any) -> str:
    return f"{group(_part(element, 'num'))}/{group(_part(element, 'den'))}"


def _write_scripted_base(element: Any) -> str:
    """Write a base with its subscript and superscript."""
    below = _part(element, "sub") or (_part(element, "lim") if element.tag == f"{_M}limLow" else "")
    above = _part(element, "sup") or (_part(element, "lim") if element.tag == f"{_M}limUpp" else "")
    return group(_part(element, "e")) + write_scripts(below, above)


def write_scripts(below: str, above: str) -> str:
    """Return subscript and superscript with their marks; empty ones have none."""
    return (f"_{group(below)}" if below else "") + (f"^{group(above)}" if above else "")


def _write_root(element: Any) -> str:
    degree = _part(element, "deg")
    return f"{'root' + group(degree) if degree else '√'}({_part(element, 'e')})"


def _write_sum(element: Any) -> str:
    sign = _property(element, "chr", "∫")
    return f"{sign}{write_scripts(_part(element, 'sub'), _part(element, 'sup'))} {_part(element, 'e')}"


def _write_delimiters(element: Any) -> str:
    inside = _property(element, "sepChr", "|").join(map(write_equation, element.findall(f"{_M}e")))
    return f"{_property(element, 'begChr', '(')}{inside}{_property(element, 'endChr', ')')}"


def _write_matrix(element: Any) -> str:
    rows = (", ".join(map(write_equation, row.findall(f"{_M}e"))) for row in element.findall(f"{_M}mr"))
    return f"[{'; '.join(rows)}]"


def _write_function(element: Any) -> str:
    return f"{_part(element, 'fName')} {_part(element, 'e')}"


def _write_array(element: Any) -> str:
    return "; ".join(map(write_equation, element.findall(f"{_M}e")))


_WRITERS = {
    "f": _write_fraction,
    "sSup": _write_scripted_base,
    "sSub": _write_scripted_base,
    "sSubSup": _write_scripted_base,
    "limLow": _write_scripted_base,
    "limUpp": _write_scripted_base,
    "rad": _write_root,
    "nary": _write_sum,
    "d": _write_delimiters,
    "m": _write_matrix,
    "func": _write_function,
    "eqArr": _write_array,
}
