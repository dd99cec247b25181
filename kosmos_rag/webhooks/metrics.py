"""Metrics of the delivery of events."""

from kosmos_rag.core.telemetry.metrics import Metric

WEBHOOK_DELIVERIES = Metric(
    "kosmos_webhook_deliveries",
    "counter",
    "Deliveries of events to subscribers, by outcome: delivered, failed (it is tried again), dead (a dead letter), "
    "gone (the subscriber is stopped).",
    ("outcome",),
    initial=(("delivered",), ("failed",), ("dead",), ("gone",)),
)
WEBHOOK_BEHIND_SECONDS = Metric(
    "kosmos_webhook_behind_seconds",
    "gauge",
    "Age of the oldest event that a subscriber of a tenant has not received, paused ones not counted; maximum over "
    "tenants.",
    across_tenants="max",
)
WEBHOOK_DEAD_LETTERS = Metric(
    "kosmos_webhook_dead_letters",
    "gauge",
    "Events of a tenant that its subscribers did not accept; maximum over tenants.",
    across_tenants="max",
)

METRICS = {
    "engine": (),
    "worker": (WEBHOOK_DELIVERIES, WEBHOOK_BEHIND_SECONDS, WEBHOOK_DEAD_LETTERS),
}
"""By what exports them."""
