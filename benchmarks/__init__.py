"""Measurements: run by `make bench`, never as tests."""
