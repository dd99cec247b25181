"""The tenant of the tests of the audit log."""

from tests.integration.storage.audit.conftest import acme, audited, shared_audited

__all__ = ["acme", "audited", "shared_audited"]
