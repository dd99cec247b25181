"""The configuration as dotted keys with values, and as the page docs/settings.md."""

import inspect
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from kosmos_rag.core.config.display import mask_passwords, mask_urls, show
from kosmos_rag.core.config.keys import find_section_model, iter_documented_keys, iter_keys
from kosmos_rag.core.config.settings import Settings
from kosmos_rag.core.section import MAX_INTEGER

_TYPE_NAMES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "Path": "path",
    "SecretStr": "text",
}


def flatten(settings: Settings) -> dict[str, Any]:
    """List every dotted key with its value, in the types of JSON.

    Passwords and queries of URLs are masked.
    """
    dumped = settings.model_dump(mode="json")
    flat = {}
    for key, field in iter_keys(Settings):
        value: Any = reduce(getitem, key.split("."), dumped)
        # A field that is kept out of a repr is a URL, or holds one.
        flat[key] = mask_urls(value) if field.repr or value is None else mask_passwords(value)
    return flat


def reference_page() -> str:
    """Write docs/settings.md: a section for each section of the file, with a table of its keys."""
    return "\n".join(_page_lines()) + "\n"


def _page_lines() -> Iterator[str]:
    sections: dict[str, list[tuple[str, FieldInfo]]] = {}
    for key, field in iter_documented_keys(Settings):
        sections.setdefault(key.rpartition(".")[0], []).append((key, field))
    yield "# Settings"
    yield ""
    yield "Written by `python -m kosmos_rag.core.config` from the descriptions in the code."
    yield "[Configuration](configuration.md) explains the file, environment variables and precedence."
    yield f"Integers end at {MAX_INTEGER}."
    yield ""
    yield "Sections: " + ", ".join(f"[{name}](#{name.replace('.', '')})" for name in sections)
    for name, fields in sections.items():
        yield from ("", f"## {name}", "", _describe_section(name), "")
        yield from ("| Key | Type | Default | Meaning |", "| --- | --- | --- | --- |")
        yield from (_table_row(key, field) for key, field in fields)


def _describe_section(name: str) -> str:
    """Return the first sentence of the docstring of a section."""
    model: Any = Settings
    for part in name.split("."):
        model = find_section_model(model.model_fields[part])
    return (inspect.getdoc(model) or "").splitlines()[0]


def _table_row(key: str, field: FieldInfo) -> str:
    cells = (f"`{key}`", _describe_type(field), f"`{show(field.default)}`", field.description or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _describe_type(field: FieldInfo) -> str:
    lower = next((bound for bound in field.metadata if isinstance(bound, Ge | Gt)), None)
    upper = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    name = _name_type(field.annotation)
    if isinstance(lower, Gt):
        return f"{name} above {lower.gt}"
    if lower is None:
        return name
    return f"{name}, {lower.ge} or more" if upper in (None, MAX_INTEGER) else f"{name}, {lower.ge} to {upper}"


def _name_type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _name_type(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return "list of texts"
    if get_origin(annotation) is Mapping:
        return "mapping"
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_name_type(part) for part in get_args(annotation))
    return "null" if annotation is NoneType else _TYPE_NAMES[annotation.__name__]
