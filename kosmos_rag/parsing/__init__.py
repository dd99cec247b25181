"""Parse the bytes of a document into text with structure for citations.

The media type is found by content. Each type has one parser, a function from bytes to ParsedDocument.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kosmos_rag.parsing.detection import detect, detect_small_text
    from kosmos_rag.parsing.file_parser import parse
    from kosmos_rag.parsing.limits import OutputLimits

__all__ = ["OutputLimits", "detect", "detect_small_text", "parse"]

_HOME = {"OutputLimits": "limits", "detect": "detection", "detect_small_text": "detection", "parse": "file_parser"}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562).

    A process that parses nothing then imports no parser.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
