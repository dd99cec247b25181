"""Measure how often the preset `analytics` ranks the right section first.

    python -m benchmarks.analytics [--misses] [--timing] [--json FILE] [--quick]

The documents are those of examples/. The preset is measured whole, and with one thing changed. A question counts at
rank 1 (or within the first three) if file and section are those in examples/questions.yaml. A third of the questions,
by a hash of their text, is held out: the preset was tuned on the others. `--misses` lists the misses of the tuning
part; `--timing` measures the time of signals on 20 candidates. At last each section of example_sql.md is asked for by
its title ("How is … calculated?"): its SQL should be in the context and in the answer.
"""

import hashlib
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path, PurePath

import yaml

from benchmarks.command import EXAMPLES, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from kosmos_rag import Engine, SearchResult, Settings, Tenant
from kosmos_rag.core.config.presets import load
from kosmos_rag.retrieval.signals.apply import Signals, build_signal_rules
from kosmos_rag.retrieval.signals.base import QueryContext

PRESET = "analytics"
_CANDIDATES = 20
_ROUNDS = 300
_SQL_SECTION = re.compile(r"^## (?P<title>[^\n]+)\n[^#]*?```sql\n(?P<sql>.*?)```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with the one place of its answer."""

    text: str
    source: str
    section: str
    intent: str

    @property
    def held_out(self) -> bool:
        """Whether it is of the third that nothing was tuned on."""
        return int(hashlib.sha256(self.text.encode()).hexdigest()[:8], 16) % 3 == 0


def questions(path: Path) -> list[Question]:
    """Read the questions that have an answer."""
    return [
        Question(text=entry["question"], source=entry["source"], section=entry["section"], intent=entry["intent"])
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
        if entry.get("answerable", True)
    ]


def find_rank(result: SearchResult, question: Question) -> int | None:
    """Return the rank of the first hit from the right file and section; None where there is none."""
    ranks = (
        hit.rank
        for hit in result.hits
        if PurePath(hit.source).name == question.source and hit.section[-1:] == (question.section,)
    )
    return next(ranks, None)


def share(ranks: Sequence[int | None], within: int) -> float:
    """Return the share of ranks that are at most `within`."""
    return sum(rank is not None and rank <= within for rank in ranks) / len(ranks)


def write_presets(folder: Path, settings: Settings) -> dict[str, str | Path]:
    """Return the measured preset, and it without some of its rules or with other chunks, by name."""
    rag = load(PRESET, settings, validate=build_signal_rules).values["rag"]
    without = {part: dict.fromkeys(rag[part]) for part in ("signals", "intents")}
    markdown = {"strategy": "markdown"}
    changes = {
        "several-hits": {"signals": {"one_per_source": None}},
        "no-signals": without,
        "markdown": {"chunking": markdown},
        "markdown-no-signals": {"chunking": markdown, **without},
    }
    presets: dict[str, str | Path] = {"signals": PRESET}
    for name, changed in changes.items():
        presets[name] = path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"extends": PRESET, "rag": changed}), encoding="utf-8")
    return presets


def measure(tenant: Tenant, question_set: Sequence[Question], *, misses: bool) -> dict[str, dict[str, float]]:
    """Ask everything, and return the shares by part of the questions."""
    results = [(question, tenant.search(question.text, 10)) for question in question_set]
    table = {}
    parts = {"tuned on": False, "held out": True}
    for name, apart in parts.items():
        ranks = [find_rank(result, question) for question, result in results if question.held_out is apart]
        table[name] = {"questions": len(ranks), "rank 1": share(ranks, 1), "top 3": share(ranks, 3)}
    every = [find_rank(result, question) for question, result in results]
    table["all"] = {"questions": len(every), "rank 1": share(every, 1), "top 3": share(every, 3)}
    for question, result in results if misses else ():
        rank = find_rank(result, question)
        if rank != 1 and not question.held_out:
            print(f"{rank} {question.intent} ({result.intent}): {question.text}\n   -> {question.section}")
            for hit in result.hits[:3]:
                changes = {name: round(change, 2) for name, change in hit.signals.items()}
                print(f"      {hit.score:.2f} {PurePath(hit.source).name} | {hit.location} {changes}")
    return table


def find_sql_sections(text: str) -> list[tuple[str, str]]:
    """Return the title and the SQL of each section of a file with SQL."""
    return [(match["title"], match["sql"].strip()) for match in _SQL_SECTION.finditer(text)]


def count_sql_answers(tenant: Tenant, text: str) -> dict[str, int]:
    """Return of how many sections the SQL is in the first hit, context and answer, and the number of refusals."""
    sections = find_sql_sections(text)
    answers = [(tenant.answer(f"How is {title} calculated?"), sql) for title, sql in sections]
    return {
        "sections": len(answers),
        "in first hit": sum(sql in answer.context.retrieval.hits[0].text for answer, sql in answers),
        "in context": sum(sql in answer.context.text for answer, sql in answers),
        "in answer": sum(sql in answer.text for answer, sql in answers),
        "refused": sum(answer.refused for answer, _ in answers),
    }


def measure_signals(result: SearchResult, settings: Settings) -> dict[str, float]:
    """Return milliseconds that the signals of the preset take of 20 candidates: the first time, and after."""
    rag = load(PRESET, settings, validate=build_signal_rules).apply(settings).rag
    signals = Signals(rag.signals, rag.intents)
    query = QueryContext(text=result.question, principals=("everyone",), today=date(2026, 1, 1))
    took = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        signals.apply(query, result.hits, ahead=lambda _: False)
        took.append((time.perf_counter() - began) * 1000)
    return {
        "candidates": len(result.hits),
        "first": took[0],
        "p50": statistics.median(took),
        "max after": max(took[1:]),
    }


def main() -> None:
    """Measure and print."""
    parser = command(__doc__)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--timing", action="store_true")
    arguments = parse(parser)
    question_set = questions(EXAMPLES / "questions.yaml")[:: 10 if arguments.quick else 1]
    report: dict[str, object] = {}
    folder = temporary_folder()
    settings = Settings.load(overrides={**MODEL, "database.data_dir": str(folder / "database")})
    with Engine(settings, embedder=embedder(settings, quick=arguments.quick)) as engine:
        tenant = engine.tenant("analytics")
        for name, preset in write_presets(folder, settings).items():
            tenant.collections.create(name, preset=preset)
            variant_tenant = engine.tenant("analytics", collection=name)
            variant_tenant.ingest([EXAMPLES / "knowledge_base"])
            report[name] = table = measure(variant_tenant, question_set, misses=arguments.misses and name == "signals")
            for part, row in table.items():
                count, first, three = row["questions"], row["rank 1"], row["top 3"]
                print(f"{name:<23}  {part:<10}  {count:3} questions  rank 1 {first:.3f}  top 3 {three:.3f}")
        text = (EXAMPLES / "knowledge_base" / "example_sql.md").read_text(encoding="utf-8")
        report["sql"] = count_sql_answers(engine.tenant("analytics", collection="signals"), text)
        print(report["sql"])
        if arguments.timing:
            plain = engine.tenant("analytics", collection="no-signals").search(question_set[0].text, _CANDIDATES)
            report["milliseconds"] = measure_signals(plain, settings)
            print(report["milliseconds"])
    write_results(arguments.json, report)


if __name__ == "__main__":
    main()
