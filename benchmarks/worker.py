"""Measure the worker from end to end: the queue, and everything except the model.

    python -m benchmarks.worker [queue] [documents] [semantic] [unchanged] [memory] [files] [poison] [--json FILE]
                                [--plot FILE] [--backend NAME] [--set KEY=VALUE ...] [--scale FACTOR] [--quick]

`queue`: jobs without work a second with four processes, and the time of claiming one among 200,000 finished ones.
`documents`: 92 Markdown documents of about 1,500 chunks through the worker, and the bare embedding of the same chunks
by the same model, in turn; they are cut at headings. `semantic`: the same with semantic chunking, which embeds
sentences of paragraphs that are longer than a chunk. `unchanged`: a second pass over 10,000 files. `memory`: resident
memory of the worker's processes over 20,000 documents, as a plot. `files`: the peak of the memory of all processes of
`kosmos-rag worker` with the model over a PDF of 200 pages, an XLSX of 50,000 rows, HTML of 2 MB, DOCX and a mail with
attachments, times `--scale`; Linux only. `poison`: 60 Markdown and 60 HTML files through one process, in turn alone and
with a workbook that computes until a limit ends it; the time until all but the workbook are done. `unchanged`,
`memory` and `poison` do not measure the model, and embed without one. With `--set
models.device=cuda`, `documents` shows which share of the bare embedding on a GPU the worker reaches.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from benchmarks.worker_files import measure_files
from benchmarks.worker_work import create_hashing_runner, open_nothing
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.apps.cli.common import overrides
from kosmos_rag.core.types import Outcome
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.tenants import tenant
from kosmos_rag.worker.handlers import create_runner
from kosmos_rag.worker.process import JobRunnerFactory
from kosmos_rag.worker.supervisor import Supervisor
from tests.unit.parsing.sandbox.files import wide_workbook

WORDS = (
    "the of and to in is that for was on are as with his they at be this from have by not but what all were "
    "when we there can an which their said if will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my "
    "made over did down only way find use may water long little very after words called just where most know "
    "get through back much before go good new write our account revenue churn customer contract invoice "
    "payment region quarter forecast policy holiday approval report table "
).split()


def _text(number: int, sections: int) -> str:
    dice = random.Random(number)
    parts = [f"# Document {number}\n"]
    for section in range(sections):
        sentences = (" ".join(dice.choices(WORDS, k=dice.randint(8, 18))).capitalize() + "." for _ in range(7))
        parts.append(f"## Section {section} of {number}\n\n{' '.join(sentences)}\n")
    return "\n".join(parts)


def write_documents(folder: Path, count: int, sections: int) -> None:
    """Write Markdown documents of so many sections, each about a chunk."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.md").write_text(_text(number, sections))


def work_until_idle(
    settings: Settings,
    work: JobRunnerFactory,
    *,
    processes: int = 1,
    on_progress: Callable[[Supervisor], None] | None = None,
) -> None:
    """Work until nothing is left."""
    worker = settings.worker.model_copy(update={"processes": processes})
    changed = settings.model_copy(update={"worker": worker})
    Supervisor(
        changed,
        kinds=[kinds.DOCUMENT, kinds.SYNC],
        create_runner=work,
        until_idle=True,
        on_progress=on_progress,
    ).run()


def seconds_of_documents(scope: Tenant, engine: Engine) -> float:
    """Return the time from the first taking of a document to the last end: without the start of processes."""
    first_start, _, last_end = read_document_times(scope, engine)
    return last_end - first_start


def read_document_times(scope: Tenant, engine: Engine) -> tuple[float, float, float]:
    """Return when the first document was taken, the first ended and the last ended; seconds since 1970."""
    with engine.database.worker.untenanted() as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM min(started_at)), extract(epoch FROM min(finished_at)),"
            " extract(epoch FROM max(finished_at)) FROM kosmos.jobs"
            " WHERE tenant_id = %s AND kind = 'document' AND state = 'done'",
            [scope.id],
        ).fetchone()
    assert row is not None
    first_start, first_end, last_end = map(float, row)
    return first_start, first_end, last_end


def measure_queue(
    settings: Settings, *, processes: int = 4, jobs: int = 8000, finished: int = 200_000, times: int = 300
) -> dict[str, float]:
    """Return jobs a second, and milliseconds of taking one and of a batch."""
    owner = tenant("bench")
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        role = engine.database.worker

        def fill() -> None:
            with role.untenanted() as connection:
                JobWriter(connection, owner).enqueue(
                    "default", kinds.DOCUMENT, {str(number): {} for number in range(jobs)}
                )

        fill()
        work_until_idle(settings, open_nothing, processes=processes)
        with role.untenanted() as connection:
            row = connection.execute(
                "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM kosmos.jobs"
            ).fetchone()
            assert row is not None
            connection.execute(
                "INSERT INTO kosmos.jobs (tenant_id, id, tenant, collection, kind, key, payload, state, priority,"
                " run_at, attempt, lost, requeue, sync_run_ids, created_at, finished_at)"
                " SELECT gen_random_uuid(), kosmos.new_job_id(), 't', 'default', 'document', n::text, '{}', 'done', 0,"
                " now(), 1, 0, false, '{}', now(), now()"
                " FROM generate_series(1, %s) n",
                [finished],
            )
        fill()
        queue = Queue.open(engine.database, settings.worker)
        figures = {
            "jobs_per_second": round(jobs / float(row[0])),
            "take_one_ms": _taking_ms(queue, 1, times=times),
            "take_64_ms": _taking_ms(queue, 64, times=times // 6),
        }
        # The other parts may work on this database too.
        while left := queue.claim(1000, kinds=[kinds.DOCUMENT], worker="bench"):
            queue.finish({job.token: Outcome.NEW for job in left})
        return figures


def _taking_ms(queue: Queue, limit: int, *, times: int) -> float:
    """Return the median; what is taken is finished before the next, as workers do."""
    milliseconds = []
    for _ in range(times):
        started = time.perf_counter()
        jobs = queue.claim(limit, kinds=[kinds.DOCUMENT], worker="bench")
        milliseconds.append(1000 * (time.perf_counter() - started))
        queue.finish({job.token: Outcome.NEW for job in jobs})
    return round(statistics.median(milliseconds), 2)


def measure_documents(
    settings: Settings, folder: Path, *, count: int = 92, rounds: int = 3, quick: bool = False
) -> dict[str, Any]:
    """Return the seconds of the worker and of bare embedding, measured in turn: the machine's speed varies."""
    if not folder.exists():
        write_documents(folder, count, 16)
    model = embedder(settings, quick=quick)
    with Engine(settings, embedder=model) as engine:
        texts: list[str] = []
        for file in sorted(folder.iterdir()):
            document = SourceDocument(source=str(file), data=file.read_bytes())
            texts += engine.ingest_pipeline.processor.process(
                tenant("bench").id, document, ["english", "simple"]
            ).embedded
        model.embed(texts[:64])
        bare, worked = [], []
        for number in range(rounds):
            started = time.perf_counter()
            model.embed(texts)
            bare.append(time.perf_counter() - started)
            # A tenant of its own: what a tenant has embedded once is not embedded again.
            scope = engine.tenant(f"worker-{number}")
            scope.jobs.enqueue(folder)
            work_until_idle(settings, create_hashing_runner if quick else create_runner)
            worked.append(seconds_of_documents(scope, engine))
        return {
            "documents": count,
            "chunks": len(texts),
            "bare_embedding_s": [round(seconds, 2) for seconds in bare],
            "worker_s": [round(seconds, 2) for seconds in worked],
            "ratio": round(statistics.median(b / w for b, w in zip(bare, worked, strict=True)), 3),
        }


def measure_unchanged(settings: Settings, folder: Path, *, count: int = 10_000) -> dict[str, float]:
    """Return the seconds of a first and of a second pass."""
    write_documents(folder, count, 1)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant("unchanged")
        scope.jobs.enqueue(folder)
        work_until_idle(settings, create_hashing_runner)
        first = seconds_of_documents(scope, engine)
        scope.jobs.enqueue(folder)
        work_until_idle(settings, create_hashing_runner)
        run = scope.jobs.runs()[0]
        assert run.unchanged == run.seen == count
        assert run.finished_at is not None
        return {
            "documents": count,
            "first_pass_s": round(first, 1),
            "second_pass_s": round((run.finished_at - run.started_at).total_seconds(), 2),
        }


def measure_poison(settings: Settings, folder: Path, *, count: int = 60, rounds: int = 7) -> dict[str, Any]:
    """Return the seconds of the other documents without and with a poison file, in turn."""
    folder.mkdir()
    seconds_by_case: dict[str, list[float]] = {"alone": [], "poisoned": []}
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        for number in range(rounds):
            for name, seconds in seconds_by_case.items():
                files = folder / f"{name}-{number}"
                write_documents(files, count, 16)
                for page in range(count):
                    (files / f"{page}.html").write_text(f"<p>{_text(count + page, 16)}</p>")
                if name == "poisoned":
                    (files / "3.xlsx").write_bytes(wide_workbook(30_000))
                scope = engine.tenant(files.name)
                scope.jobs.enqueue(files)
                work_until_idle(settings, create_hashing_runner)
                seconds.append(seconds_of_documents(scope, engine))
    return {
        **{f"{name}_s": [round(value, 2) for value in seconds] for name, seconds in seconds_by_case.items()},
        "ratio": round(statistics.median(seconds_by_case["poisoned"]) / statistics.median(seconds_by_case["alone"]), 3),
    }


def measure_memory(settings: Settings, folder: Path, plot: Path, *, count: int = 20_000) -> dict[str, float]:
    """Return the largest resident memory of a working process by quarters of the documents, and draw it all."""
    write_documents(folder, count, 1)
    samples: list[tuple[float, float, float]] = []
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("memory").jobs.enqueue(folder)

        def look(supervisor: Supervisor) -> None:
            me = psutil.Process()
            largest = max((child.memory_info().rss for child in me.children()), default=0) / 2**20
            documents = supervisor.metrics.total("documents")
            samples.append((documents, largest, me.memory_info().rss / 2**20))

        work_until_idle(settings, create_hashing_runner, on_progress=look)
    _draw(samples, plot)
    return {
        f"largest_mb_until_{end}": round(
            max((child for documents, child, _ in samples if documents <= end), default=0.0), 1
        )
        for end in range(count // 4, count + 1, count // 4)
    }


def _draw(samples: Sequence[tuple[float, float, float]], plot: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3))
    documents, child, supervisor = zip(*samples, strict=True)
    axes.plot(documents, child, label="working process")
    axes.plot(documents, supervisor, label="supervisor (this benchmark)")
    axes.set(xlabel="documents", ylabel="resident MB", ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(plot, dpi=120)


def has_device(name: str) -> bool:
    """Return whether torch finds a device on this machine."""
    import torch

    try:
        torch.empty(1, device=name)
    except (AssertionError, RuntimeError):  # built without it, or none is there
        return False
    return True


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "worker.json")
    parser.add_argument("what", nargs="*", metavar="PART", help="which parts; all where none is named")
    parser.add_argument("--plot", type=Path, default=Path("docs/images/worker-memory.png"), metavar="FILE")
    parser.add_argument("--backend", default="torch", choices=["torch", "onnx"])
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="change a setting")
    parser.add_argument("--scale", type=float, default=1.0, metavar="FACTOR", help="size of the large files")
    scratch = temporary_folder()
    # Semantic chunking takes the way of `documents` again, and the large files need the model.
    quick_parts = ["queue", "documents", "unchanged", "memory", "poison"]
    arguments = parse(parser, plot=scratch / "worker-memory.png", what=quick_parts, scale=0.01)

    changes = {**MODEL, "models.backend": arguments.backend, **overrides(arguments.set)}

    def settings(name: str, more: Mapping[str, Any] | None = None) -> Settings:
        return Settings.load(overrides={**changes, "database.data_dir": str(scratch / name), **(more or {})})

    device = settings("device").models.device
    if device != "cpu" and not has_device(device):
        print(f"skipped: torch finds no device {device!r} on this machine")
        return
    quick = arguments.quick
    of_queue = {"processes": 1, "jobs": 100, "finished": 200, "times": 10} if quick else {}
    of_documents: dict[str, Any] = {"count": 4, "rounds": 1, "quick": True} if quick else {}
    of_many = {"count": 40} if quick else {}
    markdown = {"rag.chunking.strategy": "markdown"}
    of_poison = {"count": 4, "rounds": 1} if quick else {}
    once = {"worker.max_attempts": 1, "ingestion.parsing.cpu_s": 1 if quick else 15}
    parts: dict[str, Callable[[], Mapping[str, Any]]] = {
        "queue": lambda: measure_queue(settings("queue"), **of_queue),
        "documents": lambda: measure_documents(settings("documents", markdown), scratch / "files", **of_documents),
        "semantic": lambda: measure_documents(settings("semantic"), scratch / "files", **of_documents),
        "unchanged": lambda: measure_unchanged(settings("unchanged"), scratch / "many", **of_many),
        "memory": lambda: measure_memory(settings("memory"), scratch / "more", arguments.plot, **of_many),
        "files": lambda: measure_files(settings("big"), changes, scratch / "big-files", scale=arguments.scale),
        "poison": lambda: measure_poison(settings("poison", once), scratch / "poison", **of_poison),
    }
    figures: dict[str, Mapping[str, Any]] = {}
    for name in arguments.what or parts:
        figures[name] = parts[name]()
        print(f"{name}: {figures[name]}")
    write_results(arguments.json, figures)


if __name__ == "__main__":
    main()
