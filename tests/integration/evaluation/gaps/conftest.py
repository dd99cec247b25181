"""The service and the browser of the tests of the page of gaps."""

from tests.integration.apps.http.conftest import browser, signer

__all__ = ["browser", "signer"]
