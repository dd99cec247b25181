"""Offline evaluation of retrieval: question sets, measures, stored evaluations, comparisons, gates, reports."""

from kosmos_rag.evaluation.offline.beir import BeirSet, derive_tenant_name, load_beir
from kosmos_rag.evaluation.offline.compare import Difference, compare, list_changes
from kosmos_rag.evaluation.offline.gate import GateResult, check_thresholds
from kosmos_rag.evaluation.offline.questions import Location, Question, QuestionSet, read_questions
from kosmos_rag.evaluation.offline.runner import Plan, evaluate, for_evaluation
from kosmos_rag.evaluation.offline.store import Evaluations
from kosmos_rag.evaluation.offline.types import Evaluation, QuestionResult

__all__ = [
    "BeirSet",
    "Difference",
    "Evaluation",
    "Evaluations",
    "GateResult",
    "Location",
    "Plan",
    "Question",
    "QuestionResult",
    "QuestionSet",
    "check_thresholds",
    "compare",
    "derive_tenant_name",
    "evaluate",
    "for_evaluation",
    "list_changes",
    "load_beir",
    "read_questions",
]
