"""One question on its way: searched for, put together, and in the log, where one is kept, before it is given out."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from kosmos_rag.answering.context import assemble
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.core.config import AuditSettings
from kosmos_rag.core.types import Answer, AnswerSources, Context, Filter, SearchResult, Turn
from kosmos_rag.engine.collections import settings_of_presets
from kosmos_rag.engine.components import Parts
from kosmos_rag.storage.audit.log import Reader, new_id, record, strictest
from kosmos_rag.storage.documents import read_spans
from kosmos_rag.storage.tenants import TenantRef

_Result = TypeVar("_Result", SearchResult, Context, Answer, AnswerSources)


def rules_of(parts: Parts, told: Iterable[Mapping[str, Any]]) -> AuditSettings:
    """Return the strictest of what the presets of what is read set for the log: a hit may be of any of them."""
    process = parts.settings.rag.audit
    return strictest(process, [AuditSettings(**(process.model_dump() | dict(values))) for values in told])


def rules_of_collection(parts: Parts, owner: TenantRef, collection: str | None) -> AuditSettings:
    """Return the rules for the log of one collection, or of all. Raises DatabaseError."""
    presets = settings_of_presets(parts.database.app, owner, collection)
    return rules_of(parts, (values.get("rag", {}).get("audit", {}) for values in presets))


class Asking:
    """Asks one question of a reader, under the settings of what is read. For one call, and one thread."""

    def __init__(self, parts: Parts, reader: Reader) -> None:
        """Look those settings up. Raises ConfigError, DatabaseError."""
        self._parts = parts
        self._reader = reader
        with parts.telemetry.count_errors():
            self._shape = parts.shapes.of(parts.database.app, reader.tenant, reader.collection)
        self._trial = parts.experiments.trial(reader, self._shape.settings, self._shape.version)

    def search(self, question: str, k: int | None, filter: Filter | None) -> SearchResult:  # noqa: A002
        """Return passages."""
        found, rules = self._retrieve(question, k, filter)
        return self._given_out(found, found, filter, rules)

    def context(
        self,
        question: str,
        k: int | None,
        filter: Filter | None,  # noqa: A002
        max_tokens: int | None,
    ) -> Context:
        """Return evidence within a budget."""
        context, rules = self._context(question, k, filter, max_tokens)
        return self._given_out(context, context.retrieval, filter, rules)

    def answer(
        self,
        question: str,
        k: int | None,
        filter: Filter | None,  # noqa: A002
        max_tokens: int | None,
        history: Sequence[Turn],
    ) -> Answer:
        """Return an answer as a whole."""
        stream, rules = self._stream(question, k, filter, max_tokens, history)
        return self._given_out(stream.answer(), stream.sources.context.retrieval, filter, rules)

    def stream(
        self,
        question: str,
        k: int | None,
        filter: Filter | None,  # noqa: A002
        max_tokens: int | None,
        history: Sequence[Turn],
    ) -> AnswerStream:
        """Return an answer as it comes."""
        stream, rules = self._stream(question, k, filter, max_tokens, history)
        if rules.enabled:
            first = self._record(rules, stream.sources)
            stream.on_complete(partial(self._record_end, rules, first, stream.sources))
        self._trial.given_out(stream.sources.context.retrieval, filter)
        return stream

    def _given_out(
        self,
        result: _Result,
        retrieval: SearchResult,
        filter: Filter | None,  # noqa: A002
        rules: AuditSettings,
    ) -> _Result:
        """Return a result once it is in the log, where one is kept. Raises DatabaseError: then nothing is given out."""
        if rules.enabled:
            self._record(rules, result)
        self._trial.given_out(retrieval, filter)
        return result

    def _record(self, rules: AuditSettings, result: _Result, *, follows: uuid.UUID | None = None) -> uuid.UUID:
        return record(self._parts.database.app, self._reader, result, rules, self._trial.version, follows=follows)

    def _record_end(self, rules: AuditSettings, first: uuid.UUID, sources: AnswerSources, answer: Answer) -> None:
        """Write down that an answer was refused by whoever wrote it, after its passages had gone out."""
        if answer.refused and not sources.refused:
            self._record(rules, answer, follows=first)

    def _stream(
        self,
        question: str,
        k: int | None,
        filter: Filter | None,  # noqa: A002
        max_tokens: int | None,
        history: Sequence[Turn],
    ) -> tuple[AnswerStream, AuditSettings]:
        answerer = self._shape.answerer
        searched = answerer.search_query(question, history)
        context, rules = self._context(searched.question, k, filter, max_tokens)
        stream = answerer.stream(question, context, searched.warnings)
        return stream.on_timing(self._parts.telemetry.record_answer), rules

    def _context(
        self,
        question: str,
        k: int | None,
        filter: Filter | None,  # noqa: A002
        max_tokens: int | None,
    ) -> tuple[Context, AuditSettings]:
        retrieval, rules = self._retrieve(question, k, filter)
        parts, reader = self._parts, self._reader
        with parts.telemetry.time_context():
            context = assemble(
                retrieval,
                tokenizer=parts.embedder.tokenizer,
                settings=self._shape.settings.rag.context,
                read_spans=partial(read_spans, parts.database.app, reader.tenant.id, reader.principals),
                max_tokens=max_tokens,
            )
        return context, rules

    def _retrieve(
        self,
        question: str,
        k: int | None,
        filter: Filter | None,  # noqa: A002
    ) -> tuple[SearchResult, AuditSettings]:
        reader = self._reader
        with self._parts.telemetry.count_errors():
            found = self._shape.retriever.search(
                reader.tenant,
                reader.principals,
                question,
                k=k,
                filter=filter,
                collection=reader.collection,
                choose=self._trial.choose,
                failed=self._trial.failed,
            )
        rules = rules_of(self._parts, found.audit)
        retrieval = self._trial.told(found.retrieval)
        if rules.enabled:
            retrieval = replace(retrieval, id=new_id(datetime.now(UTC)))
        self._parts.telemetry.record_search(reader.tenant.name, reader.collection, retrieval)
        return retrieval, rules
