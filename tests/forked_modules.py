"""Runs the modules of a run in processes that are forked after the collection: `pytest --processes 4`.

All test modules are imported once, with what they import. pytest-xdist imports them in each process, and sends each
report of a test in a message of its own. Each process takes the next module when it has done its last one.
"""

import atexit
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, TypeAlias

import pytest

Module: TypeAlias = Sequence[pytest.Item]
Location: TypeAlias = tuple[str, int | None, str]
Test: TypeAlias = tuple[str, Location]
"""Node id and place of a test."""


def add_option(parser: pytest.Parser) -> None:
    """Add the option that names the number of processes."""
    parser.getgroup("kosmos").addoption(
        "--processes", type=int, default=0, help="Processes to fork, each of which runs whole modules; 0 for none."
    )


class _Reporter:
    """Sends the reports of a process to the one that prints them, those of a test at once."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reports: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str, location: Location) -> None:
        self._connection.send(((nodeid, location), None))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook.pytest_report_to_serializable
        self._reports.append(hook(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str, location: Location) -> None:
        self._connection.send(((nodeid, location), self._reports))
        self._reports = []


class _Turns:
    """The modules, each of which one process takes."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._modules = modules
        self._next = multiprocessing.get_context("fork").Value("i", 0)

    def take(self) -> Module:
        """Return the next module; none is left where it is empty."""
        with self._next.get_lock():
            number = self._next.value
            self._next.value += 1
        return self._modules[number] if number < len(self._modules) else ()

    def items(self) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        """Yield tests of the modules that this process takes, each with the one after it.

        A module is taken before the last test of the one before: pytest keeps fixtures that the next test needs.
        """
        module = self.take()
        while module:
            yield from pairwise(module)
            following = self.take()
            yield module[-1], following[0] if following else None
            module = following


def run_modules(session: pytest.Session, modules: Sequence[Module], processes: int) -> None:
    """Run modules in forked processes, and report their tests in this one."""
    context, turns = multiprocessing.get_context("fork"), _Turns(modules)
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # each has a folder in it
    running: dict[Connection, ForkProcess] = {}
    try:
        for number in range(processes):
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=_run_process, args=(session, turns, sending, number))
            process.start()
            sending.close()
            running[receiving] = process
        _report_all(session, running)
    finally:
        for process in running.values():
            process.terminate()
            process.join()


def _report_all(session: pytest.Session, running: dict[Connection, ForkProcess]) -> None:
    """Report what the processes send, until all have ended or the run has to stop."""
    last: dict[ForkProcess, Test] = {}
    hook = session.config.hook
    if (terminal := session.config.pluginmanager.getplugin("terminalreporter")) is not None:
        terminal.showfspath = False  # the modules of the processes alternate
    while running:
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            process, message = running[connection], _receive(connection)
            if message is None:
                del running[connection]
                process.join()
                if process.exitcode:
                    _report_lost(session, process, *last[process])
                continue
            last[process], reports = message
            nodeid, location = last[process]
            if reports is None:
                hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
                continue
            for data in reports:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)


def _receive(connection: Connection) -> tuple[Test, list[Any] | None] | None:
    """Return a test with its reports, or without them where it starts; None where the process has ended."""
    try:
        message: tuple[Test, list[Any] | None] = connection.recv()
    except EOFError:
        return None
    return message


def _report_lost(session: pytest.Session, process: ForkProcess, nodeid: str, location: Location) -> None:
    text = f"the process of this test ended with exit code {process.exitcode}; the rest of its module did not run"
    report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _run_process(session: pytest.Session, turns: _Turns, connection: Connection, number: int) -> None:
    """Run the tests of a forked process."""
    config = session.config
    name = f"gw{number}"
    os.environ["PYTEST_XDIST_WORKER"] = name  # as pytest-xdist names it, for what asks whether the run has others
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir(mode=0o700)
    # What is captured goes to files, which are not to be those of the other processes.
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Reporter(config, connection))
    for item, following in turns.items():
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    atexit._run_exitfuncs()  # multiprocessing leaves a forked process without them
