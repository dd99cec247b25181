"""The configuration, and the origin of each value.

Later sources override earlier ones: defaults < file < environment < arguments.
"""

from kosmos_rag.core.config.display import mask_password
from kosmos_rag.core.config.loading import Origin
from kosmos_rag.core.config.mcp import McpSettings
from kosmos_rag.core.config.rag import (
    AccessSettings,
    AnswerSettings,
    AuditSettings,
    ChunkingSettings,
    ContextSettings,
    EmbeddingSettings,
    ExpansionSettings,
    NextEmbeddingSettings,
    RagSettings,
    RerankingSettings,
    RetrievalSettings,
)
from kosmos_rag.core.config.reference import flatten, reference_page
from kosmos_rag.core.config.sections import (
    EMBEDDED,
    DatabaseSettings,
    IndexSettings,
    IngestionSettings,
    LanguageModelSettings,
    ModelsSettings,
    ObservabilitySettings,
    ParsingSettings,
    UrlSettings,
)
from kosmos_rag.core.config.service import RateSettings, ServiceSettings, TokenSettings
from kosmos_rag.core.config.settings import Settings, preset_keys
from kosmos_rag.core.config.worker import WorkerSettings

__all__ = [
    "EMBEDDED",
    "AccessSettings",
    "AnswerSettings",
    "AuditSettings",
    "ChunkingSettings",
    "ContextSettings",
    "DatabaseSettings",
    "EmbeddingSettings",
    "ExpansionSettings",
    "IndexSettings",
    "IngestionSettings",
    "LanguageModelSettings",
    "McpSettings",
    "ModelsSettings",
    "NextEmbeddingSettings",
    "ObservabilitySettings",
    "Origin",
    "ParsingSettings",
    "RagSettings",
    "RateSettings",
    "RerankingSettings",
    "RetrievalSettings",
    "ServiceSettings",
    "Settings",
    "TokenSettings",
    "UrlSettings",
    "WorkerSettings",
    "flatten",
    "mask_password",
    "preset_keys",
    "reference_page",
]
