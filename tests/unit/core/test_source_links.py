"""Links to lines of hosted files."""

from typing import Any

import pytest

from kosmos_rag.core.source_links import build_link

PAGE = "https://github.com/acme/handbook/blob/1f2e/docs/a%20b.md"


@pytest.mark.parametrize(
    ("metadata", "link"),
    [
        ({"link": PAGE, "link_lines": "#L{start}-L{end}"}, f"{PAGE}#L3-L7"),
        ({"link": PAGE}, PAGE),
        ({"link": PAGE, "link_lines": ["#L{start}"]}, PAGE),
        ({"link": "javascript:alert(1)", "link_lines": "#L{start}"}, None),
        ({"link": 7}, None),
        ({}, None),
    ],
)
def test_build_link__is_the_page_and_its_lines(metadata: dict[str, Any], link: str | None) -> None:
    assert build_link(metadata, 3, 7) == link
