"""Records, settings, errors, protocols, text analysis and telemetry.

Every other package may import this one; it imports none of them.
"""
