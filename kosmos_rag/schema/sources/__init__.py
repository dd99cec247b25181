"""Where schemas come from: models, live databases, JSON, dbt, Spider. Each file gives `DatabaseSchema`."""

from kosmos_rag.schema.sources.database import SampleRules, from_database
from kosmos_rag.schema.sources.dbt import from_dbt
from kosmos_rag.schema.sources.models import from_models
from kosmos_rag.schema.sources.schema_json import from_json, to_json
from kosmos_rag.schema.sources.source import SchemaSource
from kosmos_rag.schema.sources.spider import from_spider

__all__ = [
    "SampleRules",
    "SchemaSource",
    "from_database",
    "from_dbt",
    "from_json",
    "from_models",
    "from_spider",
    "to_json",
]
