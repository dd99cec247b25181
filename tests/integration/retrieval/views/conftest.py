"""Tests of the view of the memory run where its module is: it is optional."""

from tests.integration.variants import HAS_MEMORY_VIEW

collect_ignore_glob = [] if HAS_MEMORY_VIEW else ["*_in_memory.py"]
