"""Schema grounding measured: Spider, and the questions over the example schema."""
