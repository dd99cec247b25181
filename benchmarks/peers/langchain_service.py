"""A plain FastAPI service around LangChain's retriever over PGVectorStore, as in its guides.

    python -m benchmarks.peers.langchain_service --url URL --texts FILE --port PORT

`benchmarks.service` compares with it. It has one route, no identities and no limits, and runs in the peers'
environment.
"""

import argparse
import json
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from langchain_postgres import PGEngine, PGVectorStore
from pydantic import BaseModel

from benchmarks.peers.ingest_langchain import Model

K = 20


class SearchRequest(BaseModel):
    """A question."""

    question: str


class SearchResponse(BaseModel):
    """Texts, best first."""

    texts: list[str]


def _store(url: str, texts: list[str]) -> PGVectorStore:
    model = Model()
    engine = PGEngine.from_connection_string(url.replace("postgresql://", "postgresql+psycopg://", 1))
    engine.init_vectorstore_table("chunks", len(model.embed_query("warm")))
    store = PGVectorStore.create_sync(engine, model, "chunks")
    store.add_texts(texts)
    return store


def create_app(store: PGVectorStore) -> FastAPI:
    """Return the service."""
    app = FastAPI()
    retriever = store.as_retriever(search_kwargs={"k": K})

    @app.get("/readyz")
    def ready() -> str:
        return "ok"

    @app.post("/v1/search")
    def search(query: SearchRequest) -> SearchResponse:
        return SearchResponse(texts=[document.page_content for document in retriever.invoke(query.question)])

    return app


def main() -> None:
    """Store the texts, and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    texts: list[str] = json.loads(arguments.texts.read_text(encoding="utf-8"))
    uvicorn.run(create_app(_store(arguments.url, texts)), port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
