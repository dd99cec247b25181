"""The recall monitor of an engine's database."""

from kosmos_rag.engine.engine import Engine
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor


def recall_monitor(engine: Engine) -> RecallMonitor:
    """Return the monitor of the tenants of an engine's database."""
    return RecallMonitor(engine.parts.database, engine.parts.indexes, engine.settings, engine.tenant)
