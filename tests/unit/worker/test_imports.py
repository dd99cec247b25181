"""What the processes of a worker import."""

import subprocess
import sys
from importlib import import_module

import pytest

from kosmos_rag.engine.job_kinds import JobKind, LazyFunction, MaintenanceTask
from kosmos_rag.wings import load_wing_jobs

IN_THE_SUPERVISOR = """
import sys
import kosmos_rag.worker.supervisor
from kosmos_rag.engine.job_kinds import JobKind, MaintenanceTask
from kosmos_rag.wings import load_wing_jobs
load_wing_jobs()
print(*sorted({"engine.engine", "ingestion", "answering", "models", "parsing.file_parser"} & {
    name.removeprefix("kosmos_rag.") for name in sys.modules}))
"""


def test_supervisor__imports_no_engine() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_THE_SUPERVISOR], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == []


def _lazy_functions() -> list[LazyFunction]:
    wings = load_wing_jobs()
    entries: list[JobKind | MaintenanceTask] = [*wings.kinds, *wings.maintenance]
    functions = [
        function
        for entry in entries
        for function in (entry.create_handler, entry.list_warnings)
        if function is not None
    ]
    lazy = [function for function in functions if isinstance(function, LazyFunction)]
    assert lazy == functions
    return lazy


@pytest.mark.parametrize("function", _lazy_functions(), ids=lambda function: function.path)
def test_wing_jobs__name_functions_that_exist(function: LazyFunction) -> None:
    module, _, name = function.path.partition(":")
    assert callable(getattr(import_module(module), name))
