"""The service of the tests of the HTTP interface."""

from tests.integration.apps.http.conftest import signer

__all__ = ["signer"]
