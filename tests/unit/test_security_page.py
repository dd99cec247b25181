"""docs/security.md names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
_ROW = re.compile(r"^\| (?P<property>.+) \| `(?P<file>[\w/.]+)::(?P<test>\w+)` \|$")


def test_every_property_of_the_security_page__names_a_test_that_exists() -> None:
    lines = (TESTS.parent / "docs" / "security.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| property")]
    assert len(rows) > 5
    for line in rows:
        row = _ROW.match(line)
        assert row, f"not a property with its test: {line}"
        assert f"def {row['test']}(" in (TESTS / row["file"]).read_text(), line
