"""What this wing adds to the worker; `jobs.py` has the handler."""

from kosmos_rag.engine.job_kinds import JobKind, LazyFunction, WingJobs

SCHEMA = "schema"
"""The kind of the jobs: read the schema of a database, and update its documents."""

JOBS = WingJobs(
    kinds=(
        JobKind(
            name=SCHEMA,
            description="Read the schema of a database",
            create_handler=LazyFunction("kosmos_rag.text2sql.jobs:SchemaHandler"),
        ),
    )
)
