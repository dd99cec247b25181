"""The sections of the configuration other than `rag`.

Every key has its default, its range and its purpose.

Building a section directly raises pydantic's own `ValidationError`; `Settings.load` makes of that a
`ConfigError`, which also says where each value came from.
"""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, Field, SecretStr, Strict, model_validator
from pydantic.types import AllowInfNan

from kosmos_rag.core.config.conflicts import Conflict, refuse
from kosmos_rag.core.section import MAX_INTEGER, Amount, Count, Folder, Section, Share, Switch

_OCR_MEMORY_MB = 2048

EMBEDDED = "embedded"
"""The value of `database.url` that asks for a server of our own."""


def _check_url(url: str) -> str:
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("it must start with postgresql:// or postgres://")
    return url


def _check_main_url(url: str) -> str:
    if url == EMBEDDED:
        return url
    try:
        return _check_url(url)
    except ValueError as error:
        raise ValueError(f"it must be {EMBEDDED}, or {error.args[0].removeprefix('it must ')}") from None


ServerUrl = Annotated[str, AfterValidator(_check_url)]


class DatabaseSettings(Section):
    """The PostgreSQL server, and the limits of connections to it."""

    # repr=False: a URL may hold a password, and settings end up in logs and tracebacks.
    url: Annotated[str, AfterValidator(_check_main_url)] = Field(
        default=EMBEDDED,
        repr=False,
        description="embedded for the embedded server, or postgresql://… of the application role.",
    )
    worker_url: ServerUrl | None = Field(
        default=None,
        repr=False,
        description="URL of the role that writes documents; only with a server of your own.",
    )
    admin_url: ServerUrl | None = Field(
        default=None,
        repr=False,
        description="URL of the administrator, for preparing and migrating; only with a server of your own.",
    )
    replica_urls: tuple[ServerUrl, ...] = Field(
        default=(),
        repr=False,
        description="URLs of replicas of the server of url, as the same role; searches are read from them.",
    )
    replica_max_lag_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=5.0, description="Seconds that a replica may be behind before no search is read from it."
    )
    data_dir: Folder | None = Field(
        default=None, description="Folder of the embedded server; null is one under the user's data folder."
    )
    pool_size: Count = Field(default=8, description="Maximum number of connections of a process.")
    connect_timeout_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=10.0, description="Seconds to wait for a connection before the server counts as unavailable."
    )
    use_nodes: bool = Field(
        default=False,
        description="On Citus, search and publish on the node of the tenant. "
        "Clients must reach it by its name in Citus.",
    )
    node_port: Annotated[int, Strict(), Gt(0), Le(65_535)] | None = Field(
        default=None,
        description="Port of the pooler on each node with use_nodes; null is the port of the node in Citus.",
    )
    statement_timeout_ms: Amount = Field(
        default=30_000, description="Milliseconds after which the server cancels a statement; 0 is no limit."
    )

    idle_transaction_timeout_ms: Amount = Field(
        default=30_000,
        description="Milliseconds after which an idle transaction is ended and its locks are released; 0 is no limit.",
    )

    @property
    def resolved_data_dir(self) -> Path:
        """The embedded server's folder as an absolute path, the default filled in."""
        import platformdirs

        usual = platformdirs.user_data_path("kosmos-rag", appauthor=False) / "postgres"
        # Once the server took no path with a space, and the usual place on a Mac has one: data are in the other.
        default = Path.home() / ".kosmos-rag" if " " in str(usual) else usual
        # Run by root, the server itself runs as another user, which may not enter the home folder of root.
        by_root = hasattr(os, "geteuid") and os.geteuid() == 0
        if by_root and Path.home() in default.parents and not default.exists():
            default = Path("/var/lib/kosmos-rag/postgres")
        return (self.data_dir or default).absolute()

    @model_validator(mode="after")
    def _check_urls(self) -> Self:
        if self.url == EMBEDDED:
            remedy = "the embedded server makes its own roles: set database.url to your server, or drop this key"
            keys = (key for key in ("worker_url", "admin_url", "replica_urls") if getattr(self, key))
            refuse(self, [Conflict((key, "url"), remedy) for key in keys])
        if self.replica_urls and self.use_nodes:
            remedy = "searches go to the node of a tenant: drop one of both keys"
            refuse(self, [Conflict(("replica_urls", "use_nodes"), remedy)])
        return self


class ModelsSettings(Section):
    """Runtime, device and folder of the models."""

    backend: Literal["auto", "torch", "onnx"] = Field(
        default="auto",
        description="Runtime of the models; onnx needs the extra kosmos-rag[onnx], auto uses it on a CPU if installed.",
    )
    device: str = Field(
        default="cpu", min_length=1, description="Device of the models as torch names it: cpu, cuda, mps."
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        default="auto",
        description="Numbers of the models on torch: auto is float16 on cuda, else float32; bfloat16 for a model that "
        "overflows float16.",
    )
    cache_dir: Folder | None = Field(
        default=None,
        description="Folder of downloaded and exported models; null is the usual cache folders.",
    )
    offline: Switch = Field(default=False, description="Use cached models only; download nothing.")

    @model_validator(mode="after")
    def _check_device(self) -> Self:
        if self.backend == "onnx" and self.device != "cpu":
            remedy = "onnx runs on the CPU here: set backend to torch, or device to cpu"
            refuse(self, [Conflict(("backend", "device"), remedy)])
        if self.backend == "onnx" and self.dtype not in ("auto", "float32"):
            remedy = "onnx computes in float32 here: set backend to torch, or dtype to auto"
            refuse(self, [Conflict(("backend", "dtype"), remedy)])
        return self

    @property
    def torch_dtype(self) -> Literal["float32", "float16", "bfloat16"]:
        """The numbers of a model on torch. A CPU computes float32 fastest."""
        if self.dtype != "auto":
            return self.dtype
        return "float16" if self.is_on_cuda else "float32"

    @property
    def is_on_cuda(self) -> bool:
        """Whether the device is a GPU of CUDA: `cuda`, `cuda:1`."""
        return self.device.split(":")[0] == "cuda"

    @property
    def resolved_cache_dir(self) -> Path:
        """The absolute folder for derived model files.

        The user's cache folder by default.
        """
        import platformdirs

        folder = self.cache_dir or platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "models"
        return folder.absolute()


class LanguageModelSettings(Section):
    """The language model that rewrites questions and writes answers, behind a server."""

    protocol: Literal["openai", "ollama"] = Field(
        default="openai",
        description="Protocol of the server: openai (vLLM, llama.cpp, hosted services), or ollama.",
    )
    url: str | None = Field(
        default=None,
        repr=False,
        pattern=r"^https?://\S+$",
        description="Base address: http://localhost:8000/v1, or http://localhost:11434 of Ollama; null is no model.",
    )
    model: str = Field(default="llama3.2", min_length=1, description="Name of the model as that server knows it.")
    api_key: SecretStr | None = Field(default=None, description="Key that is sent as a bearer token; null sends none.")
    first_token_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=10.0, description="Time limit of the model's first token in seconds, retries included."
    )
    timeout_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=60.0, description="Time limit of the model's whole response in seconds."
    )
    report_usage: Switch = Field(
        default=True,
        description="Ask a server of the protocol openai for token counts; false for one that refuses stream_options.",
    )
    context_tokens: Annotated[int, Strict(), Ge(512), Le(MAX_INTEGER)] = Field(
        default=8192,
        description="Context length of Ollama in tokens, for prompt and answer; it truncates longer prompts silently.",
    )


class ParsingSettings(Section):
    """Limits of the process that parses one file.

    A file beyond a limit fails alone, with an error code.
    """

    memory_mb: Annotated[int, Strict(), Ge(256), Le(MAX_INTEGER)] = Field(
        default=1024, description="Memory limit of parsing one file, in megabytes."
    )
    cpu_s: Count = Field(default=60, description="Processor time limit of parsing one file, in seconds.")
    timeout_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=300.0, description="Time limit of parsing one file, in seconds."
    )
    text_mb: Count = Field(default=20, description="Megabytes of text above which a parsed file is refused.")
    pages: Count = Field(default=5000, description="Pages above which a file is refused.")
    ocr: Switch = Field(
        default=False,
        description="Read scanned pages of a PDF by OCR, in seconds for each; needs memory_mb 2048 and the extra ocr.",
    )
    hidden_cells: Switch = Field(default=False, description="Read hidden sheets, rows and columns of workbooks too.")
    libreoffice: Switch = Field(
        default=False, description="Convert DOC and PPT files by LibreOffice, where it is installed: seconds for each."
    )
    passwords: tuple[SecretStr, ...] = Field(
        default=(),
        description="Passwords of PDF files and, with the extra encrypted, Office files; set them in the environment.",
    )
    require_isolation: Switch = Field(
        default=False,
        description="Parse only in a process isolated from network, processes and files: docs/parsing.md.",
    )

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        if self.ocr and self.memory_mb < _OCR_MEMORY_MB:
            remedy = f"a page that is read takes more: set memory_mb to {_OCR_MEMORY_MB}, or ocr to false"
            refuse(self, [Conflict(("ocr", "memory_mb"), remedy)])
        return self


HostPattern = Annotated[str, Field(pattern=r"^(\*\.)?[a-z0-9_:]([a-z0-9._:-]*[a-z0-9_:])?$")]


class UrlSettings(Section):
    """URLs that may be fetched."""

    allowed_hosts: tuple[HostPattern, ...] = Field(
        default=(), description="Allowed hosts, *.example.org for all subdomains; empty: none is."
    )
    allow_private: Switch = Field(
        default=False, description="Let an allowed host have a private or loopback address, for intranets."
    )
    timeout_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=60.0, description="Time limit of fetching a document in seconds, redirects included."
    )


class IngestionSettings(Section):
    """Ingestion: language, sizes of files, stored files, sources."""

    language: str = Field(
        default="english",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="PostgreSQL text search configuration of the keyword index: stemming and stop words. "
        "Chunks that are clearly in another language have theirs.",
    )
    max_file_mb: Count = Field(default=100, description="Megabytes above which a file is refused before it is read.")
    keep_originals: bool = Field(
        default=False, description="Store the file of each document too, so that its readers can see its pages."
    )
    max_original_mb: Count = Field(default=20, description="Megabytes above which a file is not stored, with a note.")
    source_modules: tuple[str, ...] = Field(
        default=(), description="Python modules of yours whose SOURCES define more kinds of sources."
    )
    urls: UrlSettings = UrlSettings()
    parsing: ParsingSettings = ParsingSettings()

    @property
    def max_file_bytes(self) -> int:
        """`max_file_mb` in bytes."""
        return self.max_file_mb * 1024 * 1024


class IndexSettings(Section):
    """Indexes of large tenants: what maintenance builds, and its targets."""

    vector: Literal["auto", "ivfflat", "hnsw", "none"] = Field(
        default="auto",
        description="Vector index of a large tenant; auto is ivfflat, or hnsw if that is slow and little is written.",
    )
    precision: Literal["half", "bit"] = Field(
        default="half",
        description="Precision of a vector index: half floats, or bits, whose candidates are scored with the vectors.",
    )
    recall_target: Share = Field(
        default=0.95, description="Share of the ten nearest vectors that an index has to find, by measurement."
    )
    target_ms: Annotated[float, Strict(), Gt(0), AllowInfNan(False)] = Field(
        default=10.0,
        description="Milliseconds of a search above which auto tries hnsw, where less than 1 % is published a day.",
    )
    vector_min_chunks: Count = Field(
        default=10_000, description="Chunks below which vectors are scanned: exact, and as fast."
    )
    build_memory_mb: Count = Field(
        default=1024,
        description="Megabytes that the server may use to build a vector index; hnsw is slow beyond them.",
    )
    build_workers: Amount = Field(
        default=0,
        description="Parallel workers of the server that build a vector index; 0 leaves other cores to questions.",
    )
    unsegmented_chunks: Count = Field(
        default=2_000,
        description="Chunks that the lexical retriever scans before they are packed into a segment.",
    )
    postings_cache_mb: Count = Field(default=64, description="Cache of packed postings of a process, in megabytes.")
    vector_cache_mb: Amount = Field(
        default=384,
        description="Cache of vectors and postings of a process, in megabytes, scored in memory; 0 keeps none.",
    )


class ObservabilitySettings(Section):
    """Logs, slow queries, and metrics by tenant."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = Field(
        default="WARNING", description="Least severe message that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="text for people, json for a log collector; one line a message either way.",
    )
    log_texts: Switch = Field(
        default=False, description="Log texts of tenants: questions, names of documents, error texts."
    )
    slow_ms: Amount = Field(
        default=1000, description="Milliseconds from which a retrieval is logged, with its plan; 0 logs none."
    )
    top_tenants: Annotated[int, Strict(), Ge(0), Le(50)] = Field(
        default=0, description="Number of the busiest tenants that have metrics by name; 0: no metric names tenants."
    )
