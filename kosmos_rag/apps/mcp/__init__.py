"""The MCP server: a tenant's documents as tools of agents, over stdio or HTTP."""
