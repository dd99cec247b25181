"""How good retrieval is: questions with known answers, measures, stored results, comparisons, reports."""

from kosmos_rag.core.types.questions import Place, Question, QuestionSet, read_questions
from kosmos_rag.evaluation.beir import BeirSet, load_beir, tenant_of
from kosmos_rag.evaluation.compare import Difference, changed, compare
from kosmos_rag.evaluation.gate import Verdict, verdicts
from kosmos_rag.evaluation.runner import Plan, evaluate, for_evaluation
from kosmos_rag.evaluation.store import Evaluations
from kosmos_rag.evaluation.types import Evaluation, QuestionResult

__all__ = [
    "BeirSet",
    "Difference",
    "Evaluation",
    "Evaluations",
    "Place",
    "Plan",
    "Question",
    "QuestionResult",
    "QuestionSet",
    "Verdict",
    "changed",
    "compare",
    "evaluate",
    "for_evaluation",
    "load_beir",
    "read_questions",
    "tenant_of",
    "verdicts",
]
