"""A simulation for each test, for it changes modules of the project while it is open: the clock, the memory view."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
from psycopg import sql

from kosmos_rag import Settings
from tests.conftest import Server, clone
from tests.simulation.simulation import Simulation, opened_simulation

DEADLOCK_MS = 50
"""After so long the server looks for a deadlock."""

OpenSimulation = Callable[[], AbstractContextManager[Simulation]]


@pytest.fixture(scope="session")
def open_simulation(server: Server, template: str, loaded_settings: Settings) -> OpenSimulation:
    """Return what opens a simulation over a database of its own."""

    @contextmanager
    def opened() -> Iterator[Simulation]:
        with clone(server, template) as database:
            with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
                name, limit = sql.Identifier(connection.info.dbname), sql.Literal(f"{DEADLOCK_MS}ms")
                connection.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = {}").format(name, limit))
            with opened_simulation(loaded_settings.model_copy(update={"database": database})) as simulation:
                yield simulation

    return opened


@pytest.fixture
def simulation(open_simulation: OpenSimulation) -> Iterator[Simulation]:
    with open_simulation() as simulation:
        yield simulation
