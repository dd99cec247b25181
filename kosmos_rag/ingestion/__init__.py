"""Ingestion, from bytes to stored chunks.

It consists of sources, parsers, chunkers and the pipeline.
"""
