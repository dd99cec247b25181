"""What this wing adds to the worker; `jobs.py` has the handler."""

from kosmos_rag.engine.job_kinds import LazyFunction, MaintenanceTask, WingJobs

JOBS = WingJobs(
    maintenance=(MaintenanceTask(create_handler=LazyFunction("kosmos_rag.metering.jobs:UsageMaintenance")),)
)
