"""A/B experiments: a share of queries is answered by a second configuration, or repeated with it in the background."""
