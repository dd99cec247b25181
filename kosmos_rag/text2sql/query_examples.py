"""Accepted queries, each a question with its SQL.

They are documents of the schemas' collection, so they have its readers, and are found by similarity.
"""

from collections.abc import Iterable

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import DocumentInfo, Passage, SourceDocument, hash_text, storable
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.records import QueryExample, split_columns
from kosmos_rag.text2sql.sql.validate import check_query

KIND = "query_example"
"""Value of the metadata key `kind`."""
MAX_QUESTION_CHARS = 1_000


def create_example(question: str, sql: str, schema: DatabaseSchema) -> QueryExample:
    """Check a query and make it an example.

    Raises:
        RequestError: The question is empty or longer than MAX_QUESTION_CHARS.
        QueryRefused: The query is not one SELECT over the schema.
    """
    text = storable(" ".join(question.split()))
    if not 0 < len(text) <= MAX_QUESTION_CHARS:
        raise RequestError(
            f"the question of an example has {len(text):,} characters; give one of 1 to {MAX_QUESTION_CHARS:,}"
        )
    analysis = check_query(sql, schema).analysis
    return QueryExample(
        # A new query for the same question replaces the old one.
        id=storable(f"{KIND}:{schema.name}.{hash_text(text.casefold())[:16]}"),
        database=schema.name,
        question=text,
        sql=storable(sql.strip().rstrip(";").strip()),
        tables=analysis.tables,
        columns=analysis.columns,
    )


def example_document(example: QueryExample, *, acl: tuple[str, ...]) -> SourceDocument:
    """Return the document of an example. It is found by its question."""
    metadata = {key: value for key, value in example.to_dict().items() if key != "id"}
    return SourceDocument(
        source=example.id,
        data=example.question.encode(),
        title=example.question,
        metadata={"kind": KIND, **metadata},
        acl=acl,
    )


def parse_examples(documents: Iterable[DocumentInfo | Passage], schema: DatabaseSchema) -> list[QueryExample]:
    """Return the examples that still fit a schema.

    In the order of their documents. An example of tables or columns that the reader may not read does not fit.
    """
    return [
        example
        for document in documents
        if document.metadata.get("kind") == KIND and document.metadata["database"] == schema.name
        if _fits(example := _parse(document), schema)
    ]


def _fits(example: QueryExample, schema: DatabaseSchema) -> bool:
    columns = ((schema.table(table), column) for table, column in example.columns)
    return all(map(schema.table, example.tables)) and all(
        table is not None and table.column(column) is not None for table, column in columns
    )


def _parse(document: DocumentInfo | Passage) -> QueryExample:
    metadata = document.metadata
    return QueryExample(
        id=document.source,
        database=metadata["database"],
        question=metadata["question"],
        sql=metadata["sql"],
        tables=tuple(metadata["tables"]),
        columns=split_columns(metadata["columns"], metadata["tables"]),
    )
