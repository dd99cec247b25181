"""An experiment, and what was stored of a question that both configurations answered."""

import uuid
from datetime import UTC, datetime

from kosmos_rag.core.types import ExperimentMode
from kosmos_rag.evaluation.experiments.records import ExperimentInfo
from kosmos_rag.evaluation.experiments.store import Rated

SHADOW = ExperimentInfo(
    id=uuid.UUID(int=1),
    name="by-scores",
    collection=None,
    mode=ExperimentMode.SHADOW,
    share=0.5,
    settings={},
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    stopped_at=None,
)
PAIR = Rated(
    at=datetime(2026, 1, 2, tzinfo=UTC),
    arm="control",
    requested=10,
    control_ms=10.0,
    treatment_ms=10.0,
    control_hits=10,
    treatment_hits=9,
    overlap=0.5,
    rbo=0.4,
    degraded=False,
    error=None,
    up=0,
    down=0,
    clicks=0,
)
