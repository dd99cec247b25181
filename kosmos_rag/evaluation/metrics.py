"""Metrics of experiments, of the recall monitor and of its canaries."""

from kosmos_rag.core.telemetry.metrics import Metric

_STATES = (("ok",), ("alarm",), ("unknown",))

RECALL_MONITOR_SAMPLES = Metric(
    "kosmos_recall_monitor_samples",
    "counter",
    "Questions sampled for the recall monitor, by outcome: written, or dropped (the buffer was full or the write "
    "failed).",
    ("outcome",),
)
EXPERIMENT_QUESTIONS = Metric(
    "kosmos_experiment_questions",
    "counter",
    "Questions in an experiment, by outcome: kept (result stored), dropped (the queue was full), failed (the treatment "
    "or storing the result failed).",
    ("outcome",),
)
UNANSWERED_QUESTIONS = Metric(
    "kosmos_unanswered_questions",
    "counter",
    "Questions without an answer that gaps.record stores, by outcome: none (no hits), refused (the evidence was "
    "insufficient), declined (the language model refused), dropped (not stored: no room, or the write failed).",
    ("outcome",),
    initial=(("none",), ("refused",), ("declined",), ("dropped",)),
)
ANSWER_SAMPLES = Metric(
    "kosmos_answer_samples",
    "counter",
    "Answers and refusals that answer_checks.share selects, by outcome: written, or dropped (no room, or the write "
    "failed).",
    ("outcome",),
    initial=(("written",), ("dropped",)),
)
ANSWER_CHECKS = Metric(
    "kosmos_answer_checks",
    "counter",
    "Checks of sampled answers, by verdict: supported, unsupported (a sentence is not in its cited passages), outdated "
    "(a quote is no longer in a document that the reader may read).",
    ("verdict",),
    initial=(("supported",), ("unsupported",), ("outdated",)),
)
DISPUTED_REFUSALS = Metric(
    "kosmos_disputed_refusals",
    "gauge",
    "Sampled refusals whose reader rated them down for another reason than not_covered, or rated a passage up; maximum "
    "over tenants.",
    across_tenants="max",
)

KNOWLEDGE_GAPS = Metric(
    "kosmos_knowledge_gaps",
    "gauge",
    "Open groups of unanswered questions that enough readers have asked; maximum over tenants.",
    across_tenants="max",
)
RECALL_MONITOR_RUNS = Metric(
    "kosmos_recall_monitor_runs",
    "counter",
    "Runs of the recall monitor on sampled questions, by result: ok, alarm, or unknown (too few samples).",
    ("state",),
    initial=_STATES,
)
RECALL_MONITOR_ALARMS = Metric(
    "kosmos_recall_monitor_alarms_in_a_row",
    "gauge",
    "Consecutive runs of the recall monitor with an alarm, up to the latest; maximum over tenants.",
    across_tenants="max",
)
RECALL_MONITOR_REPAIRS = Metric(
    "kosmos_recall_monitor_repairs",
    "counter",
    "Repairs after low recall, by action: search_widened (a query reads more of the index), rebuilt, skipped (no "
    "repair, see kosmos-rag index log), busy (other maintenance runs; the next run of the monitor tries again).",
    ("action",),
    initial=(("search_widened",), ("rebuilt",), ("skipped",), ("busy",)),
)
RECALL_MONITOR_RECALL = Metric(
    "kosmos_recall_monitor_recall_at_10",
    "gauge",
    "Recall@10 of vector search on sampled live questions; minimum over tenants.",
    across_tenants="min",
)
RECALL_MONITOR_INCOMPLETE = Metric(
    "kosmos_recall_monitor_incomplete",
    "gauge",
    "Share of sampled live questions whose index returned too few chunks, so that all chunks were scanned; maximum "
    "over tenants.",
    across_tenants="max",
)
RECALL_MONITOR_DRIFT = Metric(
    "kosmos_recall_monitor_drift",
    "gauge",
    "Score drift of live questions since the last index build or tuning, divided by the most that chance explains; "
    "maximum over tenants.",
    across_tenants="max",
)
CANARY_RECALL = Metric(
    "kosmos_canary_recall_at_10",
    "gauge",
    "Recall@10 of canary questions (their answers are known); minimum over tenants that have some.",
    across_tenants="min",
)
CANARY_MRR = Metric(
    "kosmos_canary_mrr",
    "gauge",
    "Mean reciprocal rank at 10 of canary questions; minimum over tenants that have some.",
    across_tenants="min",
)
STALE_LABELS = Metric(
    "kosmos_canary_stale_labels",
    "gauge",
    "Labels of canary questions that no longer describe the documents: their place is gone, or its document was "
    "published after the label was checked; maximum over tenants.",
    across_tenants="max",
)
CANARY_RUNS = Metric(
    "kosmos_canary_runs",
    "counter",
    "Runs of the canary questions, by result: ok, alarm, or unknown (too few questions, or none could be asked).",
    ("state",),
    initial=_STATES,
)
PERMISSION_CHECKS = Metric(
    "kosmos_permission_checks",
    "counter",
    "Runs of the isolation canary: two test tenants search for each other's documents. By result: ok, alarm, or "
    "unknown (a tenant did not find its own document, or could not search).",
    ("state",),
    initial=_STATES,
)
PERMISSION_LEAKS = Metric(
    "kosmos_permission_leaks",
    "counter",
    "Passages in these runs that the tenant must not see. Any value above 0 is a leak.",
)

METRICS = {
    "engine": (RECALL_MONITOR_SAMPLES, EXPERIMENT_QUESTIONS, UNANSWERED_QUESTIONS, ANSWER_SAMPLES),
    "worker": (
        RECALL_MONITOR_RUNS, RECALL_MONITOR_ALARMS, RECALL_MONITOR_REPAIRS, RECALL_MONITOR_RECALL,
        RECALL_MONITOR_INCOMPLETE, RECALL_MONITOR_DRIFT, CANARY_RECALL, CANARY_MRR, CANARY_RUNS, STALE_LABELS,
        PERMISSION_CHECKS, PERMISSION_LEAKS, KNOWLEDGE_GAPS, ANSWER_CHECKS, DISPUTED_REFUSALS,
    ),
}  # fmt: skip
"""By what exports them."""
