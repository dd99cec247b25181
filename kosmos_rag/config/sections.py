"""The sections of the configuration: every key with its default, its range and what it is for.

Building a section directly raises pydantic's own `ValidationError`; `Settings.load` makes of that a
`ConfigError`, which also says where each value came from.
"""

from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator
from pydantic.types import AllowInfNan

from kosmos_rag.config.conflicts import Conflict, refuse

EMBEDDED = "embedded"
"""The value of `database.url` that asks for a server of our own."""

MAX_INTEGER = 2**31 - 1
"""The upper bound of integers without a narrower one: PostgreSQL's, for many go into statements."""

# What the published weights give; keys without the organisation that sentence-transformers adds by itself.
_KNOWN_DIMENSIONS = {
    "all-mpnet-base-v2": 768,
    "all-MiniLM-L6-v2": 384,
    "packaged:all-MiniLM-L6-v2": 384,
    "multi-qa-mpnet-base-dot-v1": 768,
    "BAAI/bge-small-en-v1.5": 384,
    "BAAI/bge-base-en-v1.5": 768,
    "BAAI/bge-large-en-v1.5": 1024,
}


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


def _expand_folder(folder: Any) -> Path:
    # Path("") is the working folder, which nobody means by leaving a value empty.
    if not isinstance(folder, str | Path) or not str(folder).strip():
        raise ValueError("it must name a folder")
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        raise ValueError("it must name a folder of a user that exists") from None


def _check_citation(template: str) -> str:
    remedy = "it must contain {index} and no other field; write {{ and }} for braces"
    try:
        fields = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
        template.format(index=1)
    except (ValueError, LookupError, AttributeError):
        raise ValueError(remedy) from None
    if fields != {"index"}:
        raise ValueError(remedy)
    return template


# Strict: a YAML `true` is not the number 1. Text from the environment is converted before it comes here.
Switch = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Ge(1), Le(MAX_INTEGER)]
Amount = Annotated[int, Strict(), Ge(0), Le(MAX_INTEGER)]
Share = Annotated[float, Strict(), Ge(0), Le(1)]
Weight = Annotated[float, Strict(), Ge(0), AllowInfNan(False)]
Folder = Annotated[Path, BeforeValidator(_expand_folder)]
ServerUrl = Annotated[str, AfterValidator(_check_url)]


class Section(BaseModel):
    """A group of keys: frozen, and closed to names it does not know."""

    # Input stays out of pydantic's messages because a URL may hold a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ChunkingSettings(Section):
    """How a document is cut into chunks. Sizes are characters; the model's limit of tokens holds besides."""

    strategy: Literal["semantic", "recursive", "markdown", "paragraph"] = Field(
        default="semantic", description="Splitter that is tried first."
    )
    fallback: Literal["recursive"] = Field(
        default="recursive",
        description="Splitter for what the first cannot cut; the recursive one never fails.",
    )
    min_size: Count = Field(
        default=400,
        description="Characters below which a chunk joins its neighbour; a fragment retrieves badly.",
    )
    max_size: Count = Field(
        default=1000,
        description="Characters a chunk may have; the embedding model's token limit applies as well.",
    )
    overlap: Amount = Field(
        default=50,
        description="Characters that recursive chunks repeat, so that a thought cut in two stays findable.",
    )
    breakpoint_threshold: Share = Field(
        default=0.5,
        description="Cosine similarity of neighbouring sentences below which the semantic splitter cuts.",
    )
    recursive_size: Count = Field(
        default=512, description="Characters of a chunk that the recursive splitter makes, overlap included."
    )
    separators: tuple[str, ...] = Field(
        default=("\n\n", "\n", ". ", " "),
        min_length=1,
        description="Where the recursive splitter cuts, the most natural place first.",
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        conflicts = []
        if self.min_size >= self.max_size:
            conflicts.append(Conflict(("min_size", "max_size"), "min_size must be smaller: lower it"))
        if self.recursive_size > self.max_size:
            remedy = "recursive_size must not be larger: lower it or raise max_size"
            conflicts.append(Conflict(("recursive_size", "max_size"), remedy))
        conflicts += [
            Conflict(("overlap", bound), "overlap must be smaller: lower it")
            for bound in ("recursive_size", "max_size")
            if self.overlap >= getattr(self, bound)
        ]
        refuse(self, conflicts)
        return self


class EmbeddingSettings(Section):
    """The model that turns text into vectors."""

    model: str = Field(
        default="sentence-transformers/all-mpnet-base-v2",
        min_length=1,
        description="Name on the model hub, a folder, or packaged:all-MiniLM-L6-v2 (the extra minilm).",
    )
    dimensions: Annotated[int, Strict(), Ge(1), Le(4000)] = Field(
        default=768,
        description="Length of a vector; must be the model's own. 4000 is what a halfvec index takes.",
    )
    batch_size: Count = Field(default=32, description="Texts per forward pass; more is faster until memory ends.")
    normalize: Switch = Field(
        default=True, description="Scale vectors to length one, so that inner product is cosine similarity."
    )

    @model_validator(mode="after")
    def _check_dimensions(self) -> Self:
        known = _KNOWN_DIMENSIONS.get(self.model.removeprefix("sentence-transformers/"))
        if known not in (None, self.dimensions):
            remedy = f"that model gives {known} dimensions: set dimensions to {known} or name another model"
            refuse(self, [Conflict(("dimensions", "model"), remedy)])
        return self


class RetrievalSettings(Section):
    """How candidates are found and fused."""

    semantic_weight: Weight = Field(
        default=0.7, description="Weight of the vector leg in the fusion, relative to the other."
    )
    keyword_weight: Weight = Field(
        default=0.3, description="Weight of the keyword leg in the fusion, relative to the other."
    )
    top_k: Count = Field(default=20, description="Fused hits that go on to reranking.")
    similarity_threshold: Annotated[float, Strict(), Ge(-1), Le(1)] = Field(
        default=0.0, description="Cosine similarity below which the vector leg drops a candidate."
    )
    rrf_k: Count = Field(
        default=60,
        description="Constant of reciprocal rank fusion; larger flattens the lead of the first ranks.",
    )
    depth: Count = Field(
        default=100,
        description="Candidates of each leg before fusion; a hit that both legs rank low needs depth.",
    )
    max_question_chars: Count = Field(
        default=10_000, description="Characters of a question above which it is refused, to bound its cost."
    )

    @model_validator(mode="after")
    def _check_legs(self) -> Self:
        conflicts = []
        if self.semantic_weight == 0 and self.keyword_weight == 0:
            remedy = "no leg would count: give at least one of them a weight above 0"
            conflicts.append(Conflict(("semantic_weight", "keyword_weight"), remedy))
        if self.depth < self.top_k:
            remedy = "depth must be at least top_k: raise depth or lower top_k"
            conflicts.append(Conflict(("depth", "top_k"), remedy))
        refuse(self, conflicts)
        return self


class RerankingSettings(Section):
    """How fused hits are put in their last order."""

    enabled: Switch = Field(default=True, description="Rerank at all; off leaves the fused order.")
    model: str = Field(
        default="cross-encoder/ms-marco-MiniLM-L-6-v2",
        min_length=1,
        description="Cross-encoder that reads question and passage together.",
    )
    top_k: Count = Field(default=10, description="Hits that remain after reranking.")
    threshold: Share = Field(default=0.3, description="Relevance, 0 to 1, below which a reranked hit is dropped.")
    deadline_ms: Count = Field(
        default=500, description="Milliseconds after which reranking is given up and the fused order stands."
    )


class ContextSettings(Section):
    """How hits become the context of a prompt."""

    max_tokens: Count = Field(default=4000, description="Token budget of the context, markers and headers included.")
    include_metadata: Switch = Field(
        default=True,
        description="Put title, section and place above each passage; readers and models judge by them.",
    )
    citation_format: Annotated[str, AfterValidator(_check_citation)] = Field(
        default="[{index}]", description="The marker of a passage; {index} stands for its number."
    )
    near_duplicate_threshold: Share = Field(
        default=0.9, description="Similarity from which a passage repeats a better one and is left out."
    )


class RagSettings(Section):
    """From document to context."""

    chunking: ChunkingSettings = ChunkingSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    reranking: RerankingSettings = RerankingSettings()
    context: ContextSettings = ContextSettings()


class DatabaseSettings(Section):
    """Which PostgreSQL serves, and the limits of our connections to it."""

    # repr=False: a URL may hold a password, and settings end up in logs and tracebacks.
    url: Annotated[str, AfterValidator(_check_main_url)] = Field(
        default=EMBEDDED,
        repr=False,
        description="embedded for a server of our own, or postgresql://… of the application role.",
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
    data_dir: Folder | None = Field(
        default=None, description="Folder of the embedded server; null is one under the user's data folder."
    )
    pool_size: Count = Field(default=8, description="Connections a process holds at most.")
    connect_timeout_s: Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)] = Field(
        default=10.0, description="Seconds to wait for a connection before saying that the server is down."
    )
    statement_timeout_ms: Amount = Field(
        default=30_000, description="Milliseconds after which the server cancels a statement; 0 is no limit."
    )

    @property
    def resolved_data_dir(self) -> Path:
        """The embedded server's folder as an absolute path, the default filled in."""
        import platformdirs

        usual = platformdirs.user_data_path("kosmos-rag", appauthor=False) / "postgres"
        # The embedded server takes no path with a space, and the usual place on a Mac has one.
        return (self.data_dir or (Path.home() / ".kosmos-rag" if " " in str(usual) else usual)).absolute()

    @model_validator(mode="after")
    def _check_urls(self) -> Self:
        if self.url == EMBEDDED:
            remedy = "the embedded server makes its own roles: set database.url to your server, or drop this key"
            given = (key for key in ("worker_url", "admin_url") if getattr(self, key) is not None)
            refuse(self, [Conflict((key, "url"), remedy) for key in given])
        return self


class ModelsSettings(Section):
    """Where models run and are kept."""

    backend: Literal["torch", "onnx"] = Field(
        default="torch", description="Runtime of the models; onnx needs the extra kosmos-rag[onnx]."
    )
    device: str = Field(
        default="cpu", min_length=1, description="Device of the models as torch names it: cpu, cuda, mps."
    )
    cache_dir: Folder | None = Field(
        default=None,
        description="Folder of downloaded and exported models; null is the usual cache folders.",
    )
    offline: Switch = Field(default=False, description="Use only what is in the cache; nothing is downloaded.")

    @property
    def resolved_cache_dir(self) -> Path:
        """The folder for what we derive from models, absolute; by default in the user's cache folder."""
        import platformdirs

        folder = self.cache_dir or platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "models"
        return folder.absolute()


class IngestionSettings(Section):
    """What is taken in, and in which language."""

    language: str = Field(
        default="english",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="PostgreSQL text search configuration of the keyword index: stemming and stop words.",
    )
    max_file_mb: Count = Field(default=100, description="Megabytes above which a file is refused before it is read.")


class IndexSettings(Section):
    """What maintenance builds for a tenant that has grown, and what it aims at."""

    vector: Literal["auto", "ivfflat", "hnsw", "none"] = Field(
        default="auto",
        description="Index of a large tenant's vectors; auto is ivfflat, or hnsw where ivfflat measures as too slow.",
    )
    precision: Literal["half", "bit"] = Field(
        default="half",
        description="Numbers of a vector index: half floats, or one bit a dimension, scored again with the vectors.",
    )
    recall_target: Share = Field(
        default=0.95, description="Share of the ten nearest vectors that an index has to find, by measurement."
    )
    target_ms: Annotated[float, Strict(), Gt(0), AllowInfNan(False)] = Field(
        default=10.0, description="Milliseconds of a search above which auto tries hnsw."
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
    lexical_tail_chunks: Count = Field(
        default=2_000, description="Chunks that are scanned by the keyword leg before they are packed into a segment."
    )
    postings_cache_mb: Count = Field(
        default=64, description="Megabytes of packed postings that a process keeps for the next question."
    )


class ObservabilitySettings(Section):
    """What the process says about itself."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = Field(
        default="WARNING", description="Least severe message that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="text for people, json for a log collector; one line a message either way.",
    )
