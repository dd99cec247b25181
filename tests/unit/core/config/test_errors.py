"""Every fault of a configuration: one line with the key, the value, where it came from and what to do."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kosmos_rag.core.config import ChunkingSettings, RetrievalSettings, Settings, flatten
from kosmos_rag.core.config.keys import RENAMED, iter_keys
from kosmos_rag.core.errors import ConfigError

FILE = Path("rag-config.yaml")


def load_error(path: Path | None = None, **arguments: Any) -> str | None:
    """The message of the error, None where there is none; any other exception passes."""
    try:
        Settings.load(path, **arguments)
    except ConfigError as error:
        return str(error)
    return None


def load_message(text: str | None = None, **arguments: Any) -> str:
    if text is not None:
        FILE.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Settings.load(**arguments)
    message = str(caught.value)
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rag: {retrieval: {top_k: abc}}",
            'rag.retrieval.top_k is "abc" (file rag-config.yaml): it must be a valid integer and not text',
        ),
        (
            "rag: {retrieval: {top_k: '5'}}",
            'rag.retrieval.top_k is "5" (file rag-config.yaml): it must be a valid',
        ),
        (
            "rag: {retrieval: {top_k: true}}",
            "rag.retrieval.top_k is true (file rag-config.yaml): it must be a valid",
        ),
        (
            "rag: {retrieval: {top_k: 1.5}}",
            "rag.retrieval.top_k is 1.5 (file rag-config.yaml): it must be a valid",
        ),
        (
            "rag: {retrieval: {top_k: null}}",
            "rag.retrieval.top_k is null (file rag-config.yaml): it must be a valid",
        ),
        (
            "rag: {retrieval: {top_k: 0}}",
            "rag.retrieval.top_k is 0 (file rag-config.yaml): it must be greater than",
        ),
        ("rag: {retrieval: {candidates: 9999999999}}", "it must be less than or equal to 2147483647"),
        (
            "rag: {retrieval: {rrf_k: [1]}}",
            "rag.retrieval.rrf_k is [1] (file rag-config.yaml): it must be a valid int",
        ),
        (
            "rag: {retrieval: {similarity_threshold: 1.1}}",
            "it must be less than or equal to 1, the default is 0.0",
        ),
        (
            "rag: {retrieval: {keyword_weight: .inf}}",
            "keyword_weight is Infinity (file rag-config.yaml): it must be a",
        ),
        (
            "rag: {retrieval: {keyword_weight: .nan}}",
            "rag.retrieval.keyword_weight is NaN (file rag-config.yaml): it",
        ),
        ("rag: {retrieval: {keyword_weight: true}}", "it must be a valid number, the default is 0.5"),
        ("rag: {reranking: {enabled: 1}}", "it must be a valid boolean, the default is true"),
        ("rag: {reranking: {threshold: .nan}}", "rag.reranking.threshold is NaN"),
        ("rag: {embedding: {dimensions: 4001}}", "it must be less than or equal to 4000, the default is 768"),
        (
            "rag: {chunking: {strategy: clever}}",
            "it must be 'semantic', 'recursive', 'markdown', 'paragraph' or 'hierarchical'",
        ),
        ("rag: {chunking: {fallback: semantic}}", "it must be 'recursive', the default is \"recursive\""),
        (
            "rag: {chunking: {separators: ['a', 5]}}",
            'rag.chunking.separators is ["a", 5] (file rag-config.yaml): it',
        ),
        ("rag: {retrieval: {rrf_k: 1e3}}", "it must be a valid integer and not text, the default is 5"),
        ("rag: {retrieval: {keyword_weight: 1e-3}}", "it must be a valid number and not text"),
        (
            "rag: {context: {citation_format: [{index}]}}",
            "it must be a valid string in quotes, the default is",
        ),
        (f"rag: {{retrieval: {{top_k: 0x{'f' * 5000}}}}}", "top_k is a number of thousands of digits"),
        ("rag: {chunking: {separators: []}}", "it must have at least 1 item"),
        ("rag: {chunking: {separators: a}}", "it must be a list"),
        ("ingestion: {language: English}", "it must match pattern '^[a-z_][a-z0-9_]{0,62}$', the default is"),
        ("observability: {log_level: debug}", "it must be 'DEBUG', 'INFO'"),
        (
            "database: {url: 'mysql://h/d'}",
            "it must be embedded, or start with postgresql:// or postgres://, the",
        ),
        (
            "database: {url: 'postgres://h/d', admin_url: h}",
            'database.admin_url is "h" (file rag-config.yaml): it must start with postgresql:// or postgres://',
        ),
        ("database: {data_dir: ''}", 'database.data_dir is "" (file rag-config.yaml): it must name a folder'),
        ("database: {data_dir: 5}", "database.data_dir is 5 (file rag-config.yaml): it must name a folder"),
        ("database: {data_dir: '~no-such-user/x'}", "it must name a folder of a user that exists"),
        ("database: {connect_timeout_s: 0}", "it must be greater than 0, the default is 10.0"),
    ],
)
def test_value__malformed_names_key_value_origin_and_remedy(text: str, message: str) -> None:
    assert message in load_message(text)


@pytest.mark.parametrize(
    "template", ["", "[1]", "{}", "{index", "{index} {title}", "{index.real}", "{index:x{y}}", "{0}"]
)
def test_citation_format__without_exactly_the_index_is_refused(template: str) -> None:
    message = load_message(overrides={"rag.context.citation_format": template})
    assert message.startswith("rag.context.citation_format is ")
    assert "(argument): it must contain {index} and no other field" in message


@pytest.mark.parametrize("template", ["{index}", "[{index:02d}]", "{{{index}}}", "({index}, {index})"])
def test_citation_format__with_the_index_is_taken(template: str) -> None:
    settings = Settings.load(overrides={"rag.context.citation_format": template})
    assert settings.rag.context.citation_format == template


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"rag.chunking.overlap": 512},
            "overlap is 512 (argument) and rag.chunking.recursive_size is 512 (default): overlap must be",
        ),
        (
            {"rag.chunking.overlap": 300, "rag.chunking.max_size": 300, "rag.chunking.recursive_size": 200},
            "rag.chunking.overlap is 300 (argument) and rag.chunking.max_size is 300 (argument):",
        ),
        (
            {"rag.chunking.min_size": 1000},
            "rag.chunking.min_size is 1000 (argument) and rag.chunking.max_size is 1000 (default): min",
        ),
        (
            {"rag.chunking.recursive_size": 1001},
            "rag.chunking.recursive_size is 1001 (argument) and rag.chunking.max_size is 1000 (default): ",
        ),
        (
            {"rag.retrieval.semantic_weight": 0, "rag.retrieval.keyword_weight": 0},
            "rag.retrieval.semantic_weight is 0 (argument) and rag.retrieval.keyword_weight is 0 (argument):",
        ),
        (
            {"rag.retrieval.candidates": 19},
            "rag.retrieval.candidates is 19 (argument) and rag.retrieval.top_k is 20 (default): candidates",
        ),
        (
            {"models.backend": "onnx", "models.device": "cuda"},
            'models.backend is "onnx" (argument) and models.device is "cuda" (argument): onnx runs on the CPU',
        ),
        (
            {"database.worker_url": "postgresql://w@h/d"},
            'worker_url is "postgresql://w@h/d" (argument) and database.url is "embedded" (default): the',
        ),
        (
            {"database.admin_url": "postgresql://w@h/d"},
            'admin_url is "postgresql://w@h/d" (argument) and database.url is "embedded" (default): ',
        ),
    ],
)
def test_values__impossible_together_are_both_named(values: dict[str, Any], message: str) -> None:
    assert message in load_message(overrides=values)


def test_values__at_the_edge_of_a_conflict_are_taken() -> None:
    chunking = {"min_size": 511, "max_size": 512, "recursive_size": 512, "overlap": 511}
    values = {f"rag.chunking.{key}": value for key, value in chunking.items()}
    settings = Settings.load(overrides=values | {"rag.retrieval.candidates": 20, "rag.retrieval.keyword_weight": 0})
    assert settings.rag.chunking.overlap == 511
    assert settings.rag.retrieval.candidates == 20


@pytest.mark.parametrize(
    ("model", "dimensions"),
    [
        ("sentence-transformers/all-mpnet-base-v2", 768),
        ("all-mpnet-base-v2", 768),
        ("sentence-transformers/all-MiniLM-L6-v2", 384),
        ("packaged:all-MiniLM-L6-v2", 384),
        ("sentence-transformers/multi-qa-mpnet-base-dot-v1", 768),
        ("BAAI/bge-small-en-v1.5", 384),
        ("BAAI/bge-base-en-v1.5", 768),
        ("BAAI/bge-large-en-v1.5", 1024),
    ],
)
def test_dimensions__of_a_known_model_must_be_its_own(model: str, dimensions: int) -> None:
    values = {"rag.embedding.model": model, "rag.embedding.dimensions": dimensions}
    assert Settings.load(overrides=values).rag.embedding.dimensions == dimensions
    message = load_message(overrides=values | {"rag.embedding.dimensions": 512})
    assert "rag.embedding.dimensions is 512 (argument) and rag.embedding.model is " in message
    assert f"that model gives {dimensions} dimensions: set dimensions to {dimensions}" in message


def test_dimensions__of_an_unknown_model_are_believed() -> None:
    values = {"rag.embedding.model": "/models/ours", "rag.embedding.dimensions": 512}
    assert Settings.load(overrides=values).rag.embedding.dimensions == 512


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rag: {retrieval: {topk: 5}}",
            "rag.retrieval.topk (file rag-config.yaml) is not a key of the configuration: did you mean",
        ),
        ("guard: {}", "guard (file rag-config.yaml) is not a key of the configuration: it was renamed to monitor"),
        (
            "guard: {samples: 40, keep_questions: true}",
            "it was renamed to monitor.samples_per_run; guard.keep_questions (file rag-config.yaml) is not a key",
        ),
        ("rag: {retrieval: {feedback: 0.2}}", "it was renamed to rag.retrieval.prf_weight"),
        ("rag: {retrieval: {depth: 50}}", "it was renamed to rag.retrieval.candidates"),
        ("rag: {retrieval: {cached_questions: 5}}", "it was renamed to rag.retrieval.query_embedding_cache"),
        ("rag: {retrieval: {cached_results: 5}}", "it was renamed to rag.retrieval.result_cache"),
        ("indexes: {lexical_tail_chunks: 5}", "it was renamed to indexes.unsegmented_chunks"),
        ("rga: {}", "rga (file rag-config.yaml) is not a key of the configuration: did you mean rag?"),
        ("rag: {retreival: {}}", "did you mean rag.retrieval?"),
        ("rag: {max_tokens: 5}", "did you mean rag.context.max_tokens?"),
        ("models: {zzz: 1}", "known here are backend, device, dtype, cache_dir, offline"),
        ("models: {1: 1}", "models.1 (file rag-config.yaml) is not a key"),
        ("models: {? [a, b] : 1}", "rag-config.yaml, line 1: "),
        ("models: cpu", 'models is "cpu" (file rag-config.yaml): it must be a mapping of backend, device'),
        ("rag: {retrieval: [1]}", "rag.retrieval is [1] (file rag-config.yaml): it must be a mapping of"),
        (
            "models: {device: {2020-01-01: [a]}}",
            'models.device is {"2020-01-01": ["a"]} (file rag-config.yaml): it must',
        ),
    ],
)
def test_key__unknown_or_misplaced_is_named_with_the_nearest(text: str, message: str) -> None:
    assert message in load_message(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "KOSMOS_FOO",
            "1",
            "foo (environment KOSMOS_FOO) is not a key of the configuration: known here are rag, database",
        ),
        ("KOSMOS_RAG_RETRIEVAL_TOP_K", "5", "did you mean KOSMOS_RAG__RETRIEVAL__TOP_K?"),
        ("KOSMOS_RAG__RETRIEVAL__TOPK", "5", "did you mean KOSMOS_RAG__RETRIEVAL__TOP_K?"),
        ("KOSMOS_GUARD__EVERY_S", "5", "it was renamed to KOSMOS_MONITOR__INTERVAL_S"),
        ("KOSMOS_INDEXES__LEXICAL_TAIL_CHUNKS", "5", "it was renamed to KOSMOS_INDEXES__UNSEGMENTED_CHUNKS"),
        ("KOSMOS_DATABSE__URL", "x", "did you mean KOSMOS_DATABASE__URL?"),
        ("KOSMOS_RAG__", "x", "rag. (environment KOSMOS_RAG__) is not a key"),
        ("KOSMOS_RAG", "5", "rag is 5 (environment KOSMOS_RAG): it must be a mapping of preset, chunking"),
        ("KOSMOS_RAG", "[" * 20_000, "(environment KOSMOS_RAG): it must be JSON"),
        ("KOSMOS_RAG", "{", 'rag is "{" (environment KOSMOS_RAG): it must be JSON'),
        (
            "KOSMOS_RAG__RETRIEVAL__TOP_K",
            "many",
            'top_k is "many" (environment KOSMOS_RAG__RETRIEVAL__TOP_K): it must',
        ),
        (
            "KOSMOS_RAG__RETRIEVAL__TOP_K",
            "",
            'top_k is "" (environment KOSMOS_RAG__RETRIEVAL__TOP_K): it must',
        ),
        ("KOSMOS_RAG__RETRIEVAL__TOP_K__X", "5", "(environment KOSMOS_RAG__RETRIEVAL__TOP_K__X): it must"),
        (
            "KOSMOS_RAG__CHUNKING__SEPARATORS",
            "a,b",
            'rag.chunking.separators is "a,b" (environment KOSMOS_RAG__CHUN',
        ),
        ("KOSMOS_DATABASE__DATA_DIR", "", "database.data_dir is"),
    ],
)
def test_environment__fault_names_the_variable(
    name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    assert message in load_message()


@pytest.mark.parametrize("key", ["rag.retrieval.topk", "rag.retrieval", "top_k", ""])
def test_arguments__unknown_key_is_refused(key: str) -> None:
    assert f"{key} (argument) is not a key of the configuration: " in load_message(overrides={key: 5})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rag:\n  retrieval: [\n", "configuration file rag-config.yaml, line 3: "),
        ("rag:\n\tretrieval: {}\n", "configuration file rag-config.yaml, line 2: "),
        ("models:\n  device: cpu\n  device: cuda\n", "line 3: the key device is given twice"),
        ("rag: {}\nmodels: {}\nrag: {}\n", "line 3: the key rag is given twice"),
        ("models: &a\n  device: *a\n", "line 2: an alias (*a) is not allowed here"),
        ("rag: {}\n---\nmodels: {}\n", "line 2: "),
        ("rag: !!python/object:os.system {}\n", "line 1: could not determine a constructor"),
        (
            "- rag\n",
            'configuration file rag-config.yaml contains ["rag"]: its top level must be a mapping of rag, data',
        ),
        ("just text", 'contains "just text": its top level must be a mapping'),
        ("models: {device: 2020-99-99}", "rag-config.yaml is not YAML: month must be in 1..12"),
        ("models: {offline: !!bool maybe}", "rag-config.yaml is not YAML: "),
        ("models: \x00", "rag-config.yaml is not YAML: unacceptable character"),
    ],
)
def test_file__malformed_is_named_with_the_line(text: str, message: str) -> None:
    assert message in load_message(text)


def test_file__given_and_missing_is_an_error() -> None:
    message = load_message(path="absent.yaml")
    assert message.startswith("configuration file absent.yaml cannot be read: No such file or directory: ")


@pytest.mark.parametrize("path", ["a\0b", "~no-such-user/rag-config.yaml", ""])
def test_file__path_that_cannot_be_one_is_an_error(path: str) -> None:
    assert " cannot be read: " in load_message(path=path)


def test_file__named_by_the_variable_and_missing_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CONFIG", "absent.yaml")
    assert "configuration file absent.yaml (named by KOSMOS_CONFIG) cannot be read" in load_message()


def test_file__that_is_a_folder_is_an_error() -> None:
    FILE.mkdir()
    assert "rag-config.yaml cannot be read: Is a directory" in load_message()


def test_faults__of_all_sources_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_MODELS__DEVISE", "cpu")
    message = load_message(
        "rag: {retrieval: {topk: 1, rrf_k: 0}, chunking: {max_size: 40}}",
        overrides={"models.offline": "perhaps"},
    )
    faults = message.split("; ")
    assert [fault.split(" ")[0] for fault in faults] == [
        "rag.retrieval.topk",
        "models.devise",
        "rag.chunking.min_size",
        "rag.chunking.recursive_size",
        "rag.chunking.overlap",
        "rag.retrieval.rrf_k",
        "models.offline",
    ]


def test_section__built_directly_is_checked_too() -> None:
    with pytest.raises(ValidationError, match="overlap is 600 and recursive_size is 512: overlap must be smaller"):
        ChunkingSettings(overlap=600)
    with pytest.raises(ValidationError, match="extra"):
        RetrievalSettings(topk=5)  # type: ignore[call-arg]


@given(
    data=st.one_of(st.binary(max_size=200), st.text(alphabet="rag:[]{}&*!|>-?'\"#% \n\t", max_size=60).map(str.encode))
)
def test_file__of_any_bytes_gives_settings_or_one_line(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    message = load_error(path)
    assert message is None or message.isprintable()


@given(
    key=st.sampled_from(sorted(flatten(Settings()))),
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text(max_size=5))),
)
def test_value__of_any_kind_gives_settings_or_one_line_that_names_its_key(key: str, value: object) -> None:
    message = load_error(overrides={key: value})
    assert message is None or (key in message and message.isprintable())


def test_renamed_keys__lead_to_keys_and_sections_that_exist() -> None:
    keys = [key for key, _ in iter_keys(Settings)]
    sections = {key.rpartition(".")[0] for key in keys}
    assert [old for old in RENAMED if old in keys or old in sections] == []
    assert [new for new in RENAMED.values() if new not in keys and new not in sections] == []
