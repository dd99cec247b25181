"""The examples and the README's code, run as they are."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.model


@pytest.fixture(scope="module", autouse=True)
def vectors() -> Iterator[dict[str, Any]]:
    """Vectors of the real model by text: both examples read the same documents, and embed each text once."""
    from sentence_transformers import SentenceTransformer

    vectors: dict[str, Any] = {}
    encode = SentenceTransformer.encode

    def encode_new(model: SentenceTransformer, texts: list[str], **options: Any) -> Any:
        if new := list(dict.fromkeys(text for text in texts if text not in vectors)):
            vectors.update(zip(new, encode(model, new, **options), strict=True))
        return np.stack([vectors[text] for text in texts])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentenceTransformer, "encode", encode_new)
        yield vectors


def test_demo__ingests_the_sample_and_cites_the_right_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--data-dir", str(tmp_path / "database")])
    monkeypatch.setenv("COLUMNS", "200")
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "6 new, 0 changed, 0 unchanged" in shown
    assert "How is churn calculated?" in shown
    assert re.search(r"example_sql\.md \| Churn Calculation \| L\d+ to L\d+", shown)
    assert re.search(r"\[1\] runbooks\.md \|", shown)


def test_readme__code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KOSMOS_DATABASE__DATA_DIR", str(tmp_path / "database"))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert re.search(r"^\[1\] knowledge_base/\w+\.md .* L\d+", capsys.readouterr().out, re.MULTILINE)
