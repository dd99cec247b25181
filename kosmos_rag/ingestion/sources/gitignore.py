"""Patterns of a spec and ignore files, with the semantics of .gitignore."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.ingestion.sources.files import read_file

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MAX_IGNORE_FILE_BYTES = 1024 * 1024
_Rule = tuple[int, "GitIgnoreSpec"]
"""Length of the path prefix of the ignore file's folder, and the patterns for the remaining path."""


class Patterns:
    """Patterns of a spec, with the semantics of .gitignore."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        """Compile the patterns; raises RequestError if one is malformed."""
        self._include = _spec("include", include) if include else None
        self._exclude = _spec("exclude", exclude)

    def admit(self, path: str, *, folder: bool) -> bool:
        """Return whether a path, relative to the root, is included.

        A folder need not be included itself.
        """
        if self._exclude.match_file(path + "/" if folder else path):
            return False
        return folder or self._include is None or self._include.match_file(path)


class IgnoreFiles:
    """Ignore files of a folder and its subfolders, each read once.

    Paths are relative to the folder, which is `""`.
    """

    def __init__(self, root: Path, names: Sequence[str], to_name: Callable[[Path], str]) -> None:
        """Create the rules of a folder; nothing is read yet.

        Args:
            root: The folder.
            names: File names of ignore files, in the order of precedence.
            to_name: Returns the name of a file for messages.
        """
        self._root = root
        self._names = names
        self._to_name = to_name
        self._chains: dict[str, tuple[_Rule, ...]] = {}

    def load_rules(self, folder: str) -> tuple[_Rule, ...]:
        """Return the rules for a folder, the nearest file first.

        Raises SourceError: an unreadable file might ignore everything, so its folder must not be listed.
        """
        if folder not in self._chains:
            start = len(folder) + 1 if folder else 0
            specs_of_files = (self._specs(self._root / folder / name) for name in self._names)
            rules = tuple((start, spec) for specs in specs_of_files for spec in specs)
            self._chains[folder] = rules + (self.load_rules(folder.rpartition("/")[0]) if folder else ())
        return self._chains[folder]

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Return whether an ignore file excludes a path.

        The nearest file with a matching pattern decides.
        """
        for start, spec in self.load_rules(path.rpartition("/")[0]):
            if (ignored := spec.check_file(path[start:] + ("/" if folder else "")).include) is not None:
                return ignored
        return False

    def _specs(self, path: Path) -> Iterator["GitIgnoreSpec"]:
        name = self._to_name(path)
        try:
            # Bytes that are not UTF-8 match themselves, as in the names of files.
            text = read_file(path, name, max_bytes=_MAX_IGNORE_FILE_BYTES).decode("utf-8-sig", "surrogateescape")
        except SourceError as error:
            if error.code != "not_found":
                raise
            return
        try:
            yield _compile(text.splitlines())
        except ValueError as error:
            raise SourceError("unreadable", f"{name} cannot be used ({error}); correct the pattern") from error


def _compile(lines: Sequence[str]) -> "GitIgnoreSpec":
    require_extra("ingestion", "reading a folder", "pathspec")
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _spec(key: str, patterns: Sequence[str]) -> "GitIgnoreSpec":
    try:
        return _compile(patterns)
    except ValueError as error:
        raise RequestError(f"{key} contains a pattern that cannot be used ({error}); correct it") from error
