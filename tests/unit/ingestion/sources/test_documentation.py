"""The examples of docs/sources.md are specs that open, and settings that load."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from kosmos_rag.core.config import IngestionSettings, Settings
from kosmos_rag.ingestion.sources.registry import KINDS, create_source

MANUAL = (Path(__file__).parents[4] / "docs" / "sources.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", MANUAL, re.DOTALL)
SPECS = [loaded for example in EXAMPLES if "kind" in (loaded := yaml.safe_load(example))]


@pytest.mark.parametrize("example", [text for text in EXAMPLES if text.startswith("# rag-config.yaml")])
def test_settings__of_the_manual_load(example: str, tmp_path: Path) -> None:
    (tmp_path / "rag-config.yaml").write_text(example)
    assert Settings.load(tmp_path / "rag-config.yaml").ingestion.urls.allowed_hosts


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["kind"])
def test_specs__of_the_manual_open(
    spec: dict[str, object], ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spec["kind"] in ("git", "rclone") and shutil.which(str(spec["kind"])) is None:
        pytest.skip(f"{spec['kind']} is not installed")
    monkeypatch.setenv("SUPPORT_MAIL_PASSWORD", "secret")
    monkeypatch.setenv("WIKI_TOKEN", "secret")
    monkeypatch.setenv("JIRA_TOKEN", "secret")
    monkeypatch.setenv("TICKETS_URL", "sqlite://")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DOCS_AUTHORIZATION", "Bearer token")
    create_source(spec, ingestion)


def test_manual__has_every_kind_and_every_key() -> None:
    assert {spec["kind"] for spec in SPECS} == set(KINDS)
    for model, _ in KINDS.values():
        for key in model.model_fields:
            assert re.search(rf"\b{key}:", MANUAL), key


def test_specs__of_the_manual_find_the_sample_documents(ingestion: IngestionSettings) -> None:
    root = Path(__file__).parents[4]
    for spec in (spec for spec in SPECS if spec["kind"] == "folder"):
        listing = create_source({**spec, "path": str(root / spec["path"])}, ingestion).listing()
        assert list(listing)
        assert listing.complete
