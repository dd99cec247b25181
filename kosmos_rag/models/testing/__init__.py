"""Light stand-ins for models, so that tests and examples run without one."""
