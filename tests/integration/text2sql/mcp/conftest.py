"""The server of the tests of the MCP interface."""

from tests.integration.apps.mcp.conftest import running, shared_server, signer

__all__ = ["running", "shared_server", "signer"]
