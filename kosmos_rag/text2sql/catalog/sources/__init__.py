"""Schema sources: models, live databases, JSON, dbt, Spider. Each returns `DatabaseSchema`."""

from kosmos_rag.text2sql.catalog.sources.database import SampleRules, from_database
from kosmos_rag.text2sql.catalog.sources.dbt import from_dbt
from kosmos_rag.text2sql.catalog.sources.models import from_models
from kosmos_rag.text2sql.catalog.sources.schema_json import from_json, to_json
from kosmos_rag.text2sql.catalog.sources.source import SchemaSource
from kosmos_rag.text2sql.catalog.sources.spider import from_spider

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
