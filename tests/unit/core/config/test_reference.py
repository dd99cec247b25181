"""The code, rag-config.yaml and docs/configuration.md say the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kosmos_rag.core.config import EmbeddingSettings, Settings, flatten, reference_table
from kosmos_rag.core.config.keys import iter_documented_keys, iter_keys
from kosmos_rag.core.errors import ConfigError

ROOT = Path(__file__).parents[4]
CONFIG = ROOT / "rag-config.yaml"
MANUAL = ROOT / "docs" / "configuration.md"
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


def test_manual__holds_the_table_that_the_code_writes() -> None:
    result = re.search(r"<!-- keys: begin -->\n(.*)<!-- keys: end -->", MANUAL.read_text(), re.DOTALL)
    assert result is not None
    assert result[1] == reference_table(), (
        "run `python -m kosmos_rag.core.config` and put its output between the markers"
    )


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


def test_table__has_a_row_for_every_key_and_each_has_a_meaning() -> None:
    rows = [row.split(" | ") for row in reference_table().splitlines()[2:]]
    assert [row[0].strip("|` ") for row in rows] == list(DOCUMENTED)
    assert all(len(row) == 4 and len(row[3].strip("| ")) > 10 for row in rows)
    defaults = {row[0].strip("|` "): yaml.safe_load(row[2].strip("`")) for row in rows}
    assert defaults == {key: value for key, value in flatten(Settings()).items() if key in DOCUMENTED}


def test_module__prints_the_table() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "kosmos_rag.core.config"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert printed.stdout == reference_table()


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
