"""Commands in the documentation: each names a command, options and values that exist."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.http.app import describe_api

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
BLOCK = re.compile(r"^ *```(?:sh|bash|console|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
IDENTIFIER = "01890a5d-ac96-774b-bcce-b302099a8057"
SEPARATORS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>"}
BOTH_OUTPUTS = "2>&1"


def list_commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of each call of kosmos-rag in the blocks of a page."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").replace(BOTH_OUTPUTS, "").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            lexer.whitespace_split = True
            words = [IDENTIFIER if word == "ID" else word for word in lexer]
            starts = [place for place, word in enumerate(words) if word == "kosmos-rag"]
            for start in starts:
                rest = words[start + 1 :]
                end = next((place for place, word in enumerate(rest) if word in SEPARATORS), len(rest))
                yield rest[:end]


def _parse(command: Any, arguments: list[str]) -> None:
    """Parse arguments as the command line does, without running anything."""
    while hasattr(command, "list_commands"):
        if not arguments or arguments[0].startswith("-"):
            break
        context = typer.Context(command)
        name, *arguments = arguments
        result = command.get_command(context, name)
        assert result is not None, f"there is no command {name!r}"
        command = result
    if "--help" not in arguments:
        command.make_context(command.name, list(arguments), resilient_parsing=False)


@pytest.fixture(scope="module")
def root() -> Any:
    """The command line with all its commands."""
    return typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands__are_those_of_the_command_line(page: Path, root: Any) -> None:
    wrong = []
    for arguments in list_commands(page):
        try:
            _parse(root, arguments)
        except Exception as error:  # noqa: BLE001
            wrong.append(f"kosmos-rag {' '.join(arguments)}: {getattr(error, 'message', error)}")
    assert not wrong, "\n".join(wrong)


def _lines() -> Iterator[tuple[str, str]]:
    """Yield page and line of all blocks of commands."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            yield from ((page.name, line) for line in block.replace("\\\n", " ").splitlines())


def test_other_commands__name_what_exists() -> None:
    """Targets of make, modules of `python -m`, extras of pip, and routes of curl."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    routes = describe_api()["paths"]
    wrong = []
    for page, line in _lines():
        matches = re.findall(r"(?:^|&& )make ([\w-]+)", line)
        wrong += [f"{page}: make {name}" for name in matches if name not in targets]
        modules = re.findall(r"python[\d.]* -m ((?:workers|benchmarks|kosmos_rag)[\w.]*)", line)
        wrong += [f"{page}: python -m {name}" for name in modules if find_spec(name) is None]
        expected = {name for names in re.findall(r"kosmos-rag\[([\w,-]+)\]", line) for name in names.split(",")}
        wrong += [f"{page}: extra {name}" for name in expected if name not in extras]
        requests = re.findall(r"curl .*?:8000(/v1/[\w/]+)", line)
        wrong += [f"{page}: {path}" for path in requests if path not in routes]
    assert not wrong, "\n".join(wrong)


def test_pages__have_commands() -> None:
    assert sum(len(list(list_commands(page))) for page in PAGES) > 100
