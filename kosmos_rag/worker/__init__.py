"""The worker: a supervisor, and processes that run its jobs.

The supervisor claims jobs and renews their leases.
"""

from kosmos_rag.worker.supervisor import Supervisor, create_supervisor, run_worker

__all__ = ["Supervisor", "create_supervisor", "run_worker"]
