"""Deliver events of a tenant to subscribers by signed HTTP requests (Standard Webhooks). A wing."""
