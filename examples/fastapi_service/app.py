"""A FastAPI application that answers questions as the user who is logged in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from kosmos_rag import AsyncEngine
from kosmos_rag.core.errors import DatabaseUnavailable, RequestError

USERS = {
    "token-of-ada": ("ada", ["everyone", "department:hr"]),
    "token-of-ben": ("ben", ["everyone"]),
}
"""Name and principals by token. Replace this by your login."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the engine once for all requests."""
    async with AsyncEngine.open("examples/minilm.yaml") as engine:
        app.state.engine = engine
        yield


app = FastAPI(lifespan=lifespan)


def open_reader(request: Request, credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> Any:
    """Return the tenant as the logged-in user may read it."""
    if credentials.credentials not in USERS:
        raise HTTPException(401, "the token is not valid")
    subject, principals = USERS[credentials.credentials]
    return request.app.state.engine.tenant("acme", principals=principals, subject=subject)


@app.get("/ask")
async def ask(question: str, reader: Annotated[Any, Depends(open_reader)]) -> dict[str, Any]:
    """Answer a question with cited sentences, or refuse."""
    try:
        answer = await reader.answer(question)
    except RequestError as error:
        raise HTTPException(422, str(error)) from None
    except DatabaseUnavailable:
        raise HTTPException(503, "the database is unavailable") from None
    citations = [
        {"marker": citation.marker, "source": citation.source, "location": citation.location}
        for citation in answer.citations
    ]
    return {"text": answer.text, "refused": answer.refused, "citations": citations}
