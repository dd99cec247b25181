"""What this wing adds to the worker; `delivery.py` and `jobs.py` have the handlers."""

from kosmos_rag.engine.job_kinds import JobKind, LazyFunction, MaintenanceTask, WingJobs

DELIVER = "webhook"
"""The kind of the jobs: deliver the events of one subscriber."""

JOBS = WingJobs(
    kinds=(
        JobKind(
            name=DELIVER,
            description="Deliver events to a subscriber",
            create_handler=LazyFunction("kosmos_rag.webhooks.delivery:EventDelivery"),
            list_warnings=LazyFunction("kosmos_rag.webhooks.jobs:list_warnings"),
        ),
    ),
    maintenance=(MaintenanceTask(create_handler=LazyFunction("kosmos_rag.webhooks.jobs:WebhookMaintenance")),),
)
