"""The pages of docs/ that this module writes from the code, such as alerts, error codes and routes.

python -m tests.written_pages
"""

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml
from packaging.requirements import Requirement
from pydantic import BaseModel

from kosmos_rag.apps.client import Client, calls
from kosmos_rag.apps.client.wings import load_client_calls
from kosmos_rag.apps.http.app import describe_api
from kosmos_rag.apps.http.console.remedies import ERROR_CODES
from kosmos_rag.apps.http.toolkit.service import Service, SharedObjects
from kosmos_rag.apps.mcp.tools import Tools
from kosmos_rag.apps.mcp.wings import load_mcp_wings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.retrieval.signals.base import ScoreSignal, SelectionSignal
from kosmos_rag.retrieval.signals.registry import load_signal_classes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_WRITTEN = "Written by `python -m tests.written_pages` from"
_CODE = re.compile(r"(?<![`\w])(kosmos-rag \w+|(?:ingestion|rag)(?:\.\w+)+)")


def write_alerts() -> str:
    """Return the page of all alerts with their remedies."""
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    rows = [
        (f"`{rule['alert']}`", rule["labels"]["severity"], *(rule["annotations"][key] for key in ("summary", "remedy")))
        for rule in alerts
    ]
    return _page(
        "Alerts",
        f"{_WRITTEN} the annotations in `deploy/prometheus/rules.yml`. An alert with the severity `page` needs somebody"
        " now, a `ticket` in office hours. Commands about one tenant read `default` without `--tenant`; the log of the"
        " worker names the tenant.",
        _table(("alert", "severity", "meaning", "remedy"), rows),
    )


def write_error_codes() -> str:
    """Return the page of all codes of documents that failed."""
    rows = [
        (f"`{code}`", _code(error.cause), _code(error.remedy), "yes" if _is_retried(code) else "no")
        for code, error in sorted(ERROR_CODES.items())
    ]
    return _page(
        "Error codes of documents",
        f"{_WRITTEN} `kosmos_rag/apps/http/console/remedies.py`. The last column is `IngestionError.retryable`:"
        " whether a worker [tries the job again](workers.md#states-of-a-job). See also [limits](parsing.md#limits),"
        " [scanned files](parsing.md#ocr) and [departments](access.md#only-hr-may-read).",
        _table(("code", "cause", "remedy", "retried"), rows),
    )


def write_routes() -> str:
    """Return the page of all routes with their scopes."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for path, methods in describe_api()["paths"].items():
        for method, operation in methods.items():
            row = (f"`{method.upper()} {path}`", _scope(operation), _first_paragraphs(operation["description"]))
            groups.setdefault(operation["tags"][0], []).append(row)
    blocks = [
        block
        for tag, rows in groups.items()
        for block in (f"## {tag.capitalize().replace('Openai', 'OpenAI')}", _table(("route", "scope", ""), rows))
    ]
    return _page(
        "Routes",
        f"{_WRITTEN} the OpenAPI document. The service shows each route with its parameters and examples at"
        " `/docs`, and the document at `/openapi.json`. [HTTP service](service.md) explains authentication,"
        " limits and streams.",
        *blocks,
    )


def write_client() -> str:
    """Return the page of all calls of the Python client."""
    names = [name for name in dir(Client) if name[0] != "_" and hasattr(calls, name)]
    defined = {name: getattr(calls, name) for name in names} | dict(load_client_calls())
    rows = [
        (f"`{name}({_arguments(call)})`", f"`{_return_type(call)}`", _first_paragraphs(_lead(call)))
        for name, call in sorted(defined.items())
    ]
    return _page(
        "Calls of the Python client",
        f"{_WRITTEN} their definitions. `Client` and `AsyncClient` have the same calls. [Python client](client.md) has"
        " an example, and explains errors and retries.",
        _table(("call", "returns", ""), rows),
    )


def _arguments(call: Callable[..., Any]) -> str:
    """Return the names of the arguments, with `=…` where there is a default."""
    parameters = inspect.signature(call).parameters.values()
    return ", ".join(
        parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}=…"
        for parameter in parameters
    )


def _return_type(call: Callable[..., Any]) -> str:
    """Return what a client makes of a call's response, without the modules of its types."""
    annotation = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(inspect.signature(call).return_annotation))
    if annotation == "Request":  # of a stream
        return "Iterator[AnswerEvent]"
    return annotation.removeprefix("Call[").removesuffix("]").replace("NoneType", "None")


def _lead(call: Callable[..., Any]) -> str:
    return (inspect.getdoc(call) or "").partition("\n\n")[0].partition(" Args: see ")[0]


def write_extras() -> str:
    """Return the page of all extras with their purpose and packages."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = pyproject["project"]["optional-dependencies"]
    rows = [
        (f"`{extra}`", purpose, ", ".join(_package_names(packages[extra])))
        for extra, purpose in pyproject["tool"]["kosmos-rag"]["extras"].items()
    ]
    return _page(
        "Extras",
        f"{_WRITTEN} `pyproject.toml`. [Installation](installation.md) has the commands.",
        _table(("extra", "for", "packages and other extras"), rows),
    )


def _package_names(requirements: Sequence[str]) -> Iterator[str]:
    """Yield the names of packages, and of extras of this package."""
    for requirement in map(Requirement, requirements):
        if requirement.name == "kosmos-rag":
            yield from (f"`{extra}`" for extra in sorted(requirement.extras))
        else:
            yield requirement.name


def write_mcp_tools() -> str:
    """Return the page of all tools of agents with their arguments."""
    rows = []
    service = cast("Service", SimpleNamespace(shared=SharedObjects()))  # the rest is for calls
    tools = [*Tools(service).build_tools(), *(tool for wing in load_mcp_wings() for tool in wing.build_tools(service))]
    for tool in tools:
        required = tool.listed.input_schema.get("required", [])
        names = [
            f"`{name}`" + (" (required)" if name in required else "") for name in tool.listed.input_schema["properties"]
        ]
        rows.append((f"`{tool.name}`", ", ".join(names), _first_paragraphs(tool.listed.description or "")))
    return _page(
        "MCP tools",
        f"{_WRITTEN} the definitions of the tools. The descriptions are those that agents read. [MCP](mcp.md) explains"
        " results, budgets and authentication.",
        _table(("tool", "arguments", "description"), rows),
    )


def write_signals() -> str:
    """Return the page of all signals with their parameters."""
    blocks = []
    for base, title in ((ScoreSignal, "Signals that score"), (SelectionSignal, "Signals that select")):
        rows = [
            (f"`{name}`", _first_paragraphs(inspect.getdoc(rule) or ""), _parameters(rule))
            for name, rule in sorted(load_signal_classes().items())
            if issubclass(rule, base)
        ]
        blocks += [f"## {title}", _table(("name", "", "parameters"), rows)]
    return _page(
        "Signals by name",
        f"{_WRITTEN} the classes of signals. [Signals and intents](signals.md) explains how they add up. Each that"
        ' scores has a `weight`, and `how: "add"` or `"multiply"`. Those of `schema_…` are for [schemas](schema.md).',
        *blocks,
    )


def _parameters(rule: type[BaseModel]) -> str:
    """Return the parameters of a signal with default and meaning."""
    texts = []
    for name, field in rule.model_fields.items():
        if field.default == getattr(ScoreSignal.model_fields.get(name), "default", None):
            continue  # in the introduction
        default = "" if field.is_required() else f": {json.dumps(field.default)}"
        texts.append(f"`{name}{default}`" + (f" {field.description}" if field.description else ""))
    return "<br>".join(texts)


def write_security_properties() -> str:
    """Return the page of all properties of security, each with the test that fails without it."""
    blocks = []
    for subject, files in read_security_tests().items():
        rows = [(_read_property(file, test), f"`{file}::{test}`") for file, tests in files.items() for test in tests]
        blocks += [f"## {subject}", _table(("property", "test"), rows)]
    return _page(
        "Properties of security and their tests",
        f"{_WRITTEN} the first sentence of each test in `tests/`, which fails without the property."
        " [Security](security.md) has the assets, the attackers and the promises.",
        *blocks,
    )


def read_security_tests() -> dict[str, dict[str, list[str]]]:
    """Return the names of the tests by subject and file."""
    text = (ROOT / "tests" / "security_properties.yaml").read_text(encoding="utf-8")
    subjects: dict[str, dict[str, list[str]]] = yaml.safe_load(text)
    return subjects


def _page(title: str, introduction: str, *blocks: str) -> str:
    return "\n\n".join([f"# {title}", introduction, *blocks]) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return _CODE.sub(r"`\1`", text)


def _is_retried(code: str) -> bool:
    return IngestionError(code, "").retryable


def _scope(operation: dict[str, Any]) -> str:
    return " or ".join(scope for entry in operation.get("security", []) for scope in entry["HTTPBearer"]) or "none"


def _first_paragraphs(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split())


def _read_property(file: str, test: str) -> str:
    """Return the first paragraph of a test's docstring."""
    # Not by `ast`: another thread that logs an error parses its lines too, and Python 3.11 fails if both do at once.
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    docstring = re.search(
        rf'^(?:async )?def {test}\([^"]*?\).*?:\n    """(.+?)(?:\n\n|""")', source, re.MULTILINE | re.DOTALL
    )
    if docstring:
        return " ".join(docstring[1].split())
    raise LookupError(f"tests/{file} has no test {test} with a docstring; name one that states the property")


PAGES: dict[str, Callable[[], str]] = {
    "alerts.md": write_alerts,
    "client-calls.md": write_client,
    "error-codes.md": write_error_codes,
    "extras.md": write_extras,
    "mcp-tools.md": write_mcp_tools,
    "routes.md": write_routes,
    "security-properties.md": write_security_properties,
    "signals-by-name.md": write_signals,
}
"""The written pages, by their names in docs/."""


if __name__ == "__main__":
    for page, write in PAGES.items():
        (DOCS / page).write_text(write(), encoding="utf-8")
