"""The worker: a supervisor that takes jobs and renews their leases, and processes that do the work."""

from kosmos_rag.apps.worker.supervisor import Supervisor, run_worker

__all__ = ["Supervisor", "run_worker"]
