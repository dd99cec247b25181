"""The page of all metrics, with those of the wings."""

from pathlib import Path

from tests.metrics_page import reference

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_page__is_what_the_module_says() -> None:
    assert PAGE.read_text() == reference(), "run: python -m tests.metrics_page > docs/metrics.md"
