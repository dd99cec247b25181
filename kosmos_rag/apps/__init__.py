"""Processes and interfaces: command line, HTTP service, MCP server, worker, client, integrations."""
