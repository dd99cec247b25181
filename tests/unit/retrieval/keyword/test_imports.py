"""What the keyword context does without: machine learning, and for the classic ranking NumPy too."""

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = ("torch", "sentence_transformers", "transformers", "onnxruntime", "huggingface_hub", "sqlalchemy", "psycopg")
USE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # an import of it fails
from kosmos_rag.retrieval.keyword.context import KeywordContext
assert sys.modules.get("numpy") is None, "imported by the part"
made = KeywordContext.from_file({file!r}, ranking={ranking!r})
print(made.get_context("show total sales by region", k=1))
"""


@pytest.mark.parametrize(("ranking", "blocked"), [("classic", (*BLOCKED, "numpy", "rank_bm25")), ("bm25", BLOCKED)])
def test_keyword__is_used_without_models_and_database(
    schema_docs: Path, ranking: str, blocked: tuple[str, ...]
) -> None:
    code = USE.format(blocked=blocked, file=str(schema_docs), ranking=ranking)
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("3. Sales by Region:")
