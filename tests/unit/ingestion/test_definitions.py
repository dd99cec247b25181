"""Which terms a text defines."""

import pytest

from kosmos_rag.ingestion.definitions import find_defined_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("``umask``\n\n  The umask of the process.\n\n  *Default*: 022", ["``umask``"]),
        ("umask\n  The umask of the process.", ["umask"]),
        ("umask\n: The umask of the process.", ["umask"]),
        ("- `umask`: the umask\n- `user`, `group`: who runs it", ["`umask`", "`user`, `group`"]),
        ("* **umask** - the umask\n1. **user** \u2013 who runs it", ["**umask**", "**user**"]),
        ("| `umask` | the umask |\n| `user` | who runs it |", ["`umask`", "`user`"]),
        ("-c FILE, --configuration=FILE\n\n   The path of the file.", ["-c FILE, --configuration=FILE"]),
        ("  --dest TEXT  The folder.\n  -v           Say more.", ["--dest TEXT", "-v"]),
        (".. envvar:: SUPERVISOR_USER\n\n   Who runs it.", ["SUPERVISOR_USER"]),
        (".. py:function:: open(file)\n.. automethod:: clearLog", ["open(file)", "clearLog"]),
        ("Flughafen\n    Ein Platz für Flugzeuge.", ["Flughafen"]),
        ("`umask`: one\n\n`umask`: two", ["`umask`"]),
        ("#### `-l`, `--line-length`\n\nThe most characters.", ["`-l`, `--line-length`"]),
    ],
)
def test_find_defined_terms__are_found(text: str, terms: list[str]) -> None:
    assert find_defined_terms(text) == terms


@pytest.mark.parametrize(
    "text",
    [
        "Set `umask` to 022. The option `user` names the owner.",
        "`umask` sets the permissions of new files.",
        "``STARTING`` -> ``RUNNING``",
        "- an item whose text goes on\n  in the next line",
        "A sentence before a quotation.\n\n    The quotation.",
        "def run():\n    return 1",
        "```python\n    run()\n```",
        "+------+\n  | a |",
        "This line has far too many words for a term\n  and this one is indented.",
        ".. code-block:: ini\n\n   [program]",
        "## Basic usage\n\nRun it.",
        "## Turn `umask` off\n\nSet it to 0.",
        "",
    ],
)
def test_find_defined_terms__are_not_seen_in_other_text(text: str) -> None:
    assert find_defined_terms(text) == []
