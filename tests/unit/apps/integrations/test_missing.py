"""An adapter without its library says what to install."""

import sys
from importlib import import_module

import pytest

from kosmos_rag.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("langchain", "langchain_core.callbacks", "langchain"),
        ("llama_index", "llama_index.core.retrievers", "llama-index"),
        ("haystack", "haystack", "haystack"),
    ],
)
def test_adapter__without_its_library_names_the_extra(
    name: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"kosmos_rag.apps.integrations.{name}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf"pip install 'kosmos-rag\[{extra}\]'"):
        import_module(f"kosmos_rag.apps.integrations.{name}")
