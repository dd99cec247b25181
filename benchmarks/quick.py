"""Word hashes and data from examples/, for quick runs without models and evaluation sets."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from benchmarks.command import EXAMPLES
from kosmos_rag import Settings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.testing.hashing import HashingEmbedder

_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_WORD = re.compile(r"\w+")


class WordReranker:
    """Scores a passage by the share of the question's words that it holds."""

    name = "words"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Return one score a passage, from 0 to 1."""
        words = set(_WORD.findall(question.casefold()))
        return [len(words & set(_WORD.findall(passage.casefold()))) / max(1, len(words)) for passage in passages]


def embedder(settings: Settings, *, quick: bool) -> Embedder:
    """Return the model that the settings name; for a quick run one that hashes words."""
    return HashingEmbedder() if quick else SentenceTransformerEmbedder(settings.rag.embedding, settings.models)


def write_evaluation_set(folder: Path, *, questions: int = 8) -> Path:
    """Write the sections of examples/knowledge_base with some of their questions as a set in the BEIR layout.

    Returns the folder.
    """
    entries = [entry for entry in yaml.safe_load((EXAMPLES / "questions.yaml").read_text()) if "source" in entry]
    entries = entries[:: max(1, len(entries) // questions)][:questions]
    (folder / "qrels").mkdir(parents=True)
    sections = [{"_id": key, "title": title, "text": text} for key, title, text in _sections()]
    queries = [{"_id": f"q{number}", "text": entry["question"]} for number, entry in enumerate(entries)]
    judged = [f"q{number}\t{entry['source']}#{entry['section']}\t1" for number, entry in enumerate(entries)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, sections)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return folder


def _sections() -> Iterator[tuple[str, str, str]]:
    """Yield id, heading and text of each section."""
    for file in sorted((EXAMPLES / "knowledge_base").glob("*.md")):
        _, *parts = _HEADING.split(file.read_text(encoding="utf-8"))
        for title, text in zip(parts[::2], parts[1::2], strict=True):
            yield f"{file.name}#{title}", title, text.strip()
