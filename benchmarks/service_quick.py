"""The command line with an embedder of word hashes, for `python -m benchmarks.service --quick`."""

from pathlib import Path
from typing import Self
from unittest.mock import patch

from kosmos_rag import Engine, Settings
from kosmos_rag.apps.cli import main
from kosmos_rag.apps.http.toolkit import server
from kosmos_rag.models.testing.hashing import HashingEmbedder


class HashingEngine(Engine):
    """An engine that opens without a model."""

    @classmethod
    def open(cls, config: Settings | str | Path | None = None) -> Self:
        """Open an engine whose vectors are made of words."""
        return cls(config if isinstance(config, Settings) else Settings.load(config), embedder=HashingEmbedder())


if __name__ == "__main__":
    with patch.object(server, "Engine", HashingEngine):
        main()
