"""The worker: a supervisor that claims jobs and renews their leases, and processes that run them."""

from kosmos_rag.apps.worker.supervisor import Supervisor, run_worker

__all__ = ["Supervisor", "run_worker"]
