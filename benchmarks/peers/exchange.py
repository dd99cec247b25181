"""The data between a benchmark and its children: chunks and questions in, measurements out.

Children run in an environment without the library, so nothing here imports it.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """What every system is given: chunks with their vectors, and questions with theirs."""

    ids: list[str]
    """Of the chunks: UUIDs."""
    texts: list[str]
    """What each chunk is found by: its text under title and section."""
    vectors: NDArray[np.float32]
    questions: dict[str, str]
    """By id."""
    question_vectors: NDArray[np.float32]
    """In the order of the questions."""

    def write(self, folder: Path) -> None:
        """Write the corpus to a folder."""
        _write_lines(folder / "corpus.jsonl", zip(self.ids, self.texts, strict=True))
        _write_lines(folder / "queries.jsonl", self.questions.items())
        np.save(folder / "vectors.npy", self.vectors)
        np.save(folder / "query_vectors.npy", self.question_vectors)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `write` wrote."""
        chunks = _read_lines(folder / "corpus.jsonl")
        return cls(
            ids=[key for key, _ in chunks],
            texts=[text for _, text in chunks],
            vectors=np.load(folder / "vectors.npy"),
            questions=dict(_read_lines(folder / "queries.jsonl")),
            question_vectors=np.load(folder / "query_vectors.npy"),
        )


def _write_lines(file: Path, texts: Iterable[tuple[str, str]]) -> None:
    file.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts), encoding="utf-8")


def _read_lines(file: Path) -> list[tuple[str, str]]:
    entries = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [(entry["_id"], entry["text"]) for entry in entries]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One way of answering the questions. A floor that finds nothing of its own has times alone. Milliseconds."""

    way: str
    plan: str
    """How vectors and words are found: by which index, or by a scan."""
    rankings: dict[str, list[str]] | None = None
    """Ids of the chunks for each question, best first."""
    whole: list[float] | None = None
    """From the question to the passages."""
    search: list[float] | None = None
    """From the question and its vector to the passages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one system did with one corpus."""

    rows: list[Row]
    versions: dict[str, str]
    """Of the packages that answered."""
    seconds: float | None = None
    """From available vectors to everything stored and indexed; None for what stores nothing."""

    def write(self, file: Path) -> None:
        """Write the outcome as JSON."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `write` wrote."""
        entry = json.loads(file.read_text())
        return cls(**{**entry, "rows": [Row(**row) for row in entry["rows"]]})
