"""The wings of the library: their settings and their jobs.

A wing is one folder that can be removed. Each face has a list of its own: `apps/cli/wings.py`, `apps/http/wings.py`,
`apps/mcp/wings.py`.
"""

from typing import TYPE_CHECKING

from kosmos_rag.core.mounting import PRESETS, SECTIONS, SIGNALS, import_present

if TYPE_CHECKING:
    from kosmos_rag.engine.job_kinds import JobKind

_SECTIONS = {
    "text2sql": "kosmos_rag.text2sql.settings:Text2SqlSettings",
}
_SIGNALS = {
    "text2sql": "kosmos_rag.text2sql.signals:SCHEMA_RULES",
}
_PRESETS = ("kosmos_rag.text2sql.presets",)
_JOBS = ("kosmos_rag.text2sql.jobs",)
"""Modules whose `JOB_KINDS` are the jobs of a wing."""


def register_wings() -> None:
    """Register what the wings add to settings and ranking; nothing is imported yet."""
    SECTIONS.update(_SECTIONS)
    SIGNALS.update(_SIGNALS)
    PRESETS.extend(_PRESETS)


def load_job_kinds() -> "tuple[JobKind, ...]":
    """Return the kinds of jobs that the wings add."""
    return tuple(kind for module in import_present(_JOBS) for kind in module.JOB_KINDS)
