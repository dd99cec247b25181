"""The preset `adr` against the values of ADR-011, and the documented deviations of the defaults."""

import re
from pathlib import Path
from typing import Any

from kosmos_rag.core.config import Settings, flatten
from kosmos_rag.core.config.presets import load
from kosmos_rag.retrieval.signals.apply import build_signal_rules

PAGE = Path(__file__).parents[4] / "docs" / "presets.md"

RECORD: dict[str, Any] = {
    "rag.chunking.strategy": "semantic",
    "rag.chunking.fallback": "recursive",
    "rag.chunking.min_size": 100,
    "rag.chunking.max_size": 1000,
    "rag.chunking.overlap": 50,
    "rag.chunking.breakpoint_threshold": 0.5,
    "rag.chunking.recursive_size": 512,
    "rag.chunking.separators": ["\n\n", "\n", ". ", " "],
    "rag.embedding.model": "sentence-transformers/all-mpnet-base-v2",
    "rag.embedding.dimensions": 768,
    "rag.embedding.batch_size": 32,
    "rag.embedding.normalize": True,
    "rag.retrieval.semantic_weight": 0.7,
    "rag.retrieval.keyword_weight": 0.3,
    "rag.retrieval.fusion": "rrf",
    "rag.retrieval.top_k": 20,
    "rag.retrieval.similarity_threshold": 0.5,
    "rag.reranking.enabled": True,
    "rag.reranking.model": "cross-encoder/ms-marco-MiniLM-L-6-v2",
    "rag.reranking.top_k": 10,
    "rag.reranking.threshold": 0.3,
    "rag.context.max_tokens": 4000,
    "rag.context.include_metadata": True,
    "rag.context.citation_format": "[{index}]",
    "evaluation.targets": {"R@10": 0.8, "RR@10": 0.6},
    "evaluation.alerts": {"R@10": 0.7, "RR@10": 0.5},
}
"""Every value that ADR-011 states and a setting has: its code, its `rag-config.yaml` and its targets."""


def _stated(settings: Settings) -> dict[str, Any]:
    values = dict(flatten(settings))
    return {key: values[key] for key in RECORD}


def test_adr__has_every_value_of_the_record() -> None:
    preset = load("adr", Settings(), validate=build_signal_rules)
    assert _stated(preset.apply(Settings())) == RECORD


def test_adr__states_its_values_itself_and_does_not_inherit_them() -> None:
    preset = load("adr", Settings(), validate=build_signal_rules)
    process = Settings.load(
        overrides={
            "rag.chunking.strategy": "paragraph",
            "rag.chunking.overlap": 7,
            "rag.retrieval.fusion": "score",
            "rag.retrieval.top_k": 3,
            "rag.reranking.enabled": False,
            "rag.context.max_tokens": 100,
        }
    )
    assert _stated(preset.apply(process)) == RECORD


def test_adr__changes_no_setting_that_the_record_does_not_state() -> None:
    defaults = dict(flatten(Settings()))
    preset = dict(flatten(load("adr", Settings(), validate=build_signal_rules).apply(Settings())))
    assert {key for key, value in preset.items() if value != defaults[key]} <= RECORD.keys()


def test_docs__list_each_deviation_of_the_defaults_and_no_other() -> None:
    deviations = {key: value for key, value in _stated(Settings()).items() if value != RECORD[key]}
    page = PAGE.read_text()
    section = page.partition("## The defaults and ADR-011\n")[2].partition("\n## ")[0]
    documented: dict[str, tuple[Any, Any]] = {}
    for row in re.findall(r"^\| (`rag\..*?)\|(.*?)\|(.*?)\|", section, re.MULTILINE):
        names, record, default = (cell.strip().split(", ") for cell in row)
        keys = [name.strip("`") for name in names]
        section_name = keys[0].rpartition(".")[0]
        for name, stated, value in zip(keys, record, default, strict=True):
            key = name if "." in name else f"{section_name}.{name}"
            documented[key] = type(RECORD[key])(stated), type(RECORD[key])(value)
    assert documented == {key: (RECORD[key], value) for key, value in deviations.items()}
