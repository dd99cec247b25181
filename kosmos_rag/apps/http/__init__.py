"""The HTTP service: authenticates callers; row-level security limits what they read.

The command line creates API keys without the extra: only modules that serve import FastAPI.
"""
