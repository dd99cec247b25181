"""A copy of the library without its wings."""

import shutil
from pathlib import Path

import yaml

from kosmos_rag.core.mounting import SECTIONS
from tests.test_architecture import PACKAGE, ROOT, WINGS

SETTINGS = "rag-config.yaml"


def copy_without_wings(folder: Path) -> None:
    """Copy the package, its tests and the files that they read into a folder."""
    unused = shutil.ignore_patterns("__pycache__", *WINGS)
    shutil.copytree(PACKAGE, folder / "kosmos_rag", ignore=unused)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=unused)
    settings = yaml.safe_load((ROOT / SETTINGS).read_text())
    # A section of a wing that is absent is an unknown key.
    kernel_settings = {key: values for key, values in settings.items() if key not in SECTIONS}
    (folder / SETTINGS).write_text(yaml.safe_dump(kernel_settings))
    for path in ROOT.iterdir():
        if path.name not in ("kosmos_rag", "tests", SETTINGS, ".git"):
            (folder / path.name).symlink_to(path)
