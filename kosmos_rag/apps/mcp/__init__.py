"""The MCP server: a tenant's documents as tools of agents, over stdio or HTTP. The SDK is `mcp`, this is not."""
