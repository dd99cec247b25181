"""Libraries that take long to import, and that a few modules use: each process of a run imports all test modules."""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def import_on_use(name: str) -> ModuleType:
    """Return a module that is imported when one of its attributes is first used."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
