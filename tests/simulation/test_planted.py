"""The simulation finds faults that are planted in the project."""

import pytest

from tests.simulation.conftest import OpenSimulation
from tests.simulation.planted import CASTS, PLANTED, planted

pytestmark = pytest.mark.direct_connection("the scheduler follows the server's process of each connection")

MOST_SEEDS = 1_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault__is_found_within_a_thousand_seeds(name: str, open_simulation: OpenSimulation) -> None:
    with open_simulation() as simulation, planted(name):
        outcomes = (simulation.run(seed, CASTS.get(name)) for seed in range(MOST_SEEDS))
        failed = next((outcome for outcome in outcomes if outcome.violations), None)
    assert failed is not None
    print(f"{name}: seed {failed.seed}: {failed.violations[0]}")
