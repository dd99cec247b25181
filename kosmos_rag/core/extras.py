"""Errors of packages that an extra of the installation would bring."""

from collections.abc import Callable
from importlib.util import find_spec

from kosmos_rag.core.errors import ConfigError, KosmosError

ErrorFactory = Callable[[str], KosmosError]


def missing_extra(
    extra: str, purpose: str, *modules: str, alternative: str = "", error: ErrorFactory = ConfigError
) -> KosmosError:
    """Return the error of a missing package, with the command that installs it.

    Args:
        extra: Name of the extra in pyproject.toml.
        purpose: What needs it, as the subject of a sentence.
        alternative: What to do instead, after "or".
        error: Creates the error from its message.
    """
    remedy = f", or {alternative}" if alternative else ""
    return error(f"{purpose} needs {' and '.join(modules)}: pip install 'kosmos-rag[{extra}]'{remedy}")


def require_extra(
    extra: str, purpose: str, *modules: str, alternative: str = "", error: ErrorFactory = ConfigError
) -> None:
    """Raise the error of `missing_extra` where a module is not installed.

    Args:
        extra: Name of the extra in pyproject.toml.
        purpose: What needs it, as the subject of a sentence.
        modules: Modules that the extra brings.
        alternative: What to do instead, after "or".
        error: Creates the error from its message.
    """
    if missing := [name for name in modules if not is_installed(name)]:
        raise missing_extra(extra, purpose, *missing, alternative=alternative, error=error)


def is_installed(module: str) -> bool:
    """Return whether a module can be imported; its parent packages are imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
