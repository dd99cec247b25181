"""The records that travel between the stages: frozen, keyword-only, one per stage."""

from importlib import import_module
from typing import TYPE_CHECKING

from kosmos_rag.core.types.audit import (
    EVALUATOR,
    AuditKind,
    AuditOutcome,
    AuditPassage,
    AuditRecord,
    AuditReport,
    DocumentAccess,
    FailedQuestion,
    Feedback,
    Rating,
)
from kosmos_rag.core.types.documents import (
    DEFAULT_COLLECTION,
    EVERYONE,
    METADATA_FIELDS,
    PERMISSION_FEED,
    Chunk,
    CollectionInfo,
    DocumentInfo,
    DocumentLines,
    Heading,
    IngestFailure,
    IngestReport,
    Note,
    ParsedDocument,
    PermissionReport,
    SourceDocument,
    Stats,
    TableSpan,
    are_names,
    department_of,
    is_text,
    sha256_of,
    storable,
)
from kosmos_rag.core.types.erasure import ErasureKind, ErasureReport, RetainedRows
from kosmos_rag.core.types.experiments import (
    Arm,
    ArmDifference,
    ArmReport,
    ExperimentAssignment,
    ExperimentInfo,
    ExperimentMode,
    ExperimentReport,
    RunningExperiment,
)
from kosmos_rag.core.types.indexes import IndexInfo, Space, SpaceInfo, SpaceQuality
from kosmos_rag.core.types.monitoring import IndexEvent, MonitorKind, MonitorRun, MonitorState

if TYPE_CHECKING:
    from kosmos_rag.core.types.answer import (
        Answer,
        AnswerDone,
        AnswerEvent,
        AnswerMode,
        AnswerPiece,
        AnswerSentence,
        AnswerSources,
        CheckedSentence,
        CitationReport,
        QuoteState,
        QuoteStatus,
        Turn,
        UnitKind,
        Verdict,
    )
    from kosmos_rag.core.types.jobs import Job, JobCount, JobInfo, JobState, Outcome, RunInfo
    from kosmos_rag.core.types.search import (
        Candidate,
        Citation,
        Context,
        ContextPassage,
        Excerpt,
        Expansion,
        Filter,
        Passage,
        RetrieverStats,
        SearchResult,
    )

__all__ = [
    "DEFAULT_COLLECTION",
    "EVALUATOR",
    "EVERYONE",
    "METADATA_FIELDS",
    "PERMISSION_FEED",
    "Answer",
    "AnswerDone",
    "AnswerEvent",
    "AnswerMode",
    "AnswerPiece",
    "AnswerSentence",
    "AnswerSources",
    "Arm",
    "ArmDifference",
    "ArmReport",
    "AuditKind",
    "AuditOutcome",
    "AuditPassage",
    "AuditRecord",
    "AuditReport",
    "Candidate",
    "CheckedSentence",
    "Chunk",
    "Citation",
    "CitationReport",
    "CollectionInfo",
    "Context",
    "ContextPassage",
    "DocumentAccess",
    "DocumentInfo",
    "DocumentLines",
    "ErasureKind",
    "ErasureReport",
    "Excerpt",
    "Expansion",
    "ExperimentAssignment",
    "ExperimentInfo",
    "ExperimentMode",
    "ExperimentReport",
    "FailedQuestion",
    "Feedback",
    "Filter",
    "Heading",
    "IndexEvent",
    "IndexInfo",
    "IngestFailure",
    "IngestReport",
    "Job",
    "JobCount",
    "JobInfo",
    "JobState",
    "MonitorKind",
    "MonitorRun",
    "MonitorState",
    "Note",
    "Outcome",
    "ParsedDocument",
    "Passage",
    "PermissionReport",
    "QuoteState",
    "QuoteStatus",
    "Rating",
    "RetainedRows",
    "RetrieverStats",
    "RunInfo",
    "RunningExperiment",
    "SearchResult",
    "SourceDocument",
    "Space",
    "SpaceInfo",
    "SpaceQuality",
    "Stats",
    "TableSpan",
    "Turn",
    "UnitKind",
    "Verdict",
    "are_names",
    "department_of",
    "is_text",
    "sha256_of",
    "storable",
]

_WITH_JSON = ("search", "answer", "jobs")


def __getattr__(name: str) -> object:
    """Import records that need pydantic on first use (PEP 562)."""
    if name in __all__:
        for module in _WITH_JSON:
            members = vars(import_module(f"{__name__}.{module}"))
            if name in members:
                globals()[name] = members[name]
                return members[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
