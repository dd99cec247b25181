"""The service of the tests of the page of checked answers."""

from tests.integration.apps.http.conftest import signer

__all__ = ["signer"]
