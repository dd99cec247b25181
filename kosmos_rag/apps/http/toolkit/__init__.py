"""Callers, limits, errors and streams of the services and the wings."""
