"""The registry of tools: their list, and their calls.

A tool is a method `(caller, **arguments)` that returns the members of its result. Agents read its name, docstring and
annotations in every conversation, so these are short.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mcp.server.mcpserver.tools import Tool as Definition
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as ListedTool
from pydantic import ValidationError

from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.mcp.arguments import format_faults
from kosmos_rag.apps.mcp.budget import Shorten, fit
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import CollectionInfo

Result = dict[str, Any]
"""The members of a result, in the shape of the service without `explain`: agents get no scores."""

_NOT_LISTED = frozenset({"title", "additionalProperties", "minLength", "minItems", "minimum"})
_READ_ONLY = ToolAnnotations(read_only_hint=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a caller has that tools can use."""

    documents: bool
    """Whether the caller may read a document that no wing has for itself, such as the schema of a database."""
    language_model: bool
    """Whether a language model is configured."""
    tenant: str
    collections: Sequence[CollectionInfo]
    """Those with a document that the caller may read."""
    settings: Settings


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of agents."""

    call: Callable[..., Awaitable[Result]]
    is_useful: Callable[[Usage], bool]
    """Whether it is listed. A tool that is not listed can be called: a client may have an older list."""
    shorten: Shorten
    """Makes its result shorter, step by step."""
    definition: Definition

    @classmethod
    def from_method(
        cls, call: Callable[..., Awaitable[Result]], *, is_useful: Callable[[Usage], bool], shorten: Shorten
    ) -> Self:
        """Create a tool of a method, whose first parameter is the caller.

        Args:
            call: the method; each parameter but `caller` is an argument of the tool.
            is_useful: whether it is listed for a caller.
            shorten: makes its result shorter, for `max_tokens`.
        """
        description = " ".join((inspect.getdoc(call) or "").split())
        definition = Definition.from_function(
            call, description=description, context_kwarg="caller", structured_output=False
        )
        return cls(call, is_useful, shorten, definition)

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def listed(self) -> ListedTool:
        """Its definition for clients.

        Results have no schema here: they would be ten times as long as all else. docs/mcp.md describes them.
        """
        return ListedTool(
            name=self.name,
            description=self.definition.description,
            input_schema=compact_schema(self.definition.parameters),
            annotations=_READ_ONLY,
        )

    async def run(self, caller: Caller, arguments: dict[str, Any], *, max_tokens: int) -> CallToolResult:
        """Call the tool and return its result within a budget.

        Raises RequestError for invalid arguments, and what the method raises.

        Args:
            arguments: as the client sent them.
            max_tokens: budget of a call that names none.
        """
        parameters = self.definition.parameters["properties"]
        if unknown := sorted(arguments.keys() - parameters):
            # An agent would believe that they had an effect.
            raise RequestError(f"{self.name} has no argument {', '.join(unknown)}; it takes {', '.join(parameters)}")
        try:
            valid = self.definition.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise RequestError(f"invalid arguments of {self.name}: {format_faults(error, arguments)}") from None
        result = await self.call(caller, **valid)
        budget = valid["max_tokens"] or max_tokens
        shortened = await caller.run(fit, result, budget, caller.tenant().count_tokens, self.shorten)
        text = TextContent(type="text", text=encode(shortened))
        return CallToolResult(content=[text], structured_content=shortened)


def encode(result: Result) -> str:
    """Return a result as the text that agents read."""
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def compact_schema(schema: Any) -> Any:
    """Return a JSON Schema without what an agent need not read.

    Titles repeat the names of members, null is the default of each optional one, and no agent asks for fewer than one.
    """
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [compact_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        parts = [part for part in schema["anyOf"] if part != {"type": "null"}]
        if len(parts) == 1:
            schema = {**parts[0], **{name: value for name, value in schema.items() if name != "anyOf"}}
        else:
            schema = schema | {"anyOf": parts}
    left_out = _NOT_LISTED | ({"default"} if schema.get("default", "") is None else set())
    return {
        name: {member: compact_schema(part) for member, part in value.items()}
        if name == "properties"
        else compact_schema(value)
        for name, value in schema.items()
        if name not in left_out
    }
