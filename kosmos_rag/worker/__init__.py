"""The worker: a supervisor, and processes that run its jobs.

The supervisor claims jobs and renews their leases.
"""
