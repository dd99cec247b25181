"""Faults of a request are named by places of its body, and not by the types of a model."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from kosmos_rag.apps.faults import describe_faults


class Part(BaseModel):
    type: Literal["text"]
    text: str


class Question(BaseModel, extra="forbid"):
    text: Annotated[str, Field(min_length=1)] | list[Part]
    limit: int | float | None = None
    names: dict[str, bool | str] = {}


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, [(["text"], "Field required")]),
        ({"text": ""}, [(["text"], "String should have at least 1 character")]),
        ({"text": 1}, [(["text"], "Input should be a valid string; or Input should be a valid list")]),
        (
            {"text": [{"type": "image"}]},
            [(["text", 0, "type"], "Input should be 'text'"), (["text", 0, "text"], "Field required")],
        ),
        ({"text": ["a"]}, [(["text", 0], "Input should be a valid dictionary or instance of Part")]),
        ({"text": "a", "more": 1}, [(["more"], "Extra inputs are not permitted")]),
        (
            {"text": "a", "names": {"b": []}},
            [(["names", "b"], "Input should be a valid boolean; or Input should be a valid string")],
        ),
        ([], [([], "Input should be a valid dictionary or instance of Question")]),
    ],
)  # fmt: skip
def test_faults__are_named_by_the_places_of_the_body(body: Any, faults: list[tuple[list[Any], str]]) -> None:
    with pytest.raises(ValidationError) as refused:
        Question.model_validate(body)
    reported = [{**fault, "loc": ("body", *fault["loc"])} for fault in refused.value.errors()]
    described = [(fault["location"], fault["message"]) for fault in describe_faults(reported, body)]
    assert described == [(["body", *location], message) for location, message in faults]


def test_faults__outside_of_a_body_keep_their_place() -> None:
    faults = [
        {"loc": ("query", "state", 0), "msg": "unknown", "type": "enum"},
        {"loc": ("body", 7), "msg": "JSON decode error", "type": "json_invalid"},
    ]
    assert [fault["location"] for fault in describe_faults(faults, "{")] == [["query", "state", 0], ["body", 7]]


def test_faults__of_a_body_that_is_not_json_by_its_header_name_the_header() -> None:
    fault = {"loc": ("body",), "msg": "Input should be a valid dictionary", "type": "model_attributes_type"}
    [described] = describe_faults([fault], b'{"text": "a"}')
    assert "content-type: application/json" in described["message"]


def test_faults__of_the_first_hundred_places_are_told_and_the_rest_counted() -> None:
    """With a comparison of each place with each other this would take hours."""
    names = [f"name{number}" for number in range(200_000)]
    faults = [
        {"loc": ("body", name), "msg": "Extra inputs are not permitted", "type": "extra_forbidden"} for name in names
    ]
    described = describe_faults(faults, dict.fromkeys(names, 1))
    assert [fault["location"] for fault in described] == [*(["body", name] for name in names[:100]), ["body"]]
    assert described[-1]["message"] == "199,900 more are not listed"
    assert len(describe_faults(faults[:100], dict.fromkeys(names, 1))) == 100
