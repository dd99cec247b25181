"""Filling a space by many processes, on many machines, with Ray Data (the extra `ray`).

What is distributed are parts of the range of all ids. Each part is filled by the code that fills the whole: it looks up
what is missing, embeds and writes it, over a connection of its own. So texts and vectors pass through no coordinator,
and a part that is done twice, after a machine was lost, finds nothing to do.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.indexing.reembedding.migration import Reembedding
from kosmos_rag.storage.tenants import TenantRef

_PARTS_A_WORKER = 8
"""More parts than workers: one that is slower takes fewer, and progress is seen."""


class _Worker:
    """Fills the parts that it is given. One a processor, each with models of its own."""

    def __init__(
        self, opened: Callable[[], Reembedding], tenant: TenantRef, parts: int, chunks_per_second: float | None
    ) -> None:
        reembedding = opened()
        self._fill = partial(reembedding.fill_part, tenant, parts=parts, chunks_per_second=chunks_per_second)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return how many chunks were embedded in each part of a batch."""
        return {"chunks": [self._fill(int(number)) for number in batch["number"]]}


def fill_by_ray(opened: Callable[[], Reembedding], tenant: TenantRef, chunks_per_second: float | None) -> Iterator[int]:
    """Fill a tenant's spaces on the cluster that RAY_ADDRESS names, else on this machine's processors.

    `opened` is called in each worker, and what it holds must be picklable. Yields the chunks of each part that is done.
    Raises ConfigError where Ray is not installed.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError("the engine ray needs Ray: pip install 'kosmos-rag[ray]', or use the engine local") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    workers = max(1, int(ray.cluster_resources()["CPU"]))
    parts = workers * _PARTS_A_WORKER
    rate = None if chunks_per_second is None else chunks_per_second / workers
    # The caller shows the progress.
    ray.data.DataContext.get_current().enable_progress_bars = False
    # Items, and not a range that is read: a task that reads waits for a processor, and the workers hold them all.
    numbers = ray.data.from_items([{"number": number} for number in range(parts)], override_num_blocks=parts)
    done = numbers.map_batches(
        _Worker, fn_constructor_args=(opened, tenant, parts, rate), batch_size=1, concurrency=workers, num_cpus=1
    )
    for row in done.iter_rows():
        yield int(row["chunks"])
