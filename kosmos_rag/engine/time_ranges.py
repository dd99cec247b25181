"""Times of questions."""

from kosmos_rag.retrieval.conditions.time_ranges import TimeRange, find_time_ranges, find_times

__all__ = ["TimeRange", "find_time_ranges", "find_times"]
