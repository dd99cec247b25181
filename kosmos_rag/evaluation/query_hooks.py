"""What the evaluation adds to the queries of an engine."""

from kosmos_rag.engine.query_hooks import HookContext, QueryHooks, ResultObserver
from kosmos_rag.evaluation.answer_checks.sampler import AnswerSampler
from kosmos_rag.evaluation.experiments.router import StoredExperimentRouter
from kosmos_rag.evaluation.gaps.recorder import UnansweredRecorder
from kosmos_rag.evaluation.monitor.sampling import RecallSampler
from kosmos_rag.evaluation.settings import AnswerCheckSettings, GapSettings


def create_query_hooks(context: HookContext) -> QueryHooks:
    """Create the router of experiments, the sampler of searches and the observers of results."""
    observers: list[ResultObserver] = []
    if context.settings.section(GapSettings).record:
        observers.append(UnansweredRecorder(context))
    if context.settings.section(AnswerCheckSettings).share > 0:
        observers.append(AnswerSampler(context))
    return QueryHooks(
        router=StoredExperimentRouter(context),
        sampler=RecallSampler(context),
        observers=tuple(observers),
    )
