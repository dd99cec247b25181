"""Measure how often the preset `corporate` ranks the right document among five.

    python -m benchmarks.corporate [--misses] [--json FILE] [--quick]

The documents are those of examples/corporate. A question counts if a hit among the first k is from the document in
benchmarks/corporate_questions.yaml, and a second time if its section is right too. A reader without a department and a
reader of the document's department ask it. With the enforcing preset, a reader who may read the document asks it. The
other questions measure refusals.
"""

import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from benchmarks.command import EXAMPLES, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from kosmos_rag import Engine, SearchResult, Settings
from kosmos_rag.core.types import EVERYONE

SAMPLE = EXAMPLES / "corporate" / "generate.py"
QUESTIONS = Path(__file__).with_name("corporate_questions.yaml")
_NUMBER = re.compile(r"^\d+\. ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with the one place of its answer; none if nothing answers it."""

    text: str
    source: str | None
    section: str | None

    @property
    def department(self) -> str | None:
        """The department whose document answers."""
        return self.source and self.source.partition("/")[0]


def questions(path: Path = QUESTIONS) -> list[Question]:
    """Read the questions."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [
        Question(text=entry["question"], source=entry.get("source"), section=entry.get("section")) for entry in entries
    ]


def find_rank(result: SearchResult, question: Question, *, section: bool) -> int | None:
    """Return the rank of the first hit from the right document, and section where that is asked; None without one."""
    for hit in result.hits:
        path = PurePath(hit.source)
        heading = _NUMBER.sub("", hit.section[-1]).casefold() if hit.section else None
        of_document = f"{path.parent.name}/{path.stem}" == question.source
        if of_document and (not section or heading == (question.section or "").casefold()):
            return hit.rank
    return None


def share(ranks: Sequence[int | None], within: int) -> float:
    """Return the share of ranks that are at most `within`."""
    return round(sum(rank is not None and rank <= within for rank in ranks) / len(ranks), 3)


def measure(
    engine: Engine, collection: str, question_set: Sequence[Question], readers: str, *, misses: bool
) -> dict[str, Any]:
    """Ask what has an answer, and return shares and milliseconds. `readers` is the reader: nobody, own, manager."""
    answerable = [question for question in question_set if question.source]
    results = []
    took = []
    for question in answerable:
        principals = {"nobody": [], "own": [f"department:{question.department}"], "manager": ["role:Manager"]}[readers]
        tenant = engine.tenant("sample", collection=collection, principals=(EVERYONE, *principals))
        results.append((question, tenant.search(question.text, 5)))
        took.append(tenant.search(f"{question.text} ", 5).timings_ms["total"])
    documents = [find_rank(result, question, section=False) for question, result in results]
    sections = [find_rank(result, question, section=True) for question, result in results]
    for (question, result), rank in zip(results, documents, strict=True) if misses else ():
        if rank is None:
            print(f"{question.text}\n   -> {question.source} | {question.section}")
            for hit in result.hits:
                print(f"      {hit.score:.2f} {hit.source} | {hit.location}")
    return {
        "recall@1": share(documents, 1),
        "recall@5": share(documents, 5),
        "section@5": share(sections, 5),
        "p50_ms": round(statistics.median(took), 1),
    }


def measure_refusals(engine: Engine, collection: str, question_set: Sequence[Question]) -> dict[str, float]:
    """Return the shares of questions without an answer, and of those with one, that are refused."""
    tenant = engine.tenant("sample", collection=collection)
    outcomes = [(question.source is None, tenant.answer(question.text, 5).refused) for question in question_set]
    return {
        name: round(statistics.mean(no for without, no in outcomes if without is unanswerable), 3)
        for name, unanswerable in (("without an answer", True), ("with an answer", False))
    }


def write_sample(folder: Path, *, quick: bool = False) -> None:
    """Write the documents of examples/corporate; for a quick run one of eight."""
    subprocess.run([sys.executable, SAMPLE, folder], check=True, stdout=subprocess.DEVNULL)
    for number, file in enumerate(sorted(file for file in folder.rglob("*") if file.is_file()) if quick else ()):
        if number % 8:
            file.unlink()


def run(folder: Path, *, misses: bool, quick: bool = False) -> dict[str, Any]:
    """Ingest the sample by each preset, and measure."""
    plain = folder / "plain.yaml"
    plain.write_text("extends: corporate\nrag:\n  signals: {department_match: null, role_preference: null}\n")
    write_sample(folder / "kb", quick=quick)
    question_set = questions()[:: 12 if quick else 1]
    settings = Settings.load(overrides={**MODEL, "database.data_dir": str(folder / "data")})
    table: dict[str, Any] = {}
    with Engine(settings, embedder=embedder(settings, quick=quick)) as engine:
        tenant = engine.tenant("sample")
        presets: dict[str, str | Path] = {"corporate": "corporate", "plain": plain, "enforced": "corporate-enforced"}
        for collection, preset in presets.items():
            tenant.collections.create(collection, preset=preset)
            engine.warm_up()
            started = time.perf_counter()
            report = engine.tenant("sample", collection=collection).ingest(folder / "kb")
            seconds = round(time.perf_counter() - started, 1)
            table[collection] = {"chunks": report.chunks, "failed": len(report.failed), "seconds": seconds}
        table["stats"] = stats(engine)
        for collection, readers in {
            "plain": ["nobody"],
            "corporate": ["nobody", "own"],
            "enforced": ["own", "manager"],
        }.items():
            for who in readers:
                table[f"{collection}, {who}"] = measure(engine, collection, question_set, who, misses=misses)
        table["refused"] = measure_refusals(engine, "corporate", question_set)
    return table


def stats(engine: Engine) -> dict[str, int]:
    """Return the documents, and the chunks of each department."""
    documents = engine.tenant("sample", collection="corporate").documents()
    chunks: Counter[str] = Counter()
    for document in documents:
        chunks[PurePath(document.source).parent.name] += document.chunks
    return {"documents": len(documents), "chunks": chunks.total(), **chunks}


def main() -> None:
    """Measure and print."""
    parser = command(__doc__)
    parser.add_argument("--misses", action="store_true", help="list questions whose document is not found")
    arguments = parse(parser)
    table = run(temporary_folder(), misses=arguments.misses, quick=arguments.quick)
    for name, figures in table.items():
        print(f"{name:22}", "  ".join(f"{key} {value}" for key, value in figures.items()))
    write_results(arguments.json, table)


if __name__ == "__main__":
    main()
