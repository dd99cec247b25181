"""What this wing adds to the worker; `jobs.py` has the handlers."""

from kosmos_rag.engine.job_kinds import LazyFunction, MaintenanceTask, WingJobs

_HANDLERS = "kosmos_rag.evaluation.jobs"

JOBS = WingJobs(
    maintenance=(
        MaintenanceTask(create_handler=LazyFunction(f"{_HANDLERS}:ExperimentMaintenance")),
        MaintenanceTask(
            create_handler=LazyFunction(f"{_HANDLERS}:MonitorMaintenance"),
            list_warnings=LazyFunction(f"{_HANDLERS}:list_warnings"),
        ),
        MaintenanceTask(create_handler=LazyFunction(f"{_HANDLERS}:GapMaintenance")),
        MaintenanceTask(create_handler=LazyFunction(f"{_HANDLERS}:AnswerMaintenance")),
    )
)
