"""Measure the time of a cross-encoder for twenty passages, by backend and token limit.

    python -m benchmarks.reranker.latency [--data FOLDER] [--rounds N] [--json FILE] [--quick]

It has the shape of ms-marco-MiniLM-L-6. The weights are random, because the time does not depend on them. The rows take
turns, so other work on the machine affects all of them alike. `plain` is CrossEncoder.predict unchanged; the others are
the library's reranker.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beir import load
from benchmarks.command import DATASETS, command, parse, temporary_folder, write_results
from benchmarks.quick import write_evaluation_set
from kosmos_rag import Settings
from kosmos_rag.models.onnx import Precision
from kosmos_rag.models.packaged import build_tokenizer
from kosmos_rag.models.reranking.cross_encoder import CrossEncoderReranker

PASSAGES = 20
SETS = 8
"""Sets of passages that a row goes through, so that no shape repeats at once."""
SHORT_WORDS = 60
QUESTION = "what similarity laws must be obeyed when constructing models of heated aircraft"
SHAPE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
CAPS = (512, 256, 128, 64)

Score = Callable[[list[str]], object]


QUICK_SHAPE = {**SHAPE, "hidden_size": 48, "intermediate_size": 96}


def build_model(folder: Path, layers: int, shape: Mapping[str, int] = SHAPE) -> None:
    """Write a model of the real shape, or of another, with random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(**{**shape, "num_hidden_layers": layers, "vocab_size": 30522, "num_labels": 1})
    BertForSequenceClassification(config).save_pretrained(folder)
    save_tokenizer(folder, max_tokens=512)


def save_tokenizer(folder: Path, max_tokens: int) -> None:
    """Write the tokenizer of the packaged model to a model's folder."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    special_tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}
    backend = Tokenizer.from_str(build_tokenizer())
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=max_tokens, **special_tokens).save_pretrained(
        folder
    )


def passages(texts: list[str]) -> dict[str, list[list[str]]]:
    """Return sets of passages: as long as chunks are, and of few words."""
    draw = np.random.default_rng(0)
    long = [text for text in texts if len(text) > 1000][: PASSAGES * SETS]
    chunks = [text[: int(draw.integers(400, 1000))] for text in long]
    short = [" ".join(text.split()[:SHORT_WORDS]) for text in long]
    return {
        name: [pieces[at : at + PASSAGES] for at in range(0, len(pieces), PASSAGES)]
        for name, pieces in (("chunks", chunks), ("60 words", short))
    }


def _plain(folder: Path, cache: Path, backend: str) -> Score:
    from sentence_transformers import CrossEncoder

    options = {"provider": "CPUExecutionProvider", "export": True} if backend == "onnx" else None
    model = CrossEncoder(str(folder), device="cpu", backend=backend, model_kwargs=options, cache_folder=str(cache))
    return lambda texts: model.predict([(QUESTION, text) for text in texts], show_progress_bar=False)


def _create_scorer(
    folder: Path, cache: Path, backend: str, precision: Precision, batch_size: int, max_tokens: int
) -> Score:
    settings = Settings.load(
        overrides={
            "rag.reranking.model": str(folder),
            "rag.reranking.precision": precision,
            "rag.reranking.batch_size": batch_size,
            "rag.reranking.max_tokens": max_tokens,
            "models.backend": backend,
            "models.cache_dir": str(cache),
        }
    )
    reranker = CrossEncoderReranker(settings.rag.reranking, settings.models)
    return lambda texts: reranker.score(QUESTION, texts)


def rows(folder: Path, small: Path, cache: Path) -> dict[str, Score]:
    """Return what is measured, by name."""
    measured = {
        "plain torch": _plain(folder, cache, "torch"),
        "plain onnx": _plain(folder, cache, "onnx"),
        "torch": _create_scorer(folder, cache, "torch", "full", 32, 512),
        "torch, batches of 4": _create_scorer(folder, cache, "torch", "full", 4, 512),
        "onnx": _create_scorer(folder, cache, "onnx", "full", 32, 512),
        "onnx, batches of 4": _create_scorer(folder, cache, "onnx", "full", 4, 512),
        "onnx, batches of 1": _create_scorer(folder, cache, "onnx", "full", 1, 512),
        "onnx int8": _create_scorer(folder, cache, "onnx", "int8", 32, 512),
    }
    for cap in CAPS:
        measured[f"onnx int8, batches of 4, {cap} tokens"] = _create_scorer(folder, cache, "onnx", "int8", 4, cap)
    measured["onnx int8, batches of 4, 2 layers"] = _create_scorer(small, cache, "onnx", "int8", 4, 512)
    return measured


def measure(measured: dict[str, Score], sets: list[list[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Return p50, p95 and the least of each row, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(rounds + 1):
        for name, score in measured.items():
            started = time.perf_counter()
            score(sets[turn % len(sets)])
            if turn:  # the first one warms up
                times[name].append((time.perf_counter() - started) * 1000)
    return {
        name: {
            "p50_ms": round(statistics.median(milliseconds), 1),
            "p95_ms": round(float(np.percentile(milliseconds, 95)), 1),
            "min_ms": round(min(milliseconds), 1),
        }
        for name, milliseconds in times.items()
    }


def _print(results: dict[str, dict[str, dict[str, float]]]) -> None:
    for kind, figures in results.items():
        print(f"\n{PASSAGES} passages of {kind}: p50, p95 and least, milliseconds")
        for name, row in figures.items():
            print(f"{name:<40}" + "".join(f"{value:>9}" for value in row.values()))


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "reranker_latency.json")
    parser.add_argument(
        "--data", type=Path, default=DATASETS / "cranfield", metavar="FOLDER", help="passages are of it"
    )
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    scratch = temporary_folder()
    arguments = parse(parser, rounds=1, data=scratch / "examples")
    if arguments.data == scratch / "examples":
        write_evaluation_set(arguments.data)
    kinds = passages([text for _, text in load(arguments.data).documents.values()])
    folder, small = scratch / "model", scratch / "small"
    shape = QUICK_SHAPE if arguments.quick else SHAPE
    build_model(folder, layers=6, shape=shape)
    build_model(small, layers=2, shape=shape)
    measured = rows(folder, small, scratch / "cache")
    results = {kind: measure(measured, sets, arguments.rounds) for kind, sets in kinds.items()}
    _print(results)
    context: dict[str, Any] = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "rounds": arguments.rounds}
    write_results(arguments.json, {**context, "passages": PASSAGES, "results": results})


if __name__ == "__main__":
    main()
