"""Backfill by many processes with Ray Data (the extra `ray`).

The processes may run on many machines.

Partitions of the id range are distributed. Each is filled by the code of the local backfill, over a connection of its
own: it looks up missing chunks, embeds and writes them. Texts and vectors pass through no coordinator, and a partition
that runs twice, after a machine was lost, finds nothing to do.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kosmos_rag.core.extras import require_extra
from kosmos_rag.indexing.reembedding.migration import Reembedding
from kosmos_rag.storage.tenants import TenantRef

_PARTITIONS_PER_WORKER = 8
"""More partitions than workers: a slow worker takes fewer, and progress is visible."""


class _Worker:
    """Backfills partitions. One for each processor, with its own models."""

    def __init__(
        self,
        reembedding_factory: Callable[[], Reembedding],
        tenant: TenantRef,
        partitions: int,
        chunks_per_second: float | None,
    ) -> None:
        reembedding = reembedding_factory()
        self._backfill = partial(
            reembedding.backfill_partition, tenant, partitions=partitions, chunks_per_second=chunks_per_second
        )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the number of embedded chunks of each partition of a batch."""
        return {"chunks": [self._backfill(int(number)) for number in batch["number"]]}


def backfill_with_ray(
    reembedding_factory: Callable[[], Reembedding], tenant: TenantRef, chunks_per_second: float | None
) -> Iterator[int]:
    """Backfill a tenant's spaces on a Ray cluster.

    That of RAY_ADDRESS, or else a local one.

    Yields the number of embedded chunks of each partition. Raises ConfigError without Ray.

    Args:
        reembedding_factory: Called in each worker; it must be picklable.
        chunks_per_second: Rate limit of all workers together; None means no limit.
    """
    require_extra("ray", "the engine ray", "ray.data", alternative="use the engine local")
    import ray
    import ray.data

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    workers = max(1, int(ray.cluster_resources()["CPU"]))
    partitions = workers * _PARTITIONS_PER_WORKER
    worker_rate = None if chunks_per_second is None else chunks_per_second / workers
    # The caller shows the progress.
    ray.data.DataContext.get_current().enable_progress_bars = False
    # Items and not a range: a task that reads a range waits for a processor, and the workers hold them all.
    numbers = ray.data.from_items([{"number": number} for number in range(partitions)], override_num_blocks=partitions)
    results = numbers.map_batches(
        _Worker,
        fn_constructor_args=(reembedding_factory, tenant, partitions, worker_rate),
        batch_size=1,
        concurrency=workers,
        num_cpus=1,
    )
    for row in results.iter_rows():
        yield int(row["chunks"])
