"""Responses and chat completions through the official SDK, whole and as streams."""

from typing import TYPE_CHECKING, Any

import pytest

from kosmos_rag import SourceDocument
from tests.integration.openai.speaking import Speaking
from tests.lazy_imports import import_on_use
from tests.unit.models.llm.chat_server import ChatServer, breaks_off, cuts_off, writes, writes_and_then

if TYPE_CHECKING:
    import openai
else:
    openai = import_on_use("openai")

QUESTION = "How many days of paid annual leave do employees get?"
LEAVE = b"# Leave\n\nAll employees get 20 days of paid annual leave per year.\n"
WRITTEN = "All employees get 20 days of paid annual leave per year [1]."


@pytest.fixture
def store(speaking: Speaking, chat: ChatServer) -> str:
    chat.replies[:] = [writes("All employees get 20 days ", "of paid annual leave ", "per year [1].")]
    client = speaking.client()
    file_id = client.files.create(file=("leave.md", LEAVE), purpose="assistants").id
    store = client.vector_stores.create(name="handbook", file_ids=[file_id]).id
    speaking.work()
    return store


def tool(*stores: str, **options: Any) -> Any:
    return {"type": "file_search", "vector_store_ids": list(stores), **options}


def test_response__cites_files(speaking: Speaking, store: str) -> None:
    client = speaking.client("read", name="reader")
    answer = client.responses.create(
        model="writer", input=QUESTION, tools=[tool(store)], include=["file_search_call.results"], temperature=0
    )
    assert (answer.status, answer.model, answer.output_text) == ("completed", "writer", WRITTEN)
    search, message = answer.output
    assert search.type == "file_search_call"
    assert message.type == "message"
    assert search.results
    (file,) = client.vector_stores.files.list(store)
    assert (search.results[0].file_id, search.results[0].filename) == (file.id, "leave.md")
    (part,) = message.content
    assert part.type == "output_text"
    (citation,) = part.annotations
    assert citation.type == "file_citation"
    assert (citation.file_id, citation.filename, citation.index) == (file.id, "leave.md", WRITTEN.index("[1]"))
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    # What an answer returned goes into the next question.
    conversation: Any = [{"role": "user", "content": QUESTION}, *(entry.model_dump() for entry in answer.output)]
    conversation.append({"role": "user", "content": [{"type": "input_text", "text": QUESTION}]})
    again = client.responses.create(model="writer", input=conversation, tools=[tool(store)])
    assert again.output_text == WRITTEN


def test_response_stream__has_the_events_of_the_sdk(speaking: Speaking, store: str) -> None:
    client = speaking.client("read", name="reader")
    with client.responses.stream(model="writer", input=QUESTION, tools=[tool(store)]) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    assert answer.output_text == WRITTEN
    assert answer.output[1].type == "message"
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    expected = ["response.file_search_call.completed", "response.output_text.delta", "response.output_text.done"]
    assert [kind for kind in dict.fromkeys(kinds) if kind in expected] == expected
    assert "response.output_text.annotation.added" in kinds


def test_chat__answers_and_streams(speaking: Speaking, store: str) -> None:
    client = speaking.client("read", name="reader")
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(
        model="writer", messages=messages, tools=[tool(store)], reasoning_effort="low", verbosity="low"
    )
    assert answer.choices[0].message.content == WRITTEN
    assert answer.choices[0].finish_reason == "stop"
    annotations: Any = answer.choices[0].message.annotations
    assert [(entry.type, entry.filename) for entry in annotations] == [("file_citation", "leave.md")]
    chunks = list(
        client.chat.completions.create(
            model="writer", messages=messages, tools=[tool(store)], stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == WRITTEN
    assert chunks[-1].usage is not None
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_answer__that_was_cut_off_says_so(speaking: Speaking, store: str, chat: ChatServer) -> None:
    chat.replies[:] = [writes_and_then(cuts_off, "All employees get 20 days ")]
    client = speaking.client("read", name="reader")
    question: Any = {"model": "writer", "input": QUESTION, "tools": [tool(store)]}
    answer = client.responses.create(**question)
    assert answer.incomplete_details is not None
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output[1].status == "incomplete"
    with client.responses.stream(**question) as stream:
        assert [event.type for event in stream][-1] == "response.incomplete"
    chat_question: Any = {
        "model": "writer",
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [tool(store)],
    }
    assert client.chat.completions.create(**chat_question).choices[0].finish_reason == "length"
    chunks = list(client.chat.completions.create(**chat_question, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"


def test_several_stores__are_searched_and_no_other(speaking: Speaking, store: str) -> None:
    """An answer from named vector stores has no evidence of other collections."""
    client = speaking.client("read", name="reader")
    engine = speaking.running.service.engine.sync_engine
    for name, days in (("b", b"30"), ("c", b"40")):
        text = b"# Leave\n\nAll managers get " + days + b" days of paid annual leave per year.\n"
        engine.tenant(speaking.tenant_name, collection=name).ingest(SourceDocument(source=f"{name}.md", data=text))
    answer = client.responses.create(
        model="writer", input=QUESTION, tools=[tool(store, "b")], include=["file_search_call.results"]
    )
    search = answer.output[0]
    assert search.type == "file_search_call"
    assert {result.filename for result in search.results or ()} == {"leave.md", "b.md"}
    # Without a tool it is the default collection of the key.
    key = speaking.running.key("c", "read", tenant_name=speaking.tenant_name, default_collection="c")
    defaulted = speaking.with_key(key).responses.create(
        model="writer", input=QUESTION, include=["file_search_call.results"]
    )
    search = defaulted.output[0]
    assert search.type == "file_search_call"
    assert {result.filename for result in search.results or ()} == {"c.md"}
    both = speaking.with_key(key).responses.create(
        model="writer", input=QUESTION, tools=[tool(store, "b")], include=["file_search_call.results"]
    )
    search = both.output[0]
    assert search.type == "file_search_call"
    assert {result.filename for result in search.results or ()} == {"leave.md", "b.md"}


def test_bad_questions__are_refused(speaking: Speaking, store: str) -> None:
    client = speaking.client("read", name="reader")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="gpt-5", input=QUESTION)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="writer", input=QUESTION, tools=[tool("vs_none")])
    refused: list[dict[str, Any]] = [
        {"tools": [{"type": "web_search"}]},
        {"tools": [tool(store, ranking_options={"score_threshold": 0.5})]},
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"input": [{"role": "assistant", "content": "I know."}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
    ]
    for body in refused:
        with pytest.raises(openai.BadRequestError):
            client.responses.create(**{"model": "writer", "input": QUESTION, **body})
    complete: Any = client.chat.completions.create
    for options in (
        {"n": 2},
        {"logprobs": True},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]},
    ):
        with pytest.raises(openai.BadRequestError):
            complete(**{"model": "writer", "messages": [{"role": "user", "content": QUESTION}], **options})


def test_broken_model__is_an_error_of_the_sdk(speaking: Speaking, store: str, chat: ChatServer) -> None:
    client = speaking.client("read", name="reader")
    messages: Any = [{"role": "user", "content": QUESTION}]
    chat.replies[:] = [breaks_off]
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="writer", messages=messages, tools=[tool(store)])
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="writer", messages=messages, tools=[tool(store)], stream=True))
    events = list(client.responses.create(model="writer", input=QUESTION, tools=[tool(store)], stream=True))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    failed: Any = events[-1]
    assert (failed.response.status, failed.response.error.code) == ("failed", "server_error")


def test_service_without_a_language_model__says_what_to_set(
    speaking: Speaking, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = speaking.running.service.settings
    monkeypatch.setattr(settings.rag.answer, "__dict__", {**settings.rag.answer.__dict__, "mode": "extractive"})
    client = speaking.client("read", name="reader")
    with pytest.raises(openai.BadRequestError, match="generative"):
        client.responses.create(model="writer", input=QUESTION, tools=[tool(store)])
