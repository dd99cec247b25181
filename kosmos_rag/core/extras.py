"""The extras that serving needs."""

from importlib.util import find_spec

from kosmos_rag.core.errors import ConfigError


def needed(*modules: str, extra: str = "service") -> None:
    """Raise ConfigError where a module of an extra is not installed."""
    if missing := [name for name in modules if find_spec(name) is None]:
        raise ConfigError(f"the service needs {', '.join(missing)}; install it: pip install 'kosmos-rag[{extra}]'")
