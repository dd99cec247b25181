"""Measure the share of questions that a reranking server scores before a deadline.

    python -m benchmarks.reranker.server [--latencies MS ...] [--deadlines MS ...] [--clients N ...] [--quick]

The server is a script that waits and answers as Text Embeddings Inference does. Embedding uses word hashes, so the
whole deadline is left for the server. Subtract the latency of your embedding server from it.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from benchmarks.command import EXAMPLES, command, parse, temporary_folder
from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder

_QUESTIONS = ("how is churn calculated", "net revenue of a region", "what counts as an active user", "trial accounts")


@contextmanager
def serve_scores() -> Iterator[ThreadingHTTPServer]:
    """Serve scores after `latency_s` seconds, an attribute of the server."""

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
            time.sleep(server.latency_s)  # type: ignore[attr-defined]
            body = json.dumps([{"index": at, "score": 0.9} for at in range(len(texts))]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def measure(arguments: argparse.Namespace, deadline_ms: int, server: ThreadingHTTPServer) -> None:
    """Print one line for each latency and number of clients at one deadline."""
    settings = Settings.load(
        overrides={
            "database.data_dir": str(arguments.folder),
            "rag.chunking.strategy": "paragraph",
            "rag.reranking.url": f"http://127.0.0.1:{server.server_port}",
            "rag.reranking.protocol": "tei",
            "rag.reranking.model": "scripted",
            "rag.reranking.deadline_ms": deadline_ms,
        }
    )
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant("bench")
        tenant.ingest(EXAMPLES / "knowledge_base")

        def ask(number: int) -> tuple[bool, float]:
            started = time.perf_counter()
            result = tenant.search(_QUESTIONS[number % len(_QUESTIONS)])
            return "rerank" not in result.degraded_stages, (time.perf_counter() - started) * 1000

        for latency_ms in arguments.latencies:
            for clients in arguments.clients:
                server.latency_s = latency_ms / 1000  # type: ignore[attr-defined]
                with ThreadPoolExecutor(clients) as pool:
                    calls = list(pool.map(ask, range(arguments.questions)))
                time.sleep(server.latency_s)  # type: ignore[attr-defined]  # late calls end
                share = np.mean([is_complete for is_complete, _ in calls])
                p50 = np.percentile([ms for _, ms in calls], 50)
                print(f"{deadline_ms:>8} {latency_ms:>8} {clients:>8} {share:>8.0%} {p50:>8.0f}")


def main() -> None:
    """Measure each deadline."""
    parser = command(__doc__)
    parser.add_argument("--latencies", type=int, nargs="+", default=[50, 200, 400, 800, 1500], metavar="MS")
    parser.add_argument("--deadlines", type=int, nargs="+", default=[500, 2000], metavar="MS")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4], metavar="N")
    parser.add_argument("--questions", type=int, default=16, metavar="N")
    # A quick run also passes where other work delays each call.
    arguments = parse(parser, questions=2, latencies=[50], deadlines=[30_000], clients=[1])
    arguments.folder = temporary_folder()
    print("deadline  latency  clients   scored   p50 ms")
    with serve_scores() as server:
        for deadline_ms in arguments.deadlines:
            measure(arguments, deadline_ms, server)


if __name__ == "__main__":
    main()
