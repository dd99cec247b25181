"""The wings of the library: their settings and their jobs.

A wing is one folder that can be removed. Each face has a list of its own: `apps/cli/wings.py`, `apps/http/wings.py`,
`apps/mcp/wings.py`.
"""

from typing import TYPE_CHECKING

from kosmos_rag.core.mounting import import_present, register_extensions

if TYPE_CHECKING:
    from kosmos_rag.engine.job_kinds import WingJobs

_SECTIONS = {
    "monitor": "kosmos_rag.evaluation.settings:MonitorSettings",
    "gaps": "kosmos_rag.evaluation.settings:GapSettings",
    "answer_checks": "kosmos_rag.evaluation.settings:AnswerCheckSettings",
    "evaluation": "kosmos_rag.evaluation.settings:EvaluationSettings",
    "text2sql": "kosmos_rag.text2sql.settings:Text2SqlSettings",
    "metering": "kosmos_rag.metering.settings:MeteringSettings",
    "webhooks": "kosmos_rag.webhooks.settings:WebhookSettings",
    "scim": "kosmos_rag.scim.settings:ScimSettings",
}
_SIGNALS = {
    "text2sql": "kosmos_rag.text2sql.signals:SCHEMA_RULES",
}
_METRICS = {
    "evaluation": "kosmos_rag.evaluation.metrics:METRICS",
    "webhooks": "kosmos_rag.webhooks.metrics:METRICS",
}
_PRESETS = ("kosmos_rag.text2sql.presets",)
_QUERY_HOOKS = {
    "evaluation": "kosmos_rag.evaluation.query_hooks:create_query_hooks",
    "metering": "kosmos_rag.metering.meter:create_query_hooks",
    "scim": "kosmos_rag.scim.directory:create_query_hooks",
}
_JOBS = (
    "kosmos_rag.evaluation.job_kinds",
    "kosmos_rag.text2sql.job_kinds",
    "kosmos_rag.metering.job_kinds",
    "kosmos_rag.webhooks.job_kinds",
)
"""Modules whose `JOBS` are what a wing adds to the worker; handlers are imported with the first job of a kind."""


def register_wings() -> None:
    """Register what the wings add to settings, ranking, metrics and queries; nothing is imported yet."""
    register_extensions(
        sections=_SECTIONS, signals=_SIGNALS, metrics=_METRICS, presets=_PRESETS, query_hooks=_QUERY_HOOKS
    )


def load_wing_jobs() -> "WingJobs":
    """Return the jobs and the maintenance that the wings add to the worker."""
    from kosmos_rag.engine.job_kinds import WingJobs

    wings: list[WingJobs] = [module.JOBS for module in import_present(_JOBS)]
    return WingJobs(
        kinds=tuple(kind for wing in wings for kind in wing.kinds),
        maintenance=tuple(task for wing in wings for task in wing.maintenance),
    )
