"""Read the front matter of Markdown.

It is YAML between `---` lines, or TOML between `+++` lines.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import yaml

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.clean import clean_title

_BLOCK = re.compile(
    r"---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*$|\+\+\+[ \t]*\n(?P<toml>.*?)^\+\+\+[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_FIELD_LINE = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(?P<value>.*))?$")
_MORE_LINE = re.compile(r"[ \t]|-[ \t]|#|$")
"""A line that begins no field: an indented one, a list item, a comment, a blank one."""

_FIELDS = {
    "date": "date",
    "published": "date",
    "updated": "updated",
    "lastmod": "updated",
    "last_modified": "updated",
    "author": "authors",
    "authors": "authors",
    "tag": "tags",
    "tags": "tags",
    "keywords": "keywords",
    "category": "categories",
    "categories": "categories",
    "description": "description",
}
"""What a field is called in the metadata (`METADATA_FIELDS`)."""
_LISTS = frozenset({"authors", "tags", "keywords", "categories"})


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontMatter:
    """The front matter of a file."""

    end: int = 0
    """Offset of the line end after it; 0 where a file has none."""
    title: str | None = None
    metadata: Mapping[str, str | list[str]] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Loads YAML without aliases, which expand a short text without limit."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def read_front_matter(text: str) -> FrontMatter:
    """Read the front matter that a text begins with.

    YAML that is not quite right gives the fields that have a line of their own.
    """
    block = _BLOCK.match(text[: bounds.MAX_FRONT_MATTER_CHARS])
    if block is None:
        return FrontMatter()
    fields = _toml_fields(block["toml"]) if block["yaml"] is None else _yaml_fields(block["yaml"])
    if fields is None:
        return FrontMatter()
    metadata: dict[str, str | list[str]] = {}
    for name, value in fields.items():
        key = _FIELDS.get(name.lower())
        if key and key not in metadata and (texts := list(_texts(value, split=key in _LISTS))):
            metadata[key] = texts if key in _LISTS else texts[0]
    title = next((text for name in ("title", "Title") for text in _texts(fields.get(name))), None)
    return FrontMatter(end=block.end(), title=title, metadata=metadata)


def _toml_fields(block: str) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads(block)
    except (ValueError, RecursionError):
        return None


def _yaml_fields(block: str) -> Mapping[str, Any] | None:
    """Return the fields, or None if the lines are no front matter.

    They may be text between two rules.
    """
    try:
        fields = yaml.load(block, _Loader)  # noqa: S506 — a safe loader with less
    except (yaml.YAMLError, ValueError, RecursionError):
        return _fields_of_lines(block)
    is_mapping = isinstance(fields, dict) and all(isinstance(name, str) and _NAME.fullmatch(name) for name in fields)
    return fields if is_mapping else None


def _fields_of_lines(block: str) -> Mapping[str, Any] | None:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        if match := _FIELD_LINE.match(line):
            value = (match["value"] or "").strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            fields[match["name"]] = value[1:-1] if quoted else value
        elif not _MORE_LINE.match(line):
            return None
    return fields or None


def _texts(value: Any, *, split: bool = False) -> Iterator[str]:
    """Yield the plain values of a field as text, without objects."""
    if isinstance(value, str) and split:
        value = value.strip("[]").split(",")
    for item in value[: bounds.MAX_FRONT_MATTER_VALUES] if isinstance(value, list) else [value]:
        if isinstance(item, date | datetime):
            yield item.isoformat()
        elif isinstance(item, str | int | float) and not isinstance(item, bool) and (text := clean_title(str(item))):
            yield text
