"""The commands `eval`, `experiment` and `monitor`."""
