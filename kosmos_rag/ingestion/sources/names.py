"""Names of files: a named root, and the path in it."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import is_text

NO_ROOT = "."
"""The root whose documents are named by their path in it alone."""


def check_root(name: str) -> str:
    """Return the name of a root.

    Raises ValueError unless names of documents can begin with it.
    """
    parts = name.split("/")
    if name != NO_ROOT and (not is_text(name) or any(part.strip() in {"", ".", ".."} for part in parts)):
        raise ValueError(
            f"a root is a name such as handbook, or several with a slash between; {NO_ROOT} alone is no prefix"
        )
    return name


RootName = Annotated[str, AfterValidator(check_root)]


class FileNames:
    """Names the files at a path: root, slash, path in the root."""

    def __init__(self, path: Path, root: str | None) -> None:
        """Name the files at a path.

        Args:
            path: A folder, or one file.
            root: Name of the root; None for the name of the folder, which is the parent of a file.

        Raises:
            RequestError: The folder has no name.
        """
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 — resolve() would follow links
        if root is None and not self.path.name:
            raise RequestError(f"{self.path} has no name that documents could begin with; name its root")
        self._base = os.path.join(self.path, "")  # noqa: PTH118 — Path drops the slash
        self._prefix_of_file = _build_prefix(self.path.parent.name if root is None else root)
        self.prefix = _build_prefix(self.path.name if root is None else root)
        """What the names begin with where the path is a folder; empty for none."""
        self.title = self.prefix.rstrip("/") or printable(self.path.name)
        """The folder in messages, which readers may see: they do not say where it is."""

    def to_name(self, file: str | Path) -> str:
        """Return the name of a file at the path or below."""
        full = os.fspath(file)
        if full == os.fspath(self.path):
            return self._prefix_of_file + printable(self.path.name)
        return self.prefix + printable(full.removeprefix(self._base))

    def to_path(self, name: str) -> Path | None:
        """Return the path of a document by its name.

        The result is None for a document of another root.
        """
        relative = name.removeprefix(self.prefix)
        is_address = relative.startswith("/") or "://" in relative
        return None if is_address or not name.startswith(self.prefix) else self.path / relative


def default_name(path: Path, root: str | None = None) -> str:
    """Return the name of a file, or the root of a folder.

    Raises RequestError for a folder without a name.
    """
    names = FileNames(path, root)
    return names.to_name(names.path) if names.path.is_file() else names.prefix.rstrip("/")


def printable(path: str) -> str:
    """Return a path as text.

    Bytes that are not UTF-8 are escaped, and NUL.
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\x00", "\\x00")


def _build_prefix(root: str) -> str:
    return "" if root in {"", NO_ROOT} else f"{printable(root)}/"
