"""What the caller of a route sees of files and vector stores."""

from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.engine.api_keys import ADMIN
from kosmos_rag.openai.files import TenantFiles
from kosmos_rag.openai.vector_stores import TenantVectorStores


def open_files(caller: Caller) -> TenantFiles:
    """Return the files that a caller sees; all for the scope admin."""
    return TenantFiles(caller.tenant(), administrator=caller.identity.has(ADMIN))


def open_vector_stores(caller: Caller) -> TenantVectorStores:
    """Return the vector stores with the files that a caller sees."""
    return TenantVectorStores(caller.tenant(), administrator=caller.identity.has(ADMIN))
