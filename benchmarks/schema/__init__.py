"""Measure schema grounding on Spider and on the questions over the example schema."""
