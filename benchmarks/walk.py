"""Count the frames, modules, functions and transactions of one call.

    python -m benchmarks.walk [--json FILE] [--quick]

Counted with sys.setprofile over the frames of the package, in a warm process. Frames: the deepest chain from the façade
to the call of the driver. Functions: distinct ones; comprehensions and generator expressions belong to their function.
The vectors of the questions are known: models are not counted. docs/architecture.md has the table. The sizes of the
doors of storage and core are the distinct names that other packages import from them.
"""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import kosmos_rag
from benchmarks.command import EXAMPLES, MODEL, command, parse, temporary_folder, write_results
from benchmarks.doors import count_door
from kosmos_rag import Engine, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.sql import statement

PACKAGE = str(Path(kosmos_rag.__file__).parent)
_BEGIN = "_get_tx_start_command"
"""Function of psycopg that returns how a transaction starts, which may travel with its first statement."""
_BEGIN_STATEMENTS = (statement("begin_read"), statement("begin_append"))
_LOAD_S = 60
HAS_MEMORY_VIEW = find_spec("kosmos_rag.retrieval.views.memory") is not None
"""Whether there is a view of the memory, whose module is optional."""
_ANONYMOUS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>", "<module>")


@dataclass
class Walk:
    """What one call ran of the package, in all of its threads."""

    functions: set[tuple[str, str]] = field(default_factory=set)
    """File and qualified name."""
    driver_frames: int = 0
    transactions: int = 0

    @property
    def modules(self) -> set[str]:
        """Files of the functions."""
        return {file for file, _ in self.functions}

    def row(self) -> dict[str, int]:
        """Return the counts."""
        return {
            "frames": self.driver_frames,
            "modules": len(self.modules),
            "functions": len(self.functions),
            "transactions": self.transactions,
        }

    def profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note the start of a function; the callback of sys.setprofile."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and code.co_name not in _ANONYMOUS:
            self.functions.add((code.co_filename, code.co_qualname))
        elif code.co_name == _BEGIN:
            self.transactions += 1
        elif _is_driver_call(code):
            self.transactions += frame.f_locals["query"] in _BEGIN_STATEMENTS
            self.driver_frames = max(self.driver_frames, _package_frames(frame))


def _is_driver_call(code: CodeType) -> bool:
    return code.co_name in ("execute", "executemany") and code.co_filename.endswith(str(Path("psycopg", "cursor.py")))


def _package_frames(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        code = frame.f_code
        count += code.co_filename.startswith(PACKAGE) and code.co_name not in _ANONYMOUS
        frame = frame.f_back
    return count


def walk(call: Callable[[], object]) -> Walk:
    """Run a call, in this thread and those that it starts, and count what it runs."""
    walk = Walk()
    threading.setprofile(walk.profile)
    sys.setprofile(walk.profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


def measure(folder: Path) -> dict[str, Walk]:
    """Return what each call runs, by its name."""
    settings = Settings.load(overrides={**MODEL, "database.data_dir": str(folder)})
    model = HashingEmbedder(dimensions=384)
    question = "How is logo churn of one month calculated from accounts paying on the opening day?"

    def document(text: str) -> SourceDocument:
        return SourceDocument(source="walk.md", data=f"# Walk\n\n{text}\n".encode())

    def search(tenant: Tenant, k: int | None = None) -> SearchResult:
        return tenant.search(question, k)

    in_database = settings.model_copy(update={"indexes": settings.indexes.model_copy(update={"vector_cache_mb": 0})})
    with Engine(settings, embedder=model) as engine, Engine(in_database, embedder=model) as without_memory:
        tenant, plain = engine.tenant("acme"), without_memory.tenant("acme")
        tenant.ingest(EXAMPLES / "knowledge_base")
        # Once before: pools, models and statements are loaded, and vectors of questions.
        plain.answer("What is churn?")
        tenant.answer("What is churn?")
        tenant.ingest([document("first")], prune=False)
        search(plain, 1)
        calls: dict[str, Callable[[], object]] = {"search, by the database": lambda: search(plain)}
        if HAS_MEMORY_VIEW:
            _load(lambda: search(tenant, 1))
            calls["search, in memory"] = lambda: search(tenant)
        calls |= {
            "context": lambda: plain.context(f"{question} And why?"),
            "answer": lambda: plain.answer(f"Please: {question}"),
            "new document": lambda: tenant.ingest([document("second")], prune=False),
            "unchanged document": lambda: tenant.ingest([document("second")], prune=False),
        }
        return {name: walk(call) for name, call in calls.items()}


def _load(search: Callable[[], SearchResult]) -> None:
    """Search until the memory of the process answers."""
    deadline = time.monotonic() + _LOAD_S
    while not all("memory" in stats.plan for stats in search().retrievers.values()):
        if time.monotonic() > deadline:
            raise SystemExit(f"the documents were not loaded into memory within {_LOAD_S} s")


def main() -> None:
    """Count, and print the table."""
    parser = command(__doc__, "walk.json")
    parser.add_argument("--list", action="store_true", help="list the functions of each call")
    arguments = parse(parser)
    walks = measure(temporary_folder())
    print("| call | frames to the driver | modules | functions | transactions |\n|---|---|---|---|---|")
    for name, walk in walks.items():
        print(f"| {name} | {' | '.join(str(count) for count in walk.row().values())} |")
    print(f"\nnames that other packages take: {count_door('storage')} of storage, {count_door('core')} of core")
    if arguments.list:
        for name, walk in walks.items():
            print(f"\n{name}")
            for file, function in sorted(walk.functions):
                print(f"  {Path(file).relative_to(PACKAGE)}  {function}")
    write_results(arguments.json, {name: walk.row() for name, walk in walks.items()})


if __name__ == "__main__":
    main()
