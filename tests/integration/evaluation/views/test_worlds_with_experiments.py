"""Both views of a tenant with experiments, which start and stop at random, return the same results."""

from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.evaluation.experiments.experiments import Experiments
from tests.integration.retrieval.views.test_worlds_in_memory import LANGUAGES, TENANT, World, run_world

pytestmark = pytest.mark.usefixtures("early_blocks")
EXPERIMENTS: tuple[dict[str, Any], ...] = (
    {"rag.retrieval.fusion": "score"},
    {"rag.retrieval.prf_weight": 0.3},
    {"rag.retrieval.semantic_weight": 0.0},
)


class WorldWithExperiments(World):
    """A tenant with experiments too."""

    CHANGES = (*World.CHANGES, *["experiment"] * 4)
    started = 0

    def experiment(self) -> None:
        scope = self.writer.tenant(TENANT, collection=self.dice.choice((None, *LANGUAGES)))
        stored = Experiments(scope)
        running = [info for info in stored.infos() if info.stopped_at is None]
        if running:
            stored.stop(running[0].name)
        else:
            self.started += 1
            stored.start(f"e{self.started}", self.dice.choice(EXPERIMENTS), share=1.0, mode="serve")


def test_results__are_equal_while_experiments_start_and_stop(
    engines: tuple[Engine, Engine], database: DatabaseSettings, tmp_path: Path
) -> None:
    assert database.admin_url is not None
    world = WorldWithExperiments(1, engines[1], database.admin_url, tmp_path)
    compared, answered = run_world(engines, world, range(8))
    assert compared == 192
    assert answered > 30
    assert world.started > 0
