"""The JSON shape of the records, the same in every interface.

The library, the command line, HTTP, MCP and the client all use it. Pydantic reads the shape from the dataclasses
themselves: a field of a record is a member of its object, by the same name. Fields marked with `explain_only` are
present only if `explain` is true: they reveal something about documents that the reader may not see, or repeat other
members.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, computed_field, model_validator
from pydantic.fields import FieldInfo

from kosmos_rag.core.types.docstrings import Described
from kosmos_rag.core.types.places import Place, PlaceSpan, find_place

R = TypeVar("R")

Offset = Annotated[int, Field(exclude=True)]
"""Start or end of a span or of lines; the JSON has the pair."""
Page = Annotated[int | None, Field(exclude=True)]
"""First or last page; the JSON has the pair."""
Places = Annotated[tuple[PlaceSpan, ...], Field(exclude=True)]
"""Places of the text in its file; the JSON has the place of the whole span."""

_EXPLAIN = "x-explain"


def explain_only(*default: Any) -> Any:
    """Mark a field that is written only with `explain`.

    Where it is missing, the default is read.
    """
    extra: dict[str, Any] = {_EXPLAIN: True}
    # Through a factory: the default would be in the JSON Schema, and NaN is no JSON.
    return (
        Field(default_factory=lambda: default[0], json_schema_extra=extra)
        if default
        else Field(json_schema_extra=extra)
    )


def explain_only_parts(*names: str) -> Any:
    """Mark a nested record whose fields `names` are written only with `explain`."""
    return Field(json_schema_extra={_EXPLAIN: list(names)})


def to_dict(record: object, *, explain: bool = True) -> dict[str, Any]:
    """Return a record as values for JSON.

    Args:
        record: An instance of one of the dataclasses of `kosmos_rag.core.types`.
        explain: Include scores, timings and plans, which only a reader who may see all documents is shown.
    """
    shape = _shape(type(record))
    hidden = None if explain else shape.hidden
    values: dict[str, Any] = shape.adapter.dump_python(record, mode="json", by_alias=True, exclude=hidden)
    return values


def to_json(record: object, *, explain: bool = True) -> bytes:
    """Return a record as JSON text in UTF-8; see `to_dict`."""
    shape = _shape(type(record))
    return shape.adapter.dump_json(record, by_alias=True, exclude=None if explain else shape.hidden)


def from_dict(kind: type[R], values: Mapping[str, Any]) -> R:
    """Return a record from what `to_dict` returns.

    Unknown members are ignored: a newer service may send more. Raises ValueError where a member is missing or of
    another type.
    """
    record: R = _shape(kind).adapter.validate_python(values)
    return record


def json_schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a record class, as `to_dict` writes it."""
    return _shape(kind).adapter.json_schema(mode="serialization")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shape:
    adapter: TypeAdapter[Any]
    hidden: dict[str, Any]
    """What is left out without `explain`, in the form of pydantic's `exclude`."""


_SHAPES: dict[Any, _Shape] = {}


def _shape(kind: type[Any]) -> _Shape:
    # Made on first use: an adapter takes milliseconds to build, and no lock is needed to build one twice.
    if kind not in _SHAPES:
        _SHAPES[kind] = _Shape(adapter=TypeAdapter(kind), hidden=_list_hidden_fields(kind))
    return _SHAPES[kind]


def _list_hidden_fields(kind: type[Any], within: tuple[type[Any], ...] = ()) -> dict[str, Any]:
    """Return the hidden fields of a record and of those in it.

    A record that contains its own kind does so one level deep.
    """
    hidden: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        mark: Any = next(_marks(hint), ())
        if mark is True:
            hidden[name] = True
            continue
        parts: dict[str, Any] = {}
        for nested in _records(hint):
            if within.count(nested) < 1:
                parts |= _list_hidden_fields(nested, (*within, kind))
        parts |= dict.fromkeys(mark, True)
        if parts:
            hidden[name] = {"__all__": parts} if _is_sequence(hint) else parts
    return hidden


def _marks(hint: Any) -> Iterator[Any]:
    for part in get_args(hint) if get_origin(hint) is Annotated else ():
        if isinstance(part, FieldInfo) and isinstance(part.json_schema_extra, dict):
            yield part.json_schema_extra[_EXPLAIN]


def _records(hint: Any) -> Iterator[type[Any]]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _records(part)


def _is_sequence(hint: Any) -> bool:
    return get_origin(get_args(hint)[0] if get_origin(hint) is Annotated else hint) is tuple


class Serializable(Described):
    """A record with methods for its JSON shape."""

    __slots__ = ()

    def to_dict(self, *, explain: bool = True) -> dict[str, Any]:
        """Return the record as values for JSON.

        Without `explain`, what every reader of it may be shown.
        """
        return to_dict(self, explain=explain)

    def model_dump(self) -> dict[str, Any]:
        """Return `to_dict()`: the name of the method in pydantic's models."""
        return self.to_dict()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the record from what `to_dict` returns.

        Raises ValueError where that is something else.
        """
        return from_dict(cls, values)

    @model_validator(mode="before")
    @classmethod
    def _split_pairs(cls, values: Any) -> Any:
        """Split members that are pairs in JSON into two fields."""
        if not isinstance(values, Mapping):
            return values
        split = dict(values)
        for pair, (first, last) in _PAIRS.items():
            if pair in values:
                split[first], split[last] = values[pair] or (None, None)
        if values.get("place") and "span" in values:
            place = {**values["place"], "start": split["start"], "end": split["end"]}
            place["first_paragraph"], place["last_paragraph"] = place.pop("paragraphs", None) or (None, None)
            split["place_spans"] = [{name: place.get(name) for name in PlaceSpan._fields}]
        return split


_PAIRS = {
    "span": ("start", "end"),
    "lines": ("line_start", "line_end"),
    "pages": ("page_start", "page_end"),
}


class Paged(Serializable):
    """A record of a text that may have pages."""

    __slots__ = ()
    page_start: Page
    page_end: Page

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def pages(self) -> tuple[int, int] | None:
        """First and last page, from 1.

        The result is None where the format has no pages.
        """
        return None if self.page_start is None else (self.page_start, self.page_end or self.page_start)


class Located(Paged):
    """A record of a text with its location in a document."""

    __slots__ = ()
    section: tuple[str, ...]
    start: Offset
    end: Offset
    line_start: Offset
    line_end: Offset
    place_spans: Places

    @computed_field  # type: ignore[prop-decorator]
    @property
    def span(self) -> tuple[int, int]:
        """Characters of the document's text: first, and one after the last."""
        return self.start, self.end

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lines(self) -> tuple[int, int]:
        """First and last line, from 1."""
        return self.line_start, self.line_end

    @computed_field  # type: ignore[prop-decorator]
    @property
    def location(self) -> str:
        """Section and lines, pages, cells or paragraphs for people.

        For example `Churn Calculation | L12 to L38`, or `Sales!B12:D12`.
        """
        heading = self.section[-1:]
        if (place := self.place) is not None and (reference := place.reference):
            # The heading of a sheet or an attachment is its name.
            titles = heading if heading not in ((place.sheet,), (place.attachment,)) else ()
            exact = place.cells or place.paragraphs
            return " | ".join([*titles, reference, *([] if exact else [self._where])])
        return " | ".join([*heading, self._where])

    @property
    def _where(self) -> str:
        name, repeated, (first, last) = ("p. ", "", self.pages) if self.pages else ("L", "L", self.lines)
        return f"{name}{first}" if first == last else f"{name}{first} to {repeated}{last}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def place(self) -> Place | None:
        """Cells, paragraphs, anchor or attachment in the file.

        The result is None where the format has no such place.
        """
        return find_place(self.place_spans, self.start, self.end)
