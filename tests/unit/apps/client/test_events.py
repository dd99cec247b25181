"""The events of an answer, in whatever pieces they come."""

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.apps.client.events import EventDecoder
from kosmos_rag.apps.errors import ServiceUnreachable
from kosmos_rag.apps.http.examples import EXAMPLES
from kosmos_rag.apps.http.toolkit.errors import problem_document
from kosmos_rag.apps.problem_details import PROBLEMS
from kosmos_rag.core import errors
from kosmos_rag.core.types import AnswerDone, AnswerEvent, AnswerPiece, AnswerSources

_CITED = ("sentences", "report")
_ANSWER = EXAMPLES["Answer"]
_SOURCES = EXAMPLES["AnswerSources"]
_DONE = {name: value for name, value in _ANSWER.items() if name not in (*_CITED, "context")}


def _event(name: str, result: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(result, ensure_ascii=False)}\n\n".encode()


STREAM = b"".join(
    [
        _event("sources", _SOURCES),
        b": still here\n\n",
        _event("token", {"text": "20\u2028days\x85ä"}),
        _event("citations", {name: _ANSWER[name] for name in _CITED}),
        _event("done", _DONE),
    ]
)


def _read(pieces: Iterable[bytes]) -> list[AnswerEvent]:
    decoder = EventDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    decoder.finish()
    return events


def test_events__are_read_from_one_piece() -> None:
    sources, piece, outcome = _read([STREAM])
    assert isinstance(sources, AnswerSources)
    assert isinstance(outcome, AnswerDone)
    assert piece == AnswerPiece(text="20\u2028days\x85ä")
    assert outcome.answer.text == _ANSWER["text"]
    assert outcome.answer.sentences[0].citation == sources.context.passages[0].citation
    assert str(sources.context.retrieval.id) == _ANSWER["context"]["retrieval"]["retrieval_id"]


@given(cuts=st.sets(st.integers(min_value=0, max_value=len(STREAM)), max_size=40))
def test_events__are_the_same_however_they_are_cut(cuts: set[int]) -> None:
    ends = [0, *sorted(cuts), len(STREAM)]
    events = _read(STREAM[start:end] for start, end in pairwise(ends))
    # Scores that are not told are NaN, which is equal to nothing.
    assert repr(events) == repr(_read([STREAM]))


def test_error__is_raised_as_the_library_raises_it() -> None:
    result = problem_document(PROBLEMS[errors.ModelError], "the model failed")
    with pytest.raises(errors.ModelError, match="the model failed"):
        _read([_event("sources", _SOURCES), _event("error", result)])


@pytest.mark.parametrize(
    ("stream", "result"),
    [
        (STREAM[: STREAM.index(b"event: done")], "ended early"),
        (b"", "ended early"),
        (_event("done", {"text": "20 days"}), "cannot be parsed"),
        (b"event: sources\ndata: {\n\n", "cannot be parsed"),
        (b"nothing\n\n", "cannot be parsed"),
    ],
)
def test_anything_else__is_no_answer(stream: bytes, result: str) -> None:
    with pytest.raises(ServiceUnreachable, match=result):
        _read([stream])


def test_client__needs_no_engine() -> None:
    heavy = {
        "kosmos_rag.engine",
        "kosmos_rag.retrieval",
        "kosmos_rag.storage",
        "kosmos_rag.models",
        "kosmos_rag.core.config",
        "psycopg",
        "torch",
        "fastapi",
    }
    code = f"import sys, kosmos_rag.apps.client; print(sorted({heavy!r} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


def test_client__imports_httpx_and_pydantic_alone() -> None:
    """Of other packages only what these two need can be imported."""
    allowed = {
        *("httpx", "httpcore", "h11", "anyio", "sniffio", "certifi", "idna"),
        *("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),
    }
    code = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name[0] != "_" and name.partition(".")[0] not in {{*sys.stdlib_module_names, "kosmos_rag", *{allowed!r}}}:
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
from kosmos_rag.apps.client import AsyncClient, Client
Client("http://127.0.0.1:8000", "kosmos.acme.key").close()
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
