"""The configuration as dotted keys with values, and as a documentation table."""

from collections.abc import Mapping
from functools import reduce
from operator import getitem
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from kosmos_rag.core.config.display import mask_passwords, mask_urls, show
from kosmos_rag.core.config.keys import iter_documented_keys, iter_keys
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


def reference_table() -> str:
    """Write the table of all keys in Markdown: key, type, default, meaning."""
    rows = ["| Key | Type | Default | Meaning |", "| --- | --- | --- | --- |"]
    for key, field in iter_documented_keys(Settings):
        cells = (f"`{key}`", _describe_type(field), f"`{show(field.default)}`", field.description or "")
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


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
