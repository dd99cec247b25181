"""Schema grounding: the tables, columns and joins that a question needs, from the documents of schemas."""

from kosmos_rag.grounding.grounding import SchemaGrounding
from kosmos_rag.grounding.linking import Weights
from kosmos_rag.grounding.result import GroundingResult, SchemaRef

__all__ = ["GroundingResult", "SchemaGrounding", "SchemaRef", "Weights"]
