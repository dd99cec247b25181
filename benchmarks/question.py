"""Measure the cost of one question: processor time, statements and round trips.

    python -m benchmarks.question [--data FOLDER] [--before TREE] [--publications N ...] [--rounds N] [--principals N]
                                  [--json FILE] [--quick]

Processor time is that of the client and of its server backend. The vector of each question is prepared, and no result
is cached. `--before` names another checkout of the project. Both answer the same questions in turn, in blocks, each in
a process and on a server of its own, and their hits are compared. Processor time is compared, not elapsed time, because
other work on the machine affects both alike. `--publications 1 10` adds two sides: another process publishes one
document, and ten, in each second of their questions. Their figures are means, so that each publication counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import DATASETS, ROOT, command, parse, temporary_folder, write_results
from benchmarks.quick import write_evaluation_set

_CHILD = Path(__file__).with_name("question_child.py")
_BLOCK = 25
"""Questions that one side answers before the other one does."""
Figures = dict[str, Any]


class Side:
    """One checkout that answers questions in a process of its own."""

    def __init__(
        self, tree: Path, folder: Path, arguments: argparse.Namespace, data: Path, publications: float = 0
    ) -> None:
        options = ["--data", str(data), "--folder", str(folder), "--principals", str(arguments.principals)]
        options += ["--publications", f"{publications}"] if publications else []
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD), *options, *(["--segments"] if arguments.segments else [])],
            cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.counts = self._receive()

    def ask(self, start: int, stop: int) -> Figures:
        """Have it answer the questions from `start` to `stop`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{start} {stop}\n")
        self._process.stdin.flush()
        return self._receive()

    def close(self) -> None:
        """End its process, and wait for it."""
        # Closes its pipes: it ends when it reads no more questions.
        self._process.communicate(timeout=60)

    def _receive(self) -> Figures:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a side of the comparison has ended; see what it said above")
        figures: Figures = json.loads(line)
        return figures


def measure(trees: dict[str, Path], arguments: argparse.Namespace, data: Path) -> Figures:
    """Have the checkouts answer all questions in turn, and return their figures."""
    folder = temporary_folder()
    sides = {name: Side(tree, folder / name, arguments, data) for name, tree in trees.items()}
    for rate in arguments.publications:
        name = f"{rate:g} a second"
        sides[name] = Side(ROOT, folder / f"rate-{rate:g}", arguments, data, rate)
    blocks: dict[str, list[Figures]] = {name: [] for name in sides}
    names, questions = list(sides), min(side.counts["questions"] for side in sides.values())
    for turn in range(arguments.rounds):
        for start in range(0, questions, _BLOCK):
            for name in names if (turn + start // _BLOCK) % 2 else reversed(names):
                blocks[name].append(sides[name].ask(start, min(start + _BLOCK, questions)))
    for side in sides.values():
        side.close()
    first, *others = ([block["hits"] for block in blocks[name]] for name in trees)
    average = statistics.fmean if arguments.publications else statistics.median
    return {
        "chunks": next(iter(sides.values())).counts["chunks"],
        "questions": questions,
        "equal_hits": all(other == first for other in others),
        **{name: _summary(of_side, average) | sides[name].counts["walk"] for name, of_side in blocks.items()},
    }


def _summary(blocks: Sequence[Figures], average: Callable[[list[float]], float]) -> Figures:
    """Return the average over the blocks, in milliseconds of a question."""
    names = ("client_ms", "server_ms", "wall_ms")
    return {name: round(average([block[name] for block in blocks]), 3) for name in names}


def main() -> None:
    """Measure, and print the table."""
    parser = command(__doc__)
    parser.add_argument("--data", type=Path, default=DATASETS / "cranfield", help="a set in the BEIR layout")
    parser.add_argument("--before", type=Path, metavar="TREE", help="another checkout of the project")
    parser.add_argument("--publications", type=float, nargs="+", default=[], metavar="N", help="in each second")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--principals", type=int, default=1, help="how many the reader holds")
    parser.add_argument("--segments", action="store_true", help="pack the postings into a segment first")
    arguments = parse(parser, rounds=1)
    data = write_evaluation_set(temporary_folder()) if arguments.quick else arguments.data
    trees = ({} if arguments.before is None else {"before": arguments.before.resolve()}) | {"now": ROOT}
    figures = measure(trees, arguments, data)
    print(f"{figures['chunks']} chunks, {figures['questions']} questions, {arguments.rounds} rounds")
    print("| | client, CPU ms | server, CPU ms | time, ms | statements | waits |")
    print("|---|---|---|---|---|---|")
    for name in (*trees, *(f"{rate:g} a second" for rate in arguments.publications)):
        print(f"| {name} | {' | '.join(str(value) for value in figures[name].values())} |")
    if arguments.before is not None:
        print(f"hits are equal: {'yes' if figures['equal_hits'] else 'no'}")
    write_results(arguments.json, figures)


if __name__ == "__main__":
    main()
