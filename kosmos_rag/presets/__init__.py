"""Presets: settings that a collection goes by, whatever the process around it is configured to.

The YAML files beside this one are those that come with the library.
"""

from kosmos_rag.presets.collections import Collections, PerCollection, TenantCollections, settings_of_presets
from kosmos_rag.presets.preset import Preset, changes, load

__all__ = ["Collections", "PerCollection", "Preset", "TenantCollections", "changes", "load", "settings_of_presets"]
