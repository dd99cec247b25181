"""What the evaluation adds to the queries of an engine."""

from kosmos_rag.engine.query_hooks import HookContext, QueryHooks
from kosmos_rag.evaluation.experiments.router import StoredExperimentRouter
from kosmos_rag.evaluation.gaps.recorder import UnansweredRecorder
from kosmos_rag.evaluation.monitor.sampling import RecallSampler
from kosmos_rag.evaluation.settings import GapSettings


def create_query_hooks(context: HookContext) -> QueryHooks:
    """Create the router of experiments, the sampler of searches and, with `gaps.record`, the recorder of questions."""
    records = context.settings.section(GapSettings).record
    return QueryHooks(
        router=StoredExperimentRouter(context),
        sampler=RecallSampler(context),
        observers=(UnansweredRecorder(context),) if records else (),
    )
