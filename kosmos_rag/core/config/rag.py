"""The section `rag`: all steps from document to context.

Every key has its default, its range and its purpose.
"""

import re
from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, Field, SecretStr, Strict, model_validator

from kosmos_rag.core.config.conflicts import Conflict, refuse
from kosmos_rag.core.config.sections import HostPattern
from kosmos_rag.core.section import MAX_INTEGER, Amount, Count, File, Section, Share, Switch, Weight

# Of the published weights; names without the organisation that sentence-transformers adds by itself.
_KNOWN_DIMENSIONS = {
    "all-mpnet-base-v2": 768,
    "all-MiniLM-L6-v2": 384,
    "packaged:all-MiniLM-L6-v2": 384,
    "packaged:all-MiniLM-L6-v2-int8": 384,
    "multi-qa-mpnet-base-dot-v1": 768,
    "BAAI/bge-small-en-v1.5": 384,
    "BAAI/bge-base-en-v1.5": 768,
    "BAAI/bge-large-en-v1.5": 1024,
}


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


class ChunkingSettings(Section):
    """Chunking of documents.

    Sizes are characters; the model's token limit applies too.
    """

    strategy: Literal["semantic", "recursive", "markdown", "paragraph", "hierarchical"] = Field(
        default="semantic", description="Primary chunker."
    )
    fallback: Literal["recursive"] = Field(
        default="recursive",
        description="Chunker for text that the primary one cannot cut; the recursive one never fails.",
    )
    min_size: Count = Field(
        default=400,
        description="Characters below which a chunk is merged with its neighbour.",
    )
    max_size: Count = Field(
        default=1000,
        description="Characters a chunk may have; the embedding model's token limit applies as well.",
    )
    overlap: Amount = Field(
        default=50,
        description="Characters that neighbouring recursive chunks share, so that a sentence cut in two is found.",
    )
    breakpoint_threshold: Share = Field(
        default=0.5,
        description="Cosine similarity of neighbouring sentences below which a paragraph over max_size is cut.",
    )
    recursive_size: Count = Field(
        default=512, description="Characters of a chunk of the recursive chunker, overlap included."
    )
    separators: tuple[str, ...] = Field(
        default=("\n\n", "\n", ". ", " "),
        min_length=1,
        description="Separators of the recursive chunker, in order of preference.",
    )
    whole_blocks: Switch = Field(
        default=False,
        description="Never cut a fenced block (SQL) in Markdown; lexical search covers text beyond the model's input.",
    )
    plain_headings: Switch = Field(
        default=False,
        description="Treat lines in capitals, title case or with numbers as headings if a text or PDF has none.",
    )
    section_size: Count = Field(
        default=2000,
        description="Characters of a section that the context shows around a hierarchical chunk; of a longer one, "
        "the paragraphs around the chunk that fit.",
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


Dimensions = Annotated[int, Strict(), Ge(1), Le(4000)]


def _check_server_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if scheme not in ("http", "https") or not separator or not rest or any(char.isspace() for char in url):
        raise ValueError("it must be an address that starts with http:// or https://")
    if "@" in re.split(r"[/?#]", rest)[0]:
        raise ValueError("it must have no user and password: set api_key in the environment")
    return url


ServerUrl = Annotated[str, AfterValidator(_check_server_url)]
Seconds = Annotated[float, Strict(), Gt(0), Le(MAX_INTEGER)]


class _EmbeddingModelSettings(Section):
    """The keys of an embedding model, local or behind a server."""

    model: str | None = Field(default=None, min_length=1)
    dimensions: Dimensions = Field(
        default=768,
        description="Dimensions of a vector; must be the model's own, or with matryoshka fewer. 4000 is the limit of a "
        "halfvec index.",
    )
    batch_size: Count = Field(
        default=32,
        description="Texts of a forward pass on a CPU, or of a request to the server; a GPU reads 32,768 tokens at "
        "once.",
    )
    normalize: Switch = Field(
        default=True, description="Scale vectors to length one, so that inner product is cosine similarity."
    )
    matryoshka: Literal["none", "client", "server"] = Field(
        default="none",
        description="Truncation of longer vectors to dimensions, then normalised again: client does it here, server "
        "requests it; for models that were trained for it.",
    )
    query_prefix: str = Field(
        default="", max_length=2000, description='Text before each question, as the model needs it: "query: ".'
    )
    passage_prefix: str = Field(
        default="", max_length=2000, description='Text before each passage, as the model needs it: "passage: ".'
    )
    url: ServerUrl | None = Field(
        default=None,
        repr=False,
        description="Base address of a server that embeds: http://localhost:8000/v1; null loads the model here.",
    )
    protocol: Literal["openai", "vllm", "tei", "ollama", "cohere", "jina", "voyage"] = Field(
        default="openai", description="Protocol of that server; tei is Text Embeddings Inference: docs/models.md."
    )
    api_key: SecretStr | None = Field(default=None, description="Key that is sent as a bearer token; null sends none.")
    tokenizer: File | None = Field(
        default=None,
        description="tokenizer.json of the model behind url, for exact token counts; null estimates, mostly too many.",
    )
    max_tokens: Annotated[int, Strict(), Ge(64), Le(1_000_000)] = Field(
        default=512, description="Tokens that the model behind url reads; the end of a longer text is not sent."
    )
    batch_tokens: Count = Field(default=8192, description="Tokens of a request to the server.")
    concurrency: Count = Field(default=4, description="Requests of passages to the server at once, of a process.")
    timeout_s: Seconds = Field(default=60.0, description="Seconds for a request of passages, retries included.")
    query_timeout_s: Seconds = Field(
        default=5.0, description="Seconds for the request of a question, retries included."
    )

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        conflicts = []
        if self.model is not None:
            native = _KNOWN_DIMENSIONS.get(self.model.removeprefix("sentence-transformers/"), self.dimensions)
            if self.matryoshka == "none" and native != self.dimensions:
                remedy = f"that model gives {native} dimensions: set dimensions to {native} or name another model"
                conflicts.append(Conflict(("dimensions", "model"), remedy))
        if self.matryoshka == "server" and self.url is None:
            remedy = "there is no server to request it: set matryoshka to client, or url"
            conflicts.append(Conflict(("matryoshka", "url"), remedy))
        refuse(self, conflicts)
        return self


class EmbeddingSettings(_EmbeddingModelSettings):
    """The model that turns text into vectors."""

    model: str = Field(
        default="sentence-transformers/all-mpnet-base-v2",
        min_length=1,
        description="Name on the model hub, a folder, packaged:all-MiniLM-L6-v2-int8 (the extra minilm), or with url "
        "its name on the server.",
    )


class NextEmbeddingSettings(_EmbeddingModelSettings):
    """The target model of a migration.

    Embedding spaces are recognised by either section.
    """

    key_source = "rag.embedding"
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Target model of a re-embedding; null is none. The section has the keys of rag.embedding.",
    )

    @property
    def embedding(self) -> EmbeddingSettings | None:
        """The settings as those of `rag.embedding`; None without a model."""
        if self.model is None:
            return None
        return EmbeddingSettings(**{name: getattr(self, name) for name in EmbeddingSettings.model_fields})


class RetrievalSettings(Section):
    """Retrieval of candidates, and their fusion."""

    semantic_weight: Weight = Field(
        default=0.5, description="Weight of the dense retriever in the fusion, relative to the lexical one."
    )
    keyword_weight: Weight = Field(
        default=0.5, description="Weight of the lexical retriever in the fusion, relative to the dense one."
    )
    fusion: Literal["rrf", "score"] = Field(
        default="rrf",
        description="rrf adds reciprocal ranks; score adds standardised scores.",
    )
    weighting: Literal["fixed", "question", "collection"] = Field(
        default="collection",
        description="fixed keeps the weights as they are set; question moves them by how much of it documents have; "
        "collection also by how well each retriever finds known items.",
    )
    prf_weight: Weight = Field(
        default=0.0,
        description="Weight of pseudo-relevance feedback in the fusion: similarity to the best five; 0 is off.",
    )
    fuzzy: bool = Field(
        default=True,
        description="Replace words that no chunk contains by close terms of the collection: "
        "typos, fragments, compounds.",
    )
    top_k: Count = Field(default=20, description="Number of fused hits for reranking.")
    default_k: Count | None = Field(
        default=None,
        description="Hits of a search without a number; null is reranking.top_k, or top_k without reranking.",
    )
    similarity_threshold: Annotated[float, Strict(), Ge(-1), Le(1)] = Field(
        default=0.0, description="Cosine similarity below which the dense retriever drops a candidate."
    )
    require_approved: Switch = Field(
        default=False,
        description="Find only documents with approved: true in their metadata, not superseded and still valid.",
    )
    fold_copies: Switch = Field(
        default=True,
        description="Return passages with the same text under the same heading as one hit that names the other places.",
    )
    prefer_current: Switch = Field(
        default=True,
        description="Rank superseded or invalid documents lower, and new ones higher if the question asks for them.",
    )
    prefer_stated: Switch = Field(
        default=True,
        description="Rank passages last that conflict with times, titles, departments and metadata in the question.",
    )
    rrf_k: Count = Field(
        default=5,
        description="Constant of reciprocal rank fusion; larger flattens the lead of the first ranks.",
    )
    candidates: Count = Field(
        default=100,
        description="Candidates of each retriever before fusion; a hit that both rank low needs more of them.",
    )
    query_embedding_cache: Amount = Field(
        default=1000, description="Query embeddings that a process caches; a repeated question is not embedded again."
    )
    result_cache: Amount = Field(
        default=0,
        description="Search results that a process caches, each for one reader of unchanged documents; 0 is off.",
    )
    max_question_chars: Count = Field(
        default=10_000, description="Characters of a question above which it is refused, to bound its cost."
    )

    @model_validator(mode="after")
    def _check_legs(self) -> Self:
        conflicts = []
        if self.semantic_weight == 0 and self.keyword_weight == 0:
            remedy = "no retriever would count: give at least one of them a weight above 0"
            conflicts.append(Conflict(("semantic_weight", "keyword_weight"), remedy))
        if self.candidates < self.top_k:
            remedy = "candidates must be at least top_k: raise candidates or lower top_k"
            conflicts.append(Conflict(("candidates", "top_k"), remedy))
        refuse(self, conflicts)
        return self


class RerankingSettings(Section):
    """Reranking of fused hits by a cross-encoder."""

    enabled: Switch = Field(default=True, description="Rerank the fused hits; without it they stay in fused order.")
    model: str = Field(
        default="cross-encoder/ms-marco-MiniLM-L-6-v2",
        min_length=1,
        description="Cross-encoder that reads question and passage together; with url its name on the server.",
    )
    url: ServerUrl | None = Field(
        default=None,
        repr=False,
        description="Base address of a server that reranks: http://localhost:8080; null loads the model here.",
    )
    protocol: Literal["jina", "vllm", "tei", "cohere", "voyage"] = Field(
        default="jina", description="Protocol of that server; jina is also that of llama.cpp: docs/models.md."
    )
    api_key: SecretStr | None = Field(default=None, description="Key that is sent as a bearer token; null sends none.")
    raw_scores: Switch = Field(
        default=False,
        description="The server gives the model's raw scores, as llama.cpp does: the logistic function is applied.",
    )
    timeout_s: Seconds = Field(
        default=5.0, description="Seconds for a request to the server, retries included; deadline_ms applies too."
    )
    precision: Literal["full", "int8"] = Field(
        default="full",
        description="Weights on ONNX Runtime: the model's own, or eight bits: faster, and scores change a little.",
    )
    top_k: Count = Field(default=10, description="Hits that remain after reranking.")
    weight: Share = Field(
        default=1.0, description="Weight of the relevance in the last order; the rest is that of the fused score."
    )
    threshold: Share = Field(default=0.3, description="Relevance, 0 to 1, below which a reranked hit is dropped.")
    max_tokens: Annotated[int, Strict(), Ge(16), Le(8192)] = Field(
        default=512,
        description="Tokens of question and passage together that are read; the model's own limit applies too.",
    )
    batch_size: Count | None = Field(
        default=None,
        description="Passages of a batch. null: what takes a tenth of the deadline here, 4 to 64; with url 32.",
    )
    concurrency: Count = Field(default=2, description="Questions reranked at once; others wait until their deadline.")
    deadline_ms: Count | None = Field(
        default=None,
        description="Milliseconds from the start of the query until reranking stops; passages without a score follow. "
        "null: 500, with url 2000.",
    )

    @property
    def passages_per_batch(self) -> int:
        """Passages of the first batch."""
        return self.batch_size or (4 if self.url is None else 32)

    @property
    def milliseconds_to_deadline(self) -> int:
        """Milliseconds from the start of the query until reranking stops.

        A server scores all passages in one request: none has a score before the response.
        """
        return self.deadline_ms or (500 if self.url is None else 2_000)


class ExpansionSettings(Section):
    """Query expansion.

    Off by default.
    """

    synonyms: File | None = Field(
        default=None, description="YAML file of synonyms for the lexical retriever; null is none."
    )
    synonym_weight: Share = Field(
        default=0.5, description="Weight of a synonym, relative to 1 for a word of the query."
    )
    queries: Annotated[int, Strict(), Ge(0), Le(8)] = Field(
        default=0, description="Number of other wordings of the question by the language model, each searched too."
    )
    hyde: Switch = Field(
        default=False,
        description="Let the language model write an answer, and search for similar passages (HyDE).",
    )
    planned_searches: Annotated[int, Strict(), Ge(2), Le(6)] = Field(
        default=6, description="Searches of a question with effort high, at most, the question itself included."
    )
    planning_deadline_ms: Count = Field(
        default=10_000, description="Milliseconds of a question with effort high after which no other search begins."
    )


class ContextSettings(Section):
    """Assembly of hits into the context of a prompt."""

    max_tokens: Count = Field(default=4000, description="Token budget of the context, markers and headers included.")
    include_metadata: Switch = Field(
        default=True,
        description="Put title, section and location above each passage.",
    )
    citation_format: Annotated[str, AfterValidator(_check_citation)] = Field(
        default="[{index}]", description="Format of a passage's marker; {index} is its number."
    )
    near_duplicate_threshold: Share = Field(
        default=0.9, description="Similarity from which a passage is dropped as a duplicate of a better one."
    )


class AnswerSettings(Section):
    """Composition of answers: extractive, or by a language model."""

    mode: Literal["extractive", "generative"] = Field(
        default="extractive",
        description="extractive answers with sentences of the documents, generative lets language_model write.",
    )
    max_passages: Count = Field(
        default=5,
        description="Number of the best passages whose sentences may answer; their sentences are embedded.",
    )
    max_sentences: Count = Field(
        default=4, description="Sentences, code blocks, list items and table rows of an answer."
    )
    threshold: Share = Field(
        default=0.5,
        description="Confidence below which the answer is a refusal; 0 refuses only without evidence.",
    )
    closest_threshold: Share = Field(
        default=0.3,
        description="Confidence from which a refusal names the closest sentences, without a claim; 1 never does.",
    )
    template: str = Field(
        default="grounded",
        pattern=r"^(grounded|corporate|.+\.j2)$",
        description="Prompt template: grounded, corporate, or the path of a .j2 file.",
    )
    max_output_tokens: Count = Field(default=600, description="Tokens that the model may write for an answer.")
    link_hosts: tuple[HostPattern, ...] = Field(
        default=(),
        description="Hosts whose links the model may repeat from the evidence; *.example.org for all subdomains.",
    )
    history_turns: Annotated[int, Strict(), Ge(0), Le(50)] = Field(
        default=0,
        description="Turns of a conversation that the model condenses into one query; 0 ignores the conversation.",
    )
    history_tokens: Annotated[int, Strict(), Ge(0), Le(MAX_INTEGER)] = Field(
        default=8000,
        description="Tokens of earlier turns, with their passages, in the prompt of an answer; 0 repeats no turn.",
    )
    fence_secret: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Secret of at least 32 characters for the fences of conversations; null creates one per process.",
    )


class AccessSettings(Section):
    """Access to documents without an acl of their own."""

    department_from: Literal["metadata", "folder"] | None = Field(
        default=None,
        description="Source of a document's department, which may read it: metadata, or else the folder; null is none.",
    )
    key: str = Field(
        default="department", min_length=1, description="Key of the metadata, and kind of the principal: department:hr."
    )
    departments: tuple[str, ...] = Field(
        default=(),
        description="All departments; with department_from: folder, the outermost folder that is one of them decides.",
    )
    open: tuple[str, ...] = Field(default=(), description="Departments whose documents everyone may read.")
    privileged: tuple[str, ...] = Field(
        default=(), description="Roles that may read the documents of all departments: Manager for role:Manager."
    )

    @model_validator(mode="after")
    def _departments_are_listed(self) -> Self:
        if self.department_from == "folder" and not self.departments:
            refuse(
                self, [Conflict(("department_from", "departments"), "list the departments, or any folder would be one")]
            )
        if self.departments and not set(self.open) <= set(self.departments):
            refuse(self, [Conflict(("open", "departments"), "list those that are open among the departments")])
        return self


class AuditSettings(Section):
    """The audit log of queries and results."""

    enabled: Switch = Field(
        default=False,
        description="Log each search, context and answer durably before it is returned.",
    )
    questions: Switch = Field(default=True, description="Log the text of questions; if false, only its SHA-256.")


class RagSettings(Section):
    """Settings of the whole pipeline, from document to context."""

    preset: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Preset of the whole process, by name or path: its values replace the defaults.",
    )
    chunking: ChunkingSettings = ChunkingSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    next_embedding: NextEmbeddingSettings = NextEmbeddingSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    expansion: ExpansionSettings = ExpansionSettings()
    reranking: RerankingSettings = RerankingSettings()
    context: ContextSettings = ContextSettings()
    access: AccessSettings = AccessSettings()
    answer: AnswerSettings = AnswerSettings()
    audit: AuditSettings = AuditSettings()
    signals: Mapping[str, Mapping[str, Any]] = Field(
        default={}, description="Rules that reorder hits after ranking, by name, with their parameters."
    )
    intents: Mapping[str, Mapping[str, Any]] = Field(
        default={}, description="Kinds of queries by name: their conditions, and their changes of signals."
    )
