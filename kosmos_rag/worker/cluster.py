"""Watch the nodes of a cluster.

For the log, the metrics and /readyz of a worker.
"""

import logging
from contextlib import AbstractContextManager

from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.periodic import run_periodically
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.placement import ClusterNode, cluster_nodes

log = logging.getLogger("kosmos_rag.worker")

_INTERVAL_S = 10.0


class ClusterWatch:
    """Asks the coordinator every ten seconds which nodes it reaches.

    A thread of its own does it, because a silent node takes seconds. On a server without Citus it sees no nodes.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.nodes: tuple[ClusterNode, ...] = ()
        """The nodes at the last look; they stay while the coordinator cannot be asked."""

    @property
    def unavailable(self) -> tuple[int, ...]:
        """Return the numbers of the nodes that are down."""
        return tuple(node.id for node in self.nodes if not node.available)

    def look(self) -> None:
        """Ask the coordinator, and log each node that went or returned."""
        try:
            with self._database.worker.untenanted() as connection:
                nodes = cluster_nodes(connection)
        except DatabaseError:
            return  # the main loop logs it
        before = {node.id: node.available for node in self.nodes}
        self.nodes = nodes
        for node in nodes:
            if node.available == before.get(node.id, True):
                continue
            context = {"action": "node_available" if node.available else "node_unavailable", "node": node.address}
            if node.available:
                log.info("node %d of the cluster (%s) is available again", node.id, node.address, extra=context)
            else:
                log.error(
                    "node %d of the cluster (%s) is unavailable; jobs of its tenants wait", node.id, node.address,
                    extra=context,
                )  # fmt: skip

    def run_in_background(self) -> AbstractContextManager[None]:
        """Look in the background, at once and every ten seconds."""
        return run_periodically(self.look, interval_s=_INTERVAL_S, delay_s=0, thread_name="kosmos-rag-cluster")
