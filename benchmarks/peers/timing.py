"""Time every system: the same questions in the same order, after a warm-up.

One question runs at a time. Children run in an environment without the library, so nothing here imports it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.exchange import Corpus, Row

Whole = Callable[[str], list[str]]
"""Answers a question with the ids of its chunks, best first."""
Search = Callable[[str, NDArray[np.float32]], list[str]]
"""Answers a question whose vector is known."""

K = 30
"""Chunks asked for: enough for ten documents."""
DEPTH = 100
"""Candidates of each retriever, where a system has such a setting."""
_WARM = 20


def measure(corpus: Corpus, *, way: str, plan: str, whole: Whole, search: Search, rounds: int) -> Row:
    """Ask all questions `rounds` times, with and without embedding them."""
    calls = [(question,) for question in corpus.questions.values()]
    return Row(
        way=way,
        plan=plan,
        rankings={key: whole(question) for key, question in corpus.questions.items()},
        whole=time_calls(whole, calls, rounds),
        search=time_calls(search, list(zip(corpus.questions.values(), corpus.question_vectors, strict=True)), rounds),
    )


def time_in_turn(answers: Mapping[str, Sequence[Callable[[], object]]], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each call: question by question in turn, after a warm-up.

    What is compared meets the machine in the same moments, whose speed may vary by half from minute to minute.
    """
    times: dict[str, list[float]] = {way: [] for way in answers}
    for calls in answers.values():
        for call in calls[:_WARM]:
            call()
    for _ in range(rounds):
        for calls_of_question in zip(*answers.values(), strict=True):
            for way, call in zip(answers, calls_of_question, strict=True):
                began = time.perf_counter()
                call()
                times[way].append((time.perf_counter() - began) * 1000)
    return times


def time_calls(answer: Callable[..., object], calls: Sequence[tuple[Any, ...]], rounds: int) -> list[float]:
    """Return the milliseconds of each call: `rounds` for each of the arguments, after a warm-up."""
    for arguments in calls[:_WARM]:
        answer(*arguments)
    times = []
    for arguments in [*calls] * rounds:
        began = time.perf_counter()
        answer(*arguments)
        times.append((time.perf_counter() - began) * 1000)
    return times
