"""Arguments that several tools have."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from kosmos_rag.apps.faults import describe_faults
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import QuerySyntax

Question = Annotated[str, Field(min_length=1)]
Hits = Annotated[int, Field(strict=True, ge=1, le=1000)] | None
Collection = Annotated[str | None, Field(description="Only this one.")]
Sources = Annotated[list[str] | None, Field(description="Only these files or folders.")]
Where = Annotated[dict[str, Any] | None, Field(description='Like {"metadata.year": {"$gte": 2024}}.')]
Syntax = Annotated[QuerySyntax, Field(description="Are + and - operators: by the question, always, never.")]
MaxTokens = Annotated[int | None, Field(strict=True, ge=1)]

Model = TypeVar("Model", bound=BaseModel)


def validate(kind: type[Model], **values: Any) -> Model:
    """Return a request of the service.

    Raises RequestError for values that it refuses.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestError(f"invalid arguments: {format_faults(error, values)}") from None


def format_faults(error: ValidationError, arguments: dict[str, Any]) -> str:
    """Return what is wrong with each argument, in one line."""
    faults = describe_faults([{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()], arguments)
    pairs = ((".".join(map(str, fault["location"][1:])), fault["message"]) for fault in faults)
    return "; ".join(f"{name}: {message}" if name else message for name, message in pairs)
