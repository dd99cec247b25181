"""Measurements: run by `make bench…`. Tests run each with `--quick` alone, to see that the command works."""
