"""The groundings of the callers of a service."""

import threading

from cachetools import LRUCache

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.text2sql.answer import answer_question
from kosmos_rag.text2sql.bodies import (
    DatabaseQuery,
    DatabaseQuestion,
    ExampleRequest,
    GroundingRequest,
)
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import GroundingResult
from kosmos_rag.text2sql.records import QueryExample, QueryExamples, QueryResult, SqlAnswer
from kosmos_rag.text2sql.sql.runner import QueryRunner

_CACHE_SIZE = 64


class GroundingCache:
    """LRU cache of `SchemaGrounding` per caller and collection.

    Building one reads all schemas. Each method takes the tenant, opened with the caller's principals, and the caller,
    who is part of the cache's key.
    """

    def __init__(self) -> None:
        self._cache: LRUCache[tuple[str, ...], SchemaGrounding] = LRUCache(maxsize=_CACHE_SIZE)
        self._lock = threading.Lock()

    def search(self, tenant: Tenant, identity: Identity, query: GroundingRequest) -> GroundingResult:
        """Ground a question in the schemas that the caller may read.

        Raises KosmosError, as `SchemaGrounding.ask`.
        """
        return self._get_grounding(tenant, identity, query.collection).ask(
            query.question, query.k, database=query.database, tables=query.tables, max_tokens=query.max_tokens
        )

    def query(self, tenant: Tenant, identity: Identity, query: DatabaseQuery) -> QueryResult:
        """Run a query on a database whose schema the caller may read.

        Raises KosmosError, as `QueryRunner.run`.
        """
        runner = QueryRunner(tenant, query.collection)
        runner.require(query.database)
        schema = self._get_grounding(tenant, identity, query.collection).schema(query.database)
        return runner.run(schema, query.sql, query.parameters)

    def answer(self, tenant: Tenant, identity: Identity, question: DatabaseQuestion) -> SqlAnswer:
        """Answer a question with rows.

        Raises KosmosError, as `answer_question`.
        """
        grounding = self._get_grounding(tenant, identity, question.collection)
        runner = QueryRunner(tenant, question.collection)
        return answer_question(tenant, grounding, runner, question.question, database=question.database)

    def add_example(self, tenant: Tenant, identity: Identity, example: ExampleRequest) -> QueryExample:
        """Store an accepted query.

        Raises KosmosError, as `SchemaGrounding.add_example`.
        """
        return self._get_grounding(tenant, identity, example.collection).add_example(
            example.question, example.sql, database=example.database, acl=tuple(example.readers)
        )

    def examples(self, tenant: Tenant, identity: Identity, collection: str) -> QueryExamples:
        """List the accepted queries that the caller may read.

        Raises DatabaseError.
        """
        return QueryExamples(examples=tuple(self._get_grounding(tenant, identity, collection).examples()))

    def _get_grounding(self, tenant: Tenant, identity: Identity, collection: str) -> SchemaGrounding:
        # The subject is in the key because the audit log names it.
        key = (identity.tenant, identity.subject, collection, *identity.principals)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = SchemaGrounding(tenant)
            return self._cache[key]
