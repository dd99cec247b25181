"""Hooks of MkDocs: the generated pages of the reference, and the files of the repository that pages link to."""

import gc
import inspect
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import kosmos_rag
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.http.app import describe_api
from kosmos_rag.apps.http.toolkit.service import Service, SharedObjects
from kosmos_rag.apps.mcp.tools import Tools
from kosmos_rag.apps.mcp.wings import load_mcp_wings
from kosmos_rag.apps.problem_details import PROBLEMS
from kosmos_rag.core import errors

ROOT = Path(__file__).parents[2]
_REMEDIES = {
    "not-authenticated": "Send a valid API key or token as `Authorization: Bearer …`.",
    "not-permitted": "Use a key or token with the scope that the message names.",
    "not-found": "Check the identifier, and that the reader may see the resource.",
    "payload-too-large": "Send less, or raise `service.max_body_kb`.",
    "too-many-requests": "Wait for the seconds of `Retry-After`, or raise `service.rates`.",
    "limit-reached": "Wait for the seconds of `Retry-After`, or raise the limit in `metering.limits`.",
    "budget-reached": "Wait for the seconds of `Retry-After`, or raise the limit in `metering.limits`.",
    "overloaded": "Try again after `Retry-After`; add processes or raise `database.pool_size` if it lasts.",
    "sign-in-unavailable": "See the log of the service: it names the address of `service.openid.issuer` that failed.",
    "timed-out": "Request less, or raise `service.timeout_s`.",
    "request-invalid": "Correct the values that `errors` or the message names.",
    "document-invalid": "See the meaning of `code` in [error codes](../error-codes.md).",
    "embedding-space-changed": "Send the request again: it is embedded with the new model.",
    "index-locked": "Try again later: another process maintains the indexes.",
    "lease-lost": "Nothing: another worker does the job.",
    "model-unavailable": "Run `kosmos-rag doctor`: it names the model and how to obtain it.",
    "embedding-space-mismatch": "Configure the model that the documents were embedded with, or re-embed them.",
    "model-failed": "Look at the log of the service; the language model or the embedding model failed.",
    "node-unavailable": "Start the node that the log of the service names; tenants on other nodes are served.",
    "database-unavailable": "Start the database, or correct `database.url`.",
    "database-not-ready": "Run `kosmos-rag migrate` and `kosmos-rag doctor`.",
    "database-failed": "Look at the log of the service; it has the SQLSTATE.",
    "configuration-invalid": "Correct the setting that the message names.",
}
"""What a caller or operator can do, by the name of the problem type."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)(#[^)\s]*)?\)")


def on_startup(*, command: str, **_options: object) -> None:
    """Collect no garbage in a build, whose process ends with it: that takes a fifth of its time."""
    if command == "build":
        gc.disable()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every decision to the navigation."""
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    _list_of(config.nav, "Explanation", "Decisions").extend(f"decisions/{name}" for name in decisions)
    return config


def _list_of(nav: Any, *titles: str) -> list[Any]:
    for title in titles:
        nav = next(entry[title] for entry in nav if isinstance(entry, dict) and title in entry)
    entries: list[Any] = nav
    return entries


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, write in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=write()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Copy linked files from outside docs/ into the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def replace(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/"):
            return link[0]
        path = ROOT / target
        if path.is_dir():
            return f"{link[1]} (`{target}`)"
        copied = f"repository/{target}" + (".txt" if path.suffix == ".md" else "")
        if files.get_file_from_path(copied) is None:
            files.append(File.generated(config, copied, content=path.read_text(encoding="utf-8")))
        return f"[{link[1]}]({posixpath.relpath(copied, folder or '.')})"

    return _LINK.sub(replace, markdown)


def write_commands() -> str:
    """Return the page of all commands with their arguments and options."""
    lines = ["# Commands", "", "`kosmos-rag COMMAND --help` prints the same.", ""]
    return "\n".join([*lines, *_describe_command(typer.main.get_command(app), ("kosmos-rag",))])


def _describe_command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    context = typer.Context(command, info_name=" ".join(path))
    if len(path) > 1:
        yield from (f"## {' '.join(path[1:])}", "", inspect.cleandoc(command.help or ""), "")
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _describe_command(command.get_command(context, name), (*path, name))
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{' '.join(path)} {usage}", "```", "")
    rows = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    if rows:
        yield from ("| Option | Meaning |", "| --- | --- |")
        yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in rows)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def write_http() -> str:
    """Return the page of all routes, from the OpenAPI document."""
    document = describe_api()
    lines = ["# HTTP API", "", "The service has this as OpenAPI 3.1 at `/openapi.json`. [HTTP service](../service.md)"]
    lines += ["explains authentication, limits and streams.", ""]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += _describe_operation(f"{method.upper()} {path}", operation, document["components"]["schemas"])
    return "\n".join(lines)


def _describe_operation(title: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {title}", "", operation.get("description") or operation.get("summary", ""), "")
    rows = [
        (parameter["name"], parameter["in"], parameter["schema"], parameter.get("description", ""))
        for parameter in operation.get("parameters", [])
    ]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        body = _resolve(content.get("schema", {}), schemas)
        for name, schema in body.get("properties", {}).items():
            required = "required" if name in body.get("required", []) else "optional"
            rows.append((name, f"body, {required}", schema, schema.get("description", "")))
        if not body.get("properties"):
            rows.append(("body", media_type, body, body.get("description", "")))
    if rows:
        yield from ("| Name | In | Type | Meaning |", "| --- | --- | --- | --- |")
        for name, place, schema, meaning in rows:
            yield f"| `{name}` | {place} | {_cell(_type_of(schema))} | {_cell(meaning)} |"
        yield ""
    yield from (f"Statuses: {', '.join(sorted(operation['responses']))}.", "")


def _resolve(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        resolved: dict[str, Any] = schemas[schema["$ref"].rsplit("/", 1)[1]]
        return resolved
    return schema


def _type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type_of(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type_of(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))


def write_mcp() -> str:
    """Return the page of all MCP tools with their arguments."""
    lines = [
        "# MCP tools",
        "",
        "The descriptions are those that agents read. [MCP](../mcp.md) explains results, budgets",
    ]
    lines += ["and authentication.", ""]
    service = cast("Service", SimpleNamespace(shared=SharedObjects()))  # the rest is for calls
    tools = [*Tools(service).build_tools(), *(tool for wing in load_mcp_wings() for tool in wing.build_tools(service))]
    for tool in tools:
        listed = tool.listed
        required = listed.input_schema.get("required", [])
        lines += [
            f"## {tool.name}",
            "",
            listed.description or "",
            "",
            "| Argument | Type | Meaning |",
            "| --- | --- | --- |",
        ]
        for name, schema in listed.input_schema["properties"].items():
            kind = _cell(_type_of(schema)) + (", required" if name in required else "")
            lines.append(f"| `{name}` | {kind} | {_cell(schema.get('description', ''))} |")
        lines.append("")
    return "\n".join(lines)


def write_library() -> str:
    """Return the page of the public names, which mkdocstrings fills."""
    lines = ["# Library", "", "What `from kosmos_rag import …` offers.", ""]
    for name in kosmos_rag.__all__:
        public = getattr(kosmos_rag, name)
        if inspect.isclass(public):
            lines += [f"::: {public.__module__}.{public.__qualname__}", ""]
    return "\n".join(lines)


def write_errors() -> str:
    """Return the page of all problem types and of all error classes."""
    lines = ["# Errors", "", "Every error that the library raises on purpose is a `KosmosError`.", "", "## HTTP", ""]
    lines += ["The body of an error is a problem (RFC 9457). Its `type` is `urn:kosmos-rag:problem:` and the name.", ""]
    lines += ["| Name | Status | Cause | Remedy |", "| --- | --- | --- | --- |"]
    for kind, problem in PROBLEMS.items():
        lines.append(f"| `{problem.name}` | {problem.status} | {_first_line(kind)} | {_REMEDIES[problem.name]} |")
    lines += ["", "## Library", "", "| Class | Base class | Cause | Remedy |", "| --- | --- | --- | --- |"]
    for subclass, base in _subclasses(errors.KosmosError):
        names = [PROBLEMS[kind].name for kind in subclass.__mro__ if kind in PROBLEMS]
        remedy = _REMEDIES[names[0]] if names else "Read the message: it names the problem and the remedy."
        cause = _cell(inspect.getdoc(subclass) or "")
        lines.append(f"| `{subclass.__name__}` | `{base.__name__}` | {cause} | {remedy} |")
    lines += ["", "[Error codes](../error-codes.md) has the codes of documents with cause and remedy."]
    return "\n".join(lines)


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _subclasses(base: type[Exception]) -> Iterator[tuple[type[Exception], type[Exception]]]:
    """Yield each error class with its base class."""
    for subclass in base.__subclasses__():
        if subclass.__module__ == base.__module__:
            yield subclass, base
            yield from _subclasses(subclass)


PAGES: dict[str, Callable[[], str]] = {
    "commands": write_commands,
    "http": write_http,
    "mcp": write_mcp,
    "library": write_library,
    "errors": write_errors,
}
"""The generated pages, by their names in reference/."""
