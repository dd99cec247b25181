"""What the commands print for people, of texts that others wrote."""

import pytest

from kosmos_rag.apps.cli.common import console, table
from kosmos_rag.core.config.display import one_line

HOSTILE = "a\x1b]0;owned\x07 \x9b2J [bold]b[/bold] :warning:\r\tc"
SHOWN = "a\ufffd]0;owned\ufffd \ufffd2J [bold]b[/bold] :warning:\ufffd"


def test_console__shows_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line shows control characters of documents and questions and does not send them to the terminal."""
    console().print(f"{HOSTILE}\nd")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(SHOWN)
    assert second == "d"


def test_table__shows_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("question", "comment")
    rows.add_row(HOSTILE, HOSTILE)
    console().print(rows)
    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 2
    assert "\x1b" not in printed


def test_source__stays_on_one_line_and_runs_one_way() -> None:
    assert one_line("a\nfailed [x] b\u202etxt.md") == r"a\nfailed [x] b\u202etxt.md"
