"""The command with vectors made of words: it starts in the time that a test has."""

from kosmos_rag import Engine, Settings
from kosmos_rag.apps.cli.app import app
from kosmos_rag.models.testing.hashing import HashingEmbedder


def _open(settings: Settings) -> Engine:
    return Engine(settings, embedder=HashingEmbedder())


if __name__ == "__main__":
    Engine.open = _open  # type: ignore[assignment,method-assign]
    app()
