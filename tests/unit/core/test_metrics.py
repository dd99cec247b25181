"""The declarations of metrics."""

import re

from tests.metrics_page import BY_NAME, METRICS


def test_metrics__are_declared_once_and_are_whole() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"kosmos(_[a-z0-9]+)+", metric.name), metric.name
        assert metric.help.endswith("."), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name
        assert metric.across_tenants is None or (metric.kind == "gauge" and not metric.labels), metric.name
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket", "_created")), metric.name
        if metric.kind == "histogram":
            assert metric.name.endswith(("_seconds", "_jobs")), "a histogram's name ends with its unit"
