"""Check that the modules of an extra are installed."""

from importlib.util import find_spec

from kosmos_rag.core.errors import ConfigError


def require_extra(extra: str, *modules: str) -> None:
    """Raise ConfigError where a module of an extra is not installed."""
    if missing := [name for name in modules if find_spec(name) is None]:
        raise ConfigError(f"this needs {', '.join(missing)}; install it: pip install 'kosmos-rag[{extra}]'")
