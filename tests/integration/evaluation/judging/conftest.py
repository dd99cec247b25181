"""The service of the tests of judged questions."""

from tests.integration.apps.http.conftest import running, shared_service, signer

__all__ = ["running", "shared_service", "signer"]
