"""The groups of readers, as a wing knows them."""

from kosmos_rag.engine.query_hooks import Directory, Membership
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.tenants import tenant as tenant_ref


class DirectoryReader:
    """Reads the groups of readers on connections of its own. Thread-safe."""

    def __init__(self, pool: ConnectionPool, directory: Directory) -> None:
        self._pool = pool
        self._directory = directory

    def find(self, tenant: str, subject: str) -> Membership | None:
        """Return the groups of a reader now; None where no directory knows the reader. Raises DatabaseError.

        Args:
            tenant: Name of the organisation that the reader belongs to.
            subject: The reader, as the caller authenticated it.
        """
        owner = tenant_ref(tenant)
        with self._pool.transaction(owner.id, ()) as connection:
            return self._directory.find(connection, owner, subject)

    def close(self) -> None:
        """Close the connections. Lookups that run fail."""
        self._pool.close()
