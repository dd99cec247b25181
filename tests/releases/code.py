"""The code of an earlier revision, out of the history of the repository."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from kosmos_rag.storage.migrate import BREAKING, REVISION, script_location

ROOT = Path(__file__).parents[2]


def list_compatible() -> list[str]:
    """Return the oldest revision whose code can serve from the newest one, and the last before the newest."""
    compatible = sorted(path.name[:4] for path in _list_revisions() if max(BREAKING) <= path.name[:4] < REVISION)
    return sorted({*compatible[:1], *compatible[-1:]})


def export_code(revision: str, folder: Path) -> Path:
    """Write the last code of a revision into a folder.

    Skips the test where the clone has no history.
    """
    later = min(path.name for path in _list_revisions() if path.name[:4] > revision)
    # The code before the next revision came.
    commits = _git("log", "--diff-filter=A", "--format=%H", "--", f"migrations/versions/{later}").split()
    if not commits or not _git("rev-parse", "--quiet", "--verify", f"{commits[-1]}^"):
        pytest.skip(f"this clone does not have the commit before revision {later[:4]}: git fetch --unshallow")
    archive = subprocess.run(["git", "archive", f"{commits[-1]}^"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    assert f'REVISION = "{revision}"' in (folder / "kosmos_rag" / "storage" / "migrate.py").read_text()
    return folder


def _list_revisions() -> list[Path]:
    return list((script_location() / "versions").glob("[0-9]*.py"))


def _git(*arguments: str) -> str:
    """Return what git prints; nothing where it fails, or there is none."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""
