"""The keys of the configuration, read off the models."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kosmos_rag.core.section import Section

RENAMED: Mapping[str, str] = {
    "guard": "monitor",
    "guard.act": "monitor.auto_repair",
    "guard.every_s": "monitor.interval_s",
    "guard.permission_every_s": "monitor.isolation_interval_s",
    "guard.samples": "monitor.samples_per_run",
    "indexes.lexical_tail_chunks": "indexes.unsegmented_chunks",
    "rag.access.by": "rag.access.department_from",
    "rag.answer.model_tokens": "rag.answer.max_output_tokens",
    "rag.answer.passages": "rag.answer.max_passages",
    "rag.answer.sentences": "rag.answer.max_sentences",
    "rag.answer.writer": "rag.answer.mode",
    "rag.retrieval.cached_questions": "rag.retrieval.query_embedding_cache",
    "rag.retrieval.cached_results": "rag.retrieval.result_cache",
    "rag.retrieval.depth": "rag.retrieval.candidates",
    "rag.retrieval.feedback": "rag.retrieval.prf_weight",
    "service.body_kb": "service.max_body_kb",
    "service.metrics_port": "service.health_port",
    "service.streams": "service.max_streams",
    "service.wait_s": "service.queue_timeout_s",
}
"""Keys and sections that were renamed, by their old name; used in the message about an unknown key only."""


def find_section_model(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a section, or None for a plain key."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def iter_keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every dotted key with its field, in order of declaration."""
    for name, field in model.model_fields.items():
        section = find_section_model(field)
        if section is None:
            yield prefix + name, field
        else:
            yield from iter_keys(section, f"{prefix}{name}.")


def iter_documented_keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys as `iter_keys`, without those that a section has in common with another one."""
    for name, field in model.model_fields.items():
        section = find_section_model(field)
        if section is not None:
            yield from iter_documented_keys(section, f"{prefix}{name}.")
        elif not issubclass(model, Section) or model.key_source is None or name in model.__annotations__:
            yield prefix + name, field


def nearest_key(model: type[BaseModel], key: str) -> str | None:
    """Return the key or section with the most similar name.

    The result is None if no name is similar.
    """
    names = {name: None for name, _ in iter_keys(model)}
    sections = {name.rpartition(".")[0]: None for name in names} | dict.fromkeys(model.model_fields)
    return next(iter(get_close_matches(key.lower(), [*names, *sections], n=1)), None)


def find_renamed_key(key: str) -> str | None:
    """Return the new name of a renamed key or section; else None.

    A key of a renamed section counts as renamed.
    """
    if key in RENAMED:
        return RENAMED[key]
    section, dot, name = key.rpartition(".")
    new_section = find_renamed_key(section) if dot else None
    return None if new_section is None else f"{new_section}.{name}"


def nest(values: dict[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into nested mappings."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *path, name = key.split(".")
        group = nested
        for part in path:
            group = group.setdefault(part, {})
        group[name] = value
    return nested
