"""The code, rag-config.yaml, docs/settings.md and docs/configuration.md say the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kosmos_rag.core.config import EmbeddingSettings, Settings, flatten, reference_page
from kosmos_rag.core.config.keys import iter_documented_keys, iter_keys
from kosmos_rag.core.errors import ConfigError

ROOT = Path(__file__).parents[4]
CONFIG = ROOT / "rag-config.yaml"
MANUAL = ROOT / "docs" / "configuration.md"
REFERENCE = ROOT / "docs" / "settings.md"
DOCUMENTED = dict(iter_documented_keys(Settings))


def test_file__holds_every_key_with_its_default_in_the_order_of_the_code() -> None:
    settings, origins = Settings.load_with_origins(CONFIG)
    assert settings == Settings()
    assert {origins[key].level for key in DOCUMENTED} == {"file"}
    matches = re.findall(r"^ +(\w+): \S", CONFIG.read_text(), re.MULTILINE)
    assert matches == [key.rpartition(".")[2] for key in DOCUMENTED]


def test_file__has_each_description_above_its_key() -> None:
    matches = re.findall(r"^ +# (.+)\n +(\w+):", CONFIG.read_text(), re.MULTILINE)
    described = [(field.description, key.rpartition(".")[2]) for key, field in DOCUMENTED.items()]
    assert matches == described


def test_documented_keys__are_all_but_those_that_a_section_has_of_another() -> None:
    left_out = [key for key, _ in iter_keys(Settings) if key not in DOCUMENTED]
    assert left_out == [f"rag.next_embedding.{key}" for key in EmbeddingSettings.model_fields if key != "model"]


def test_reference__is_the_page_that_the_code_writes() -> None:
    assert REFERENCE.read_text() == reference_page(), "run `python -m kosmos_rag.core.config > docs/settings.md`"


def test_manual__shows_the_errors_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rag-config.yaml").write_text("rag: {retrieval: {topk: 5}}")
    monkeypatch.setenv("KOSMOS_RAG__RETRIEVAL__TOP_K", "0")
    with pytest.raises(ConfigError) as caught:
        Settings.load(overrides={"rag.embedding.dimensions": 512})
    manual = MANUAL.read_text()
    for fault in str(caught.value).split("; "):
        assert f"\n{fault}\n" in manual


def test_manual__file_example_is_valid(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        path = tmp_path / "example.yaml"
        path.write_text(example)
        assert Settings.load(path) != Settings()


def test_page__has_every_key_in_its_section_with_a_meaning() -> None:
    sections = re.findall(r"^## (\S+)\n\n(.+)\n\n((?:\|.*\n)+)", reference_page(), re.MULTILINE)
    rows = {name: [row.split(" | ") for row in table.splitlines()[2:]] for name, _, table in sections}
    keys = {name: [row[0].strip("|` ") for row in table] for name, table in rows.items()}
    assert all(key.rpartition(".")[0] == name for name, section in keys.items() for key in section)
    assert sorted(key for section in keys.values() for key in section) == sorted(DOCUMENTED)
    assert all(len(intent) > 10 for _, intent, _ in sections)
    every_row = [row for table in rows.values() for row in table]
    assert all(len(row) == 4 and len(row[3].strip("| ")) > 10 for row in every_row)
    defaults = {row[0].strip("|` "): yaml.safe_load(row[2].strip("`")) for row in every_row}
    assert defaults == {key: value for key, value in flatten(Settings()).items() if key in DOCUMENTED}


def test_module__prints_the_page() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "kosmos_rag.core.config"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert printed.stdout == reference_page()


def test_import__needs_nothing_heavy() -> None:
    # A bare package in the place of kosmos_rag: what its __init__ imports is not the configuration's doing.
    heavy = "'torch', 'numpy', 'sqlalchemy', 'psycopg', 'platformdirs', 'rich', 'typer'"
    code = (
        "import sys, types\n"
        "package = sys.modules['kosmos_rag'] = types.ModuleType('kosmos_rag')\n"
        f"package.__path__ = [{str(ROOT / 'kosmos_rag')!r}]\n"
        f"import kosmos_rag.core.config; print([name for name in ({heavy}) if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
