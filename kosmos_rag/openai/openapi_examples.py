"""Examples of OpenAI's bodies, by the name of their schema.

Examples of results are made from records.
"""

import uuid
from datetime import UTC, datetime
from typing import Any

from kosmos_rag.apps.http.toolkit.bodies import QUESTION
from kosmos_rag.core.stored_files import file_name
from kosmos_rag.openai.answers import FileCitation
from kosmos_rag.openai.chat import ChatCompletion, ChatMessage, Choice, CompletionUsage
from kosmos_rag.openai.records import (
    FileBatchInfo,
    FileCounts,
    FileInfo,
    FileStatus,
    VectorStoreFileInfo,
    VectorStoreInfo,
)
from kosmos_rag.openai.responses import (
    FileSearchCall,
    OutputMessage,
    OutputText,
    ResponseObject,
    ResponseUsage,
)
from kosmos_rag.openai.shapes import (
    Deleted,
    FileBatch,
    FileContent,
    FileObject,
    TextContent,
    VectorStore,
    VectorStoreFile,
    build_list,
)

_FILE_ID = uuid.UUID("0b5fd2a1-3d0e-4d5e-8b1c-5f0a3f7f6a10")
_NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
_STORE = "vs_5b5fd2a13d0e4d5e8b1c5f0a3f7f6a10"
_ATTRIBUTES = {"year": 2026}
_FILE = FileInfo(
    id=_FILE_ID, filename="leave.md", bytes=52, purpose="assistants", readers=("everyone",), created_at=_NOON
)
_VECTOR_STORE = VectorStoreInfo(
    collection=_STORE,
    name="Handbook",
    description=None,
    metadata={"team": "hr"},
    created_at=_NOON,
    bytes=52,
    counts=FileCounts(completed=1),
)
_VECTOR_STORE_FILE = VectorStoreFileInfo(
    id=_FILE_ID,
    document_id=uuid.UUID("1c5fd2a1-3d0e-5d5e-8b1c-5f0a3f7f6a10"),
    collection=_STORE,
    source=_FILE.source,
    attributes=_ATTRIBUTES,
    bytes=52,
    status=FileStatus.COMPLETED,
    created_at=_NOON,
)
_BATCH = FileBatchInfo(
    id=uuid.UUID("2d5fd2a1-3d0e-4d5e-8b1c-5f0a3f7f6a10"),
    collection=_STORE,
    file_ids=(_FILE_ID,),
    created_at=_NOON,
    counts=FileCounts(completed=1),
)


_TEXT = "All full-time employees receive 20 days of paid annual leave per year."
_ANSWER = f"{_TEXT} [1]"
_MODEL = "writer"
_CITATION = FileCitation(index=len(_TEXT) + 1, file_id=file_name(_FILE_ID), filename="leave.md")
_TOOL = {"type": "file_search", "vector_store_ids": [_STORE]}
_COMPLETION = ChatCompletion(
    id="chatcmpl-8f0e3b1c5a7d4e6f90122334",
    created=int(_NOON.timestamp()),
    model=_MODEL,
    choices=[Choice(message=ChatMessage(content=_ANSWER, annotations=[_CITATION]), finish_reason="stop")],
    usage=CompletionUsage(prompt_tokens=120, completion_tokens=16, total_tokens=136),
)
_RESPONSE = ResponseObject(
    id="resp_8f0e3b1c5a7d4e6f90122334",
    created_at=int(_NOON.timestamp()),
    status="completed",
    model=_MODEL,
    tools=[_TOOL],
    output=[
        FileSearchCall(id="fs_8f0e3b1c5a7d4e6f90122334", queries=[QUESTION]),
        OutputMessage(id="msg_8f0e3b1c5a7d4e6f90122334", content=[OutputText(text=_ANSWER, annotations=[_CITATION])]),
    ],
    usage=ResponseUsage(input_tokens=120, output_tokens=16, total_tokens=136),
)
_VECTOR = [0.6, 0.8]


def _page(shape: Any, record: object) -> dict[str, Any]:
    page = build_list(shape, [record], has_more=False)
    return {**page, "data": [entry.model_dump(mode="json") for entry in page["data"]]}


OPENAI_EXAMPLES: dict[str, Any] = {
    "VectorStoreRequest": {"name": "Handbook", "file_ids": [file_name(_FILE_ID)], "metadata": {"team": "hr"}},
    "VectorStoreChanges": {"name": "Handbook"},
    "Attachment": {"file_id": file_name(_FILE_ID), "attributes": _ATTRIBUTES},
    "AttributesRequest": {"attributes": _ATTRIBUTES},
    "FileBatchRequest": {"file_ids": [file_name(_FILE_ID)], "attributes": _ATTRIBUTES},
    "SearchStoreRequest": {"query": QUESTION, "filters": {"type": "eq", "key": "year", "value": 2026}},
    "SearchPage": {
        "object": "vector_store.search_results.page",
        "search_query": [QUESTION],
        "data": [
            {
                "file_id": file_name(_FILE_ID),
                "filename": "leave.md",
                "score": 0.91,
                "attributes": _ATTRIBUTES,
                "content": [{"type": "text", "text": _TEXT}],
            }
        ],
        "has_more": False,
        "next_page": None,
    },
    "EmbeddingRequest": {"model": "all-mpnet-base-v2", "input": QUESTION},
    "EmbeddingList": {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": _VECTOR}],
        "model": "all-mpnet-base-v2",
        "usage": {"prompt_tokens": 10, "total_tokens": 10},
    },
    "ModelObject": {"id": _MODEL, "object": "model", "created": 0, "owned_by": "kosmos-rag"},
    "ModelList": {
        "object": "list",
        "data": [{"id": _MODEL, "object": "model", "created": 0, "owned_by": "kosmos-rag"}],
    },
    "ChatCompletionRequest": {
        "model": _MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [_TOOL],
    },
    "ChatCompletion": _COMPLETION.model_dump(mode="json"),
    "ResponseRequest": {"model": _MODEL, "input": QUESTION, "tools": [_TOOL]},
    "ResponseObject": _RESPONSE.model_dump(mode="json"),
    "FileObject": FileObject.from_record(_FILE).model_dump(mode="json"),
    "VectorStore": VectorStore.from_record(_VECTOR_STORE).model_dump(mode="json"),
    "VectorStoreFile": VectorStoreFile.from_record(_VECTOR_STORE_FILE).model_dump(mode="json"),
    "FileBatch": FileBatch.from_record(_BATCH).model_dump(mode="json"),
    "Deleted": Deleted(id=file_name(_FILE_ID), object="file").model_dump(mode="json"),
    "FileContent": FileContent(data=[TextContent(text="# Leave")]).model_dump(mode="json"),
    "ListObject_FileObject_": _page(FileObject.from_record, _FILE),
    "ListObject_VectorStore_": _page(VectorStore.from_record, _VECTOR_STORE),
    "ListObject_VectorStoreFile_": _page(VectorStoreFile.from_record, _VECTOR_STORE_FILE),
}
