"""Pages of the console: stored evaluations, the monitor, and experiments."""

from kosmos_rag.apps.http.toolkit.wing import HttpWing, PageLink
from kosmos_rag.engine.api_keys import ADMIN, OPERATE
from kosmos_rag.evaluation.pages import evaluations, monitor

HTTP = HttpWing(
    routers=(evaluations.router, monitor.router),
    templates="kosmos_rag.evaluation.pages",
    links=(
        PageLink(path="/evaluations", title="Evaluations", scope=ADMIN),
        PageLink(path="/monitor", title="Monitor", scope=OPERATE),
    ),
)
