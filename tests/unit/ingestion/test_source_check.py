"""The check of a source before its first pass."""

import json
from pathlib import Path

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.ingestion.source_check import check_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of seven documents."""
    path = tmp_path / "kb"
    path.mkdir()
    for number in range(7):
        (path / f"{number}.md").write_text(f"# {number}")
    return path


def test_check_source__counts_documents_and_readers(folder: Path) -> None:
    result = check_source({"kind": "folder", "path": str(folder), "acl": ["hr", "board"]}, IngestionSettings())
    assert (result.documents, result.complete, result.failures, result.unreadable) == (7, True, (), 0)
    assert result.examples == ("kb/0.md", "kb/1.md", "kb/2.md", "kb/3.md", "kb/4.md")
    assert result.readers == {"hr": 7, "board": 7}
    assert result.ok


def test_check_source__says_what_a_feed_leaves_without_readers(folder: Path, tmp_path: Path) -> None:
    lines = [
        {"container": "space", "principals": ["group:hr"]},
        {"document": "kb/0.md", "containers": ["space"]},
        {"document": "kb/1.md", "principals": ["user:ann", "group:hr"]},
        {"document": "kb/2.md", "principals": []},
    ]
    feed = tmp_path / "feed.jsonl"
    feed.write_text("\n".join(map(json.dumps, lines)))
    permissions = {"kind": "json_lines", "name": "wiki", "path": str(feed)}
    result = check_source({"kind": "folder", "path": str(folder), "permissions": permissions}, IngestionSettings())
    assert result.readers == {"group:hr": 2, "user:ann": 1}
    assert result.unreadable == 5
    assert result.unreadable_examples == ("kb/2.md", "kb/3.md", "kb/4.md", "kb/5.md", "kb/6.md")
    assert result.ok
    feed.write_text("{")
    broken = check_source({"kind": "folder", "path": str(folder), "permissions": permissions}, IngestionSettings())
    assert [failure.source for failure in broken.failures] == ["permission feed wiki"]
    assert broken.unreadable == 7
    assert not broken.ok


def test_check_source__reports_what_cannot_be_listed_or_read(folder: Path, tmp_path: Path) -> None:
    missing = check_source({"kind": "folder", "path": str(tmp_path / "nowhere")}, IngestionSettings())
    assert ([failure.code for failure in missing.failures], missing.complete) == (["not_found"], False)
    (folder / "0.md").write_bytes(b"x" * (1024 * 1024 + 1))
    large = check_source({"kind": "folder", "path": str(folder)}, IngestionSettings(max_file_mb=1))
    assert ([failure.code for failure in large.failures], large.complete, large.ok) == (["too_large"], True, False)


def test_check_source__refuses_a_malformed_spec() -> None:
    with pytest.raises(RequestError, match="path is missing"):
        check_source({"kind": "folder"}, IngestionSettings())
