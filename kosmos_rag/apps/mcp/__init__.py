"""The MCP server: a tenant's documents as tools of agents.

It runs over stdio or HTTP.
"""
