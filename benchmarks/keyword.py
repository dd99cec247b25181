"""Measure the keyword context: quality, start, load and answer times.

    python -m benchmarks.keyword [--json FILE] [--quick]

Quality is measured with the questions of benchmarks/keyword_questions.yaml over examples/schema_docs.txt. Import and
first load are the median of new processes; the first load with BM25 imports NumPy. Large texts are random words in
paragraphs of 60.
"""

import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import yaml

from benchmarks.command import EXAMPLES, ROOT, command, parse, write_results
from kosmos_rag.retrieval.keyword.context import KeywordContext, Ranking

SCHEMA_DOCS = EXAMPLES / "schema_docs.txt"
QUESTIONS = Path(__file__).with_name("keyword_questions.yaml")
LOADS = 200
ROUNDS = 50

_START = """
import time
began = time.perf_counter()
from kosmos_rag.retrieval.keyword.context import KeywordContext
imported = time.perf_counter()
KeywordContext.from_file({file!r}, ranking={ranking!r})
print((imported - began) * 1000, (time.perf_counter() - imported) * 1000)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question, and the paragraph that answers it."""

    question: str
    paragraph: str
    """Its first line."""


def read_questions() -> list[Question]:
    """Read the questions."""
    return [Question(**entry) for entry in yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))]


def find_rank(context: KeywordContext, question: Question) -> int | None:
    """Return the rank of the right paragraph, from 1; None where it is not found."""
    heads = [match.text.partition("\n")[0] for match in context.search(question.question, k=len(context.paragraphs))]
    return heads.index(question.paragraph) + 1 if question.paragraph in heads else None


def _quality(ranking: Ranking, questions: Sequence[Question]) -> dict[str, float]:
    context = KeywordContext.from_file(SCHEMA_DOCS, ranking=ranking)
    ranks = [find_rank(context, question) for question in questions]
    return {
        "questions": len(ranks),
        **{f"right_at_{k}": sum(rank is not None and rank <= k for rank in ranks) for k in (1, 3, 5)},
        "mrr": round(sum(1 / rank for rank in ranks if rank) / len(ranks), 3),
    }


def _starts(ranking: Ranking, processes: int) -> dict[str, float]:
    code = _START.format(file=str(SCHEMA_DOCS), ranking=ranking)
    lines = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for _ in range(processes)
    )
    imports, loads = zip(*(map(float, line.split()) for line in lines), strict=True)
    return {
        "import_ms": round(statistics.median(imports), 2),
        "first_load_ms": round(statistics.median(loads), 2),
    }


def _times(call: Callable[[], object], count: int) -> list[float]:
    """Return the milliseconds of each of `count` calls, sorted."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


def _example(ranking: Ranking, questions: Sequence[Question]) -> dict[str, float]:
    loads = _times(lambda: KeywordContext.from_file(SCHEMA_DOCS, ranking=ranking), LOADS)
    tracemalloc.start()
    context = KeywordContext.from_file(SCHEMA_DOCS, ranking=ranking)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    searches = sorted(
        took for question in questions for took in _times(partial(context.search, question.question), ROUNDS)
    )
    return {
        "load_ms": round(statistics.median(loads), 3),
        "search_p50_ms": round(statistics.median(searches), 3),
        "search_p95_ms": round(searches[int(len(searches) * 0.95)], 3),
        "memory_kb": round(memory / 1024, 1),
    }


def _large(ranking: Ranking, megabytes: int) -> dict[str, float]:
    dice = random.Random(7)
    words = [f"word{number}" for number in range(20_000)]
    paragraphs = []
    size = 0
    while size < megabytes * 1_000_000:
        paragraphs.append(" ".join(dice.choices(words, k=60)))
        size += len(paragraphs[-1]) + 2
    text = "\n\n".join(paragraphs)
    began = time.perf_counter()
    context = KeywordContext.from_text(text, ranking=ranking)
    loaded = time.perf_counter() - began
    searches = _times(lambda: context.search("word17 word170 word1700"), 20)
    return {
        f"large_{megabytes}_mb_load_s": round(loaded, 2),
        f"large_{megabytes}_mb_search_p50_ms": round(statistics.median(searches), 1),
    }


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "keyword.json")
    parser.add_argument(
        "--processes", type=int, default=15, metavar="N", help="new processes that each start is timed in"
    )
    parser.add_argument(
        "--megabytes", type=int, nargs="*", default=(5, 10), metavar="N", help="sizes of the large texts"
    )
    arguments = parse(parser, processes=1, megabytes=(1,))
    questions = read_questions()
    rankings: tuple[Ranking, ...] = get_args(Ranking)
    results = {}
    for ranking in rankings:
        results[ranking] = {
            **_quality(ranking, questions),
            **_starts(ranking, arguments.processes),
            **_example(ranking, questions),
            **{name: value for megabytes in arguments.megabytes for name, value in _large(ranking, megabytes).items()},
        }
    print(f"{'':<28}{''.join(f'{ranking:>12}' for ranking in rankings)}")
    for name in results[rankings[0]]:
        print(f"{name:<28}{''.join(f'{results[ranking][name]:>12,}' for ranking in rankings)}")
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()
