"""The distributions that an installation of the project has, by pyproject.toml and what is installed here."""

import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def list_distributions(*extras: str) -> frozenset[str]:
    """Return the names of all distributions of an installation, without the project itself.

    Raises PackageNotFoundError where one is not installed here.
    """
    needed: set[tuple[str, str]] = set()
    pending = [requirement for extra in ("", *extras) for requirement in list_requirements(extra)]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        new = {(name, extra) for extra in ("", *requirement.extras)} - needed
        needed |= new
        pending += [more for _, extra in new for more in _list_extra_requirements(name, extra)]
    return frozenset(name for name, _ in needed)


def list_requirements(extra: str = "") -> Iterator[Requirement]:
    """Yield the requirements of an extra, or of the base installation, with those of the extras that it names."""
    for line in EXTRAS[extra] if extra else PROJECT["dependencies"]:
        requirement = Requirement(line)
        if requirement.name == NAME:
            for other in sorted(requirement.extras):
                yield from list_requirements(other)
        else:
            yield requirement


def _list_extra_requirements(name: str, extra: str) -> Iterator[Requirement]:
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def measure_bytes(names: frozenset[str]) -> int:
    """Return the size of distributions that are installed here, with their compiled modules."""
    paths = {file.locate() for name in names for file in distribution(name).files or ()}
    return sum(Path(path).stat().st_size for path in paths if Path(path).is_file())


def map_modules() -> dict[str, frozenset[str]]:
    """Return the canonical names of the distributions of each top-level module."""
    return {module: frozenset(map(canonicalize_name, names)) for module, names in packages_distributions().items()}


def is_installed(name: str) -> bool:
    """Return whether a distribution is installed here."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment of its own, with the wheel of this checkout."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        """The command line."""
        return self.folder / "bin" / "kosmos-rag"

    def measure(self) -> tuple[int, float]:
        """Return the number of distributions, and their megabytes with compiled modules."""
        (packages,) = self.folder.glob("lib/python*/site-packages")
        size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
        return len(list(packages.glob("*.dist-info"))), size / 1e6


def install(folder: Path, *extras: str) -> Environment:
    """Build the wheel, and install it with extras into a new environment."""
    run = [sys.executable, "-m"]
    subprocess.run(
        [*run, "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    requirement = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    subprocess.run(
        [*run, "pip", "--python", environment, "install", "--quiet", requirement], check=True, capture_output=True
    )
    return Environment(folder=environment)
