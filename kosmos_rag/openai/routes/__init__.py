"""Routes of OpenAI's interface under `/openai/v1`."""

from http import HTTPStatus

from kosmos_rag.apps.http.toolkit.wing import HttpWing
from kosmos_rag.openai.errors import OPENAI_FORMAT
from kosmos_rag.openai.openapi_examples import OPENAI_EXAMPLES
from kosmos_rag.openai.routes import answers, files, search, vector_stores

_ANSWER = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY)

HTTP = HttpWing(
    routers=(files.router, vector_stores.router, search.router, answers.router),
    examples=OPENAI_EXAMPLES,
    statuses={
        "/openai/v1/embeddings": (HTTPStatus.NOT_FOUND,),
        "/openai/v1/files": (HTTPStatus.NOT_FOUND,),
        "/openai/v1/vector_stores": (HTTPStatus.NOT_FOUND,),
        "/openai/v1/responses": _ANSWER,
        "/openai/v1/chat/completions": _ANSWER,
    },
    error_format=OPENAI_FORMAT,
    uploads=("/openai/v1/files",),
)
