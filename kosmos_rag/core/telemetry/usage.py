"""What work consumes, and the account that it is charged to.

The engine charges each call to an account, and what consumes something records it here. Without an account nothing is
recorded. Other threads continue the account by `bind`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Quantity(StrEnum):
    """What is counted."""

    QUESTIONS = "questions"
    ANSWERS = "answers"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    EMBEDDED_TOKENS = "embedded_tokens"
    RERANKED_PASSAGES = "reranked_passages"
    DOCUMENTS = "documents"
    BYTES = "bytes"
    PARSING_SECONDS = "parsing_seconds"
    OCR_SECONDS = "ocr_seconds"
    STORED_CHUNKS = "stored_chunks"
    STORED_BYTES = "stored_bytes"


Account: TypeAlias = Callable[[Quantity, float, str | None], None]
"""Adds to what one reader uses of one tenant and collection: the amount of a quantity, and the model that took part.

It is fast, raises nothing, and is thread-safe."""

_account: ContextVar[Account | None] = ContextVar("kosmos_usage_account", default=None)


def current_account() -> Account | None:
    """Return the account that is charged now; None without one."""
    return _account.get()


@contextmanager
def charge_to(account: Account | None) -> Iterator[None]:
    """Charge what the block consumes to an account."""
    token = _account.set(account)
    try:
        yield
    finally:
        _account.reset(token)


def record(quantity: Quantity, amount: float, model: str | None = None) -> None:
    """Charge an amount to the current account, if there is one.

    Args:
        model: Name of the model that took part; None without one.
    """
    account = _account.get()
    if account is not None and amount > 0:
        account(quantity, amount, model)


def bind(task: Callable[P, R]) -> Callable[P, R]:
    """Return a task that charges the current account in whatever thread it runs."""
    account = _account.get()
    if account is None:
        return task

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with charge_to(account):
            return task(*args, **kwargs)

    return run
