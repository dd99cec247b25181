"""Answer a question with rows of a PostgreSQL database: SHOP_URL is its address."""

import os
import sys

from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.text2sql.answer import answer_question
from kosmos_rag.text2sql.catalog.sources import from_database
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.records import SqlAnswer
from kosmos_rag.text2sql.sql.runner import QueryRunner

TENANT, COLLECTION, DATABASE = "acme", "schema", "shop"


def store_schema(tenant: Tenant, url: str) -> SchemaGrounding:
    """Store the schema of the database, or what has changed of it."""
    if COLLECTION not in {collection.name for collection in tenant.collections.infos()}:
        tenant.collections.create(COLLECTION, preset="schema")
    grounding = SchemaGrounding(tenant)
    grounding.build(from_database(url, name=DATABASE, schemas=["shop"]))
    return grounding


def ask(tenant: Tenant, grounding: SchemaGrounding, question: str) -> SqlAnswer:
    """Ground the question, have the model write SQL, check it, and run it."""
    return answer_question(tenant, grounding, QueryRunner(tenant, COLLECTION), question, database=DATABASE)


def show(answer: SqlAnswer) -> None:
    """Print the query, its rows, and the parts of the schema that it uses."""
    for attempt in answer.attempts:
        print(attempt.sql, f"-- refused: {attempt.error}" if attempt.error else "", sep="\n")
    if answer.result is not None:
        print(*answer.result.columns, sep=" | ")
        for row in answer.result.rows:
            print(*row, sep=" | ")
        print("from", ", ".join(citation.id for citation in answer.citations))


def main() -> None:
    """Answer the question of the command line."""
    enabled = {"text2sql.databases": {f"{TENANT}/{COLLECTION}/{DATABASE}": "SHOP_URL"}}
    with Engine.open(Settings.load("examples/minilm.yaml", overrides=enabled)) as engine:
        tenant = engine.tenant(TENANT, collection=COLLECTION)
        show(ask(tenant, store_schema(tenant, os.environ["SHOP_URL"]), sys.argv[1]))


if __name__ == "__main__":
    main()
