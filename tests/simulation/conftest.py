"""A simulation for each test, for it changes modules of the project while it is open: the clock, the memory view."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
from psycopg import sql

from kosmos_rag import Settings
from tests.conftest import Server, clone
from tests.simulation.simulation import Simulation, opened_simulation

OpenSimulation = Callable[[], AbstractContextManager[Simulation]]


@pytest.fixture(scope="session")
def open_simulation(server: Server, template: str, loaded_settings: Settings) -> OpenSimulation:
    """Return what opens a simulation over a database of its own."""

    @contextmanager
    def opened() -> Iterator[Simulation]:
        with clone(server, template) as database:
            with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
                # The scheduler finds deadlocks.
                name = sql.Identifier(connection.info.dbname)
                connection.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '1h'").format(name))
            settings = loaded_settings.model_copy(update={"database": database})
            with opened_simulation(settings, is_local=server.folder is not None) as simulation:
                yield simulation

    return opened


@pytest.fixture
def simulation(open_simulation: OpenSimulation) -> Iterator[Simulation]:
    with open_simulation() as simulation:
        yield simulation
