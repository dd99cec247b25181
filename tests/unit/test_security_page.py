"""docs/security.md names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
_ROW = re.compile(r"^\| (?P<property>.+) \| `(?P<file>[\w/.]+)::(?P<test>\w+)` \|$")


def test_every_property_of_the_security_page__names_a_test_that_exists() -> None:
    page = (TESTS.parent / "docs" / "security.md").read_text()
    _, heading, appendix = page.partition("\n## Appendix: properties and their tests\n")
    assert heading
    rows = [line for line in appendix.splitlines() if line.startswith("| ") and not line.startswith("| property")]
    assert len(rows) > 80
    for line in rows:
        row = _ROW.match(line)
        assert row, f"not a property with its test: {line}"
        assert f"def {row['test']}(" in (TESTS / row["file"]).read_text(), line
