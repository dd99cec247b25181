"""Benchmarks, which `make bench…` runs. A test runs each with `--quick`, to check that the command works."""
