"""The sets of questions with SQL over many databases: Spider, KaggleDBQA, AmbiDB."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import DATASETS
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_spider
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.sql.gold import GoldQuestion, gold_question

FOLDERS: Mapping[str, Path] = {
    "Spider": DATASETS / "spider",
    "KaggleDBQA": DATASETS / "kaggledbqa",
    "AmbiDB": DATASETS / "ambidb",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionSet:
    """The schemas and questions of one set."""

    name: str
    schemas: list[DatabaseSchema]
    questions: list[GoldQuestion]
    unfit: int
    """Number of questions whose SQL does not fit the schemas, which are left out."""


def read_set(name: str, folder: Path) -> QuestionSet:
    """Read a set in Spider's layout. Exits with a clear word where there is no such folder.

    Args:
        name: Name of the set.
        folder: Has tables.json, and questions.json or questions.jsonl.
    """
    if not folder.is_dir():
        raise SystemExit(f"there are no databases in Spider's layout in {folder}; name their folder: --data FOLDER")
    schemas = from_spider(folder / "tables.json")
    by_name = {schema.name: schema for schema in schemas}
    questions, unfit = [], 0
    for row in _read_rows(folder):
        try:
            gold = gold_question(str(row["question"]), str(row["query"]), by_name[row["db_id"]])
        except QueryRefused:
            unfit += 1
            continue
        if gold.tables:
            questions.append(gold)
    return QuestionSet(name=name, schemas=schemas, questions=questions, unfit=unfit)


def _read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    file = folder / "questions.json"
    if file.is_file():
        yield from json.loads(file.read_bytes())
    else:
        yield from map(json.loads, (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines())
