"""Commands in the documentation: each names a command, options and values that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kosmos_rag.apps.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(?:sh|bash|console|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
IDENTIFIER = "01890a5d-ac96-774b-bcce-b302099a8057"
SEPARATORS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>"}


def _commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of each call of kosmos-rag in the blocks of a page."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
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
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        command = found
    if "--help" not in arguments:
        command.make_context(command.name, list(arguments), resilient_parsing=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands__are_those_of_the_command_line(page: Path) -> None:
    root = typer.main.get_command(app)
    wrong = []
    for arguments in _commands(page):
        try:
            _parse(root, arguments)
        except Exception as error:  # noqa: BLE001
            wrong.append(f"kosmos-rag {' '.join(arguments)}: {getattr(error, 'message', error)}")
    assert not wrong, "\n".join(wrong)


def test_pages__have_commands() -> None:
    assert sum(len(list(_commands(page))) for page in PAGES) > 100
