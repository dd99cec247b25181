"""Models of the hub, where it cannot be reached."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from kosmos_rag.core.config import ModelsSettings
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.models.download import pull_from_hub
from kosmos_rag.models.hub import resolve


@pytest.mark.parametrize("call", [resolve, pull_from_hub])
def test_hub__that_fails_in_its_transport_is_a_model_that_is_not_there(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the hub raises httpx's own errors from its release 1 on."""

    def refuse(*_: Any, **__: Any) -> None:
        raise httpx.ConnectError("connection refused")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    with pytest.raises(ModelUnavailable, match="ConnectError"):
        call("acme/model", ModelsSettings(cache_dir=tmp_path))
