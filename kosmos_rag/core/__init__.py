"""Records, settings, errors, protocols, text analysis and telemetry: what every other package may import."""
