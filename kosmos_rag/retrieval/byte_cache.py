"""An LRU cache with a limit in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """LRU cache with a limit in bytes. Thread-safe."""

    def __init__(self, max_bytes: int, measure: Callable[[V], int]) -> None:
        """Create an empty cache.

        Args:
            max_bytes: Limit.
            measure: Returns the approximate memory of an entry.
        """
        self._max_bytes = max_bytes
        self._measure = measure
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()
        self.hits = self.misses = 0

    def get(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the entries of those keys that are cached."""
        entries = {}
        with self._lock:
            for key in keys:
                if (entry := self._entries.get(key)) is not None:
                    self._entries.move_to_end(key)
                    entries[key] = entry
                    self.hits += 1
                else:
                    self.misses += 1
        return entries

    def put(self, entries: Mapping[K, V]) -> None:
        """Add entries and evict the least recently used.

        An entry above the limit is not cached.
        """
        with self._lock:
            for key, entry in entries.items():
                size = self._measure(entry)
                if key in self._entries or size > self._max_bytes:
                    continue
                self._entries[key] = entry
                self._bytes += size
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= self._measure(dropped)

    @property
    def bytes(self) -> int:
        """Approximate memory in use."""
        return self._bytes
