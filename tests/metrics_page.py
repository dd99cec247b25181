"""Every metric of our processes, and docs/metrics.md.

python -m tests.metrics_page > docs/metrics.md
"""

import sys
from collections.abc import Iterator

from kosmos_rag.apps.http.toolkit.metrics import HTTP
from kosmos_rag.core.telemetry.metrics import ENGINE, INGESTION, load_wing_metrics
from kosmos_rag.worker.metrics import WORKER

GROUPS = {
    "Engine: on `service.health_port`, or in [your own process](observability.md)": (
        *ENGINE,
        *load_wing_metrics("engine"),
    ),
    "Ingestion: of a worker on `worker.health_port`, or of an engine in your own process": INGESTION,
    "HTTP service: on `service.health_port`": HTTP,
    "Worker: on `worker.health_port`": (*WORKER, *load_wing_metrics("worker")),
}
METRICS = tuple(metric for group in GROUPS.values() for metric in group)
BY_NAME = {metric.name: metric for metric in METRICS}


def reference() -> str:
    """Return the text of docs/metrics.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Written by `python -m tests.metrics_page` from what each package declares in its `metrics.py`."
    yield "Prometheus appends `_total` to the name of a counter, and `_bucket`, `_sum`, `_count` to a histogram."
    yield "In the OpenMetrics format each bucket carries the `trace_id` of an example request."
    yield "[Alerts](alerts.md) has the remedies for alerts."
    for title, metrics in GROUPS.items():
        yield ""
        yield f"## {title}"
        yield ""
        yield "| name | type | labels | meaning |"
        yield "|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
            yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
