"""The worker: a supervisor, and processes that run its jobs.

The supervisor claims jobs and renews their leases.
"""

from kosmos_rag.worker.supervisor import Supervisor, run_worker

__all__ = ["Supervisor", "run_worker"]
