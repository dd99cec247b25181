"""The service of the tests of judged questions."""

from tests.integration.apps.http.conftest import browser, running, shared_service, signer

__all__ = ["browser", "running", "shared_service", "signer"]
