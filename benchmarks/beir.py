"""Evaluation sets in the BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """Documents, questions, and which document answers which question how well."""

    name: str
    documents: dict[str, tuple[str, str]]
    """Title, and title and text as one, by id; documents without either are left out."""
    queries: dict[str, str]
    """Only those with a judgement."""
    qrels: dict[str, dict[str, int]]


def load(folder: Path) -> EvaluationSet:
    """Read a set. Exits with a clear word where the folder does not hold one."""
    files = [folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / "test.tsv"]
    if missing := [str(file) for file in files if not file.is_file()]:
        raise SystemExit(f"no evaluation set in {folder}: missing {', '.join(missing)}")
    documents = {}
    for entry in _lines(files[0]):
        text = f"{entry.get('title', '')}\n\n{entry['text']}".strip()
        if text:
            documents[str(entry["_id"])] = (entry.get("title", "").strip(), text)
    qrels: dict[str, dict[str, int]] = {}
    with files[2].open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    queries = {str(entry["_id"]): entry["text"] for entry in _lines(files[1]) if str(entry["_id"]) in qrels}
    return EvaluationSet(name=folder.name, documents=documents, queries=queries, qrels=qrels)


def _lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
