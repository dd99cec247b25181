"""Pages of the console: stored evaluations, the monitor, experiments, and gaps."""

from kosmos_rag.apps.http.toolkit.wing import HttpWing, PageLink
from kosmos_rag.engine.api_keys import ADMIN, INGEST, OPERATE
from kosmos_rag.evaluation.pages import candidates, evaluations, gaps, monitor

HTTP = HttpWing(
    routers=(evaluations.router, monitor.router, gaps.router, gaps.pages, candidates.router, candidates.pages),
    examples=gaps.EXAMPLES | candidates.EXAMPLES,
    templates="kosmos_rag.evaluation.pages",
    links=(
        PageLink(path="/gaps", title="Gaps", scope=INGEST),
        PageLink(path="/evaluations", title="Evaluations", scope=ADMIN),
        PageLink(path="/monitor", title="Monitor", scope=OPERATE),
    ),
)
