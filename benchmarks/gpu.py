"""Measure embedding, reranking, questions and the worker on a GPU, by models of the ordered sizes.

    python -m benchmarks.gpu [encode] [question] [rerank] [worker] [search] [--device NAME] [--layers N] [--chunks N]
                             [--processes N ...] [--rounds N] [--json FILE] [--quick]

The models have the shapes of all-mpnet-base-v2 and ms-marco-MiniLM-L-6 with random weights: the time does not depend on
them. `encode`: chunks a second by sentence-transformers in both precisions and two batch sizes, and by the library.
`question`: milliseconds to embed one, by sentence-transformers and by the library, and questions a second of eight
threads. `rerank`: milliseconds for 20 and 100 passages in batches of four, and in those
that the stage learns. `worker`: documents through the queue by so many processes, as a share of the best bare encoding
in half precision, the same without a model, and the seconds from the command to the first document. `search`: whole
questions about these documents, without and with the reranker. `--device cpu` runs all of it on the CPU.
"""

import argparse
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, parse, temporary_folder, write_results
from benchmarks.reranker.latency import build_model, save_tokenizer
from benchmarks.worker import WORDS, has_device, read_document_times, work_until_idle, write_documents
from benchmarks.worker_work import create_wide_hashing_runner
from kosmos_rag import Engine, Passage, Settings
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.reranking.cross_encoder import CrossEncoderReranker
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.retrieval.rerank import RerankStage
from kosmos_rag.worker.handlers import create_runner
from kosmos_rag.worker.process import JobRunnerFactory

SECTIONS = 16
"""Sections of a document, each a chunk of about 109 tokens."""
WARM = 20


def build_embedding_model(folder: Path, layers: int) -> None:
    """Write a model of the shape of all-mpnet-base-v2 with random weights, which reads 384 tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import MPNetConfig, MPNetModel

    parts = folder / "parts"
    save_tokenizer(parts, max_tokens=384)
    config = MPNetConfig(vocab_size=30522, num_hidden_layers=layers, max_position_embeddings=514, pad_token_id=0)
    MPNetModel(config).save_pretrained(parts)
    transformer = Transformer(str(parts), max_seq_length=384)
    SentenceTransformer(modules=[transformer, Pooling(768, "mean"), Normalize()], device="cpu").save(str(folder))


class Bench:
    """The models, the texts and the settings of a run."""

    def __init__(self, scratch: Path, arguments: argparse.Namespace) -> None:
        self.scratch = scratch
        self.rounds: int = arguments.rounds
        self.processes: Sequence[int] = arguments.processes
        self.device: str = arguments.device
        self.model = scratch / "mpnet"
        self.reranker = scratch / "reranker"
        build_embedding_model(self.model, arguments.layers)
        build_model(self.reranker, layers=min(6, arguments.layers))
        self.files = scratch / "files"
        write_documents(self.files, max(1, arguments.chunks // SECTIONS), SECTIONS)
        self.texts = [section for file in self.files.iterdir() for section in file.read_text().split("\n\n")[2::2]][
            : arguments.chunks
        ]
        draw = np.random.default_rng(0)
        self.questions = [" ".join(draw.choice(WORDS, size=draw.integers(5, 16))) for _ in range(200)]

    def settings(self, name: str = "data", **changes: Any) -> Settings:
        """Return settings with these models on this device."""
        return Settings.load(
            overrides={
                "database.data_dir": str(self.scratch / name),
                "rag.embedding.model": str(self.model),
                "rag.embedding.dimensions": 768,
                "rag.reranking.enabled": False,
                "rag.reranking.model": str(self.reranker),
                "rag.reranking.threshold": 0.0,
                "rag.chunking.strategy": "markdown",
                "models.backend": "torch",
                "models.device": self.device,
                "worker.memory_mb": 8000,
                **changes,
            }
        )

    def embedder(self, **changes: Any) -> SentenceTransformerEmbedder:
        """Return the embedder of these settings, loaded."""
        settings = self.settings(**changes)
        embedder = SentenceTransformerEmbedder(settings.rag.embedding, settings.models)
        embedder.embed_query("warm")
        return embedder


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _milliseconds(calls: Sequence[Callable[[], object]]) -> dict[str, float]:
    times = sorted(1000 * _seconds(call) for call in calls)
    return {"p50": round(statistics.median(times), 2), "p99": round(times[int(len(times) * 0.99) - 1], 2)}


def measure_encoding(bench: Bench) -> dict[str, float]:
    """Return chunks a second of each way."""
    import torch
    from sentence_transformers import SentenceTransformer

    ways: dict[str, Callable[[], object]] = {}
    for dtype in ("float32", "float16"):
        if dtype == "float16" and bench.device == "cpu":
            continue
        model = SentenceTransformer(str(bench.model), device=bench.device).to(dtype=getattr(torch, dtype))
        for size in (32, 256):
            ways[f"sentence-transformers {dtype} {size}"] = partial(
                model.encode, bench.texts, batch_size=size, show_progress_bar=False
            )
        ways[f"library {dtype}"] = partial(bench.embedder(**{"models.dtype": dtype}).embed, bench.texts)
    for call in ways.values():
        call()
    seconds_by_way = {name: min(_seconds(call) for _ in range(bench.rounds)) for name, call in ways.items()}
    return {name: round(len(bench.texts) / seconds, 1) for name, seconds in seconds_by_way.items()}


def measure_questions(bench: Bench) -> dict[str, Any]:
    """Return milliseconds to embed a question, and questions a second of eight threads."""
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(bench.model), device=bench.device)
    if bench.device != "cpu":
        plain = plain.half()
    figures: dict[str, Any] = {}

    def measure(name: str, embed: Callable[[str], object]) -> None:
        for question in bench.questions:
            embed(question)
        figures[f"{name}, ms"] = _milliseconds([partial(embed, question) for question in bench.questions])
        with ThreadPoolExecutor(8) as pool:
            seconds = _seconds(lambda: list(pool.map(embed, bench.questions)))
        figures[f"{name}, 8 threads, a second"] = round(len(bench.questions) / seconds, 1)

    measure("sentence-transformers", partial(plain.encode, show_progress_bar=False))
    measure("library", bench.embedder().embed_query)
    return figures


def measure_reranking(bench: Bench) -> dict[str, Any]:
    """Return milliseconds for 20 and 100 passages by the size of their batches."""
    figures: dict[str, Any] = {}
    for name, size in (("batches of 4", 4), ("learned batches", None)):
        changes: dict[str, Any] = {"enabled": True, "deadline_ms": 500, "batch_size": size}
        settings = bench.settings(**{f"rag.reranking.{key}": value for key, value in changes.items()})
        reranker = CrossEncoderReranker(settings.rag.reranking, settings.models)
        stage = RerankStage(reranker, settings.rag.reranking, Telemetry())
        began = time.perf_counter()
        stage.warm_up()
        figures[f"{name}, warm-up, s"] = round(time.perf_counter() - began, 2)
        for count in (20, 100):
            sets = [bench.texts[start : start + count] for start in range(0, min(2000, len(bench.texts)), count)]
            late = 0

            def rerank(texts: Sequence[str], stage: RerankStage = stage) -> None:
                nonlocal late
                passages = [_passage(text) for text in texts]
                late += not stage.run(bench.questions[0], passages, StageTimer()).is_complete

            for texts in sets[:2]:
                rerank(texts)
            figures[f"{name}, {count} passages, ms"] = _milliseconds([partial(rerank, texts) for texts in sets])
            figures[f"{name}, {count} passages, late"] = late
    return figures


def measure_worker(bench: Bench, bare: float) -> dict[str, Any]:
    """Return chunks a second by processes, their share of bare encoding, and the seconds to the first document."""
    figures: dict[str, Any] = {"bare": bare}
    settings = bench.settings()
    with Engine(settings, embedder=HashingEmbedder(dimensions=768)) as engine:
        ways: list[tuple[str, JobRunnerFactory]] = [
            ("without a model", create_wide_hashing_runner),
            ("", create_runner),
        ]
        for name, work in ways:
            for processes in bench.processes:
                scope = engine.tenant(f"{name or 'model'}-{processes}".replace(" ", "-"))
                scope.jobs.enqueue(bench.files)
                began = time.time()
                work_until_idle(settings, work, processes=processes)
                first_start, first_end, last_end = read_document_times(scope, engine)
                rate = len(bench.texts) / (last_end - first_start)
                key = f"{processes} processes{' ' if name else ''}{name}"
                figures[f"{key}, chunks a second"] = round(rate, 1)
                if not name:
                    figures[f"{key}, of bare"] = round(rate / bare, 3)
                    figures[f"{key}, to the first document, s"] = round(first_end - began, 2)
                print(key, {name: value for name, value in figures.items() if name.startswith(key)}, flush=True)
    return figures


def measure_search(bench: Bench) -> dict[str, Any]:
    """Return the milliseconds of whole questions without and with the reranker."""
    figures: dict[str, Any] = {}
    for name, enabled in (("search", False), ("search and reranker", True)):
        with Engine(bench.settings("search", **{"rag.reranking.enabled": enabled})) as engine:
            scope = engine.tenant("search")
            scope.ingest(bench.files)
            engine.warm_up()
            calls: list[Callable[[], object]] = [partial(scope.search, question) for question in bench.questions]
            for call in calls[:WARM]:
                call()
            figures[f"{name}, ms"] = _milliseconds(calls[WARM:])
    return figures


def _passage(text: str) -> Passage:
    key = uuid.UUID(int=0)
    return Passage(
        rank=1, score=0.5, chunk_id=key, document_id=key, version_id=key, version=1, source="", title="",
        media_type="text/plain", metadata={}, chunk_index=0, section=(), start=0, end=len(text), line_start=1,
        line_end=1, page_start=None, page_end=None, text=text, chunker="", collection="default", dense_rank=None,
        dense_score=None, lexical_rank=None, lexical_score=None, fused_rank=1, fused_score=0.5, score_contributions={},
        rerank_score=None,
    )  # fmt: skip


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "gpu.json")
    parser.add_argument("what", nargs="*", metavar="PART", help="which parts; all where none is named")
    parser.add_argument("--device", default="cuda", metavar="NAME", help="device of the models, as torch names it")
    parser.add_argument("--layers", type=int, default=12, metavar="N", help="layers of the embedding model")
    parser.add_argument("--chunks", type=int, default=8000, metavar="N", help="chunks to embed and to ingest")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    scratch = temporary_folder()
    arguments = parse(parser, device="cpu", layers=1, chunks=32, processes=[1], rounds=1, what=["encode", "question"])
    if not has_device(arguments.device):
        print(f"skipped: torch finds no device {arguments.device!r} on this machine")
        return
    bench = Bench(scratch, arguments)
    figures: dict[str, Mapping[str, Any]] = {}
    parts: dict[str, Callable[[], Mapping[str, Any]]] = {
        "encode": lambda: measure_encoding(bench),
        "question": lambda: measure_questions(bench),
        "rerank": lambda: measure_reranking(bench),
        "worker": lambda: measure_worker(bench, _best(figures.get("encode") or measure_encoding(bench))),
        "search": lambda: measure_search(bench),
    }
    for name in arguments.what or parts:
        figures[name] = parts[name]()
        for row, value in figures[name].items():
            print(f"{name}: {row}: {value}", flush=True)
        write_results(arguments.json, figures)


def _best(encoding: Mapping[str, float]) -> float:
    """Return the best bare encoding of sentence-transformers."""
    return max(rate for name, rate in encoding.items() if name.startswith("sentence-transformers"))


if __name__ == "__main__":
    main()
