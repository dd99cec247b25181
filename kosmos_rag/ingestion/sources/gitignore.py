"""Which files of a folder are passed over: patterns of the spec, and ignore files as git reads them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.ingestion.sources.files import name_of, read_file

_LONGEST_IGNORE_FILE = 1024 * 1024
_Rule = tuple[int, GitIgnoreSpec]
"""Patterns, and where in a path that is relative to the root the part begins that they are about."""


class Patterns:
    """The patterns of a spec, as a .gitignore would have them: nothing else reads them the same way."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        """Raises RequestError where a pattern cannot be read."""
        self._include = _spec("include", include) if include else None
        self._exclude = _spec("exclude", exclude)

    def admit(self, path: str, *, folder: bool) -> bool:
        """Whether a path, relative to the root, is one to take.

        A folder need not be included itself.
        """
        if self._exclude.match_file(path + "/" if folder else path):
            return False
        return folder or self._include is None or self._include.match_file(path)


class IgnoreFiles:
    """The ignore files of one folder and those in it, each read once. Paths are relative to the folder; it is `""`."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self._root = root
        self._names = names
        self._chains: dict[str, tuple[_Rule, ...]] = {}

    def enter(self, folder: str) -> tuple[_Rule, ...]:
        """Return what the ignore files of a folder and those above it say, the nearest first.

        Raises SourceError: what cannot be read might ignore everything, so its folder must not be taken.
        """
        if folder not in self._chains:
            start = len(folder) + 1 if folder else 0
            found = (self._specs(self._root / folder / name) for name in self._names)
            own = tuple((start, spec) for specs in found for spec in specs)
            self._chains[folder] = own + (self.enter(folder.rpartition("/")[0]) if folder else ())
        return self._chains[folder]

    def ignore(self, path: str, *, folder: bool) -> bool:
        """Whether a path is ignored by a file beside or above it.

        The nearest that speaks of it decides.
        """
        for start, spec in self.enter(path.rpartition("/")[0]):
            if (ignored := spec.check_file(path[start:] + ("/" if folder else "")).include) is not None:
                return ignored
        return False

    def _specs(self, path: Path) -> Iterator[GitIgnoreSpec]:
        try:
            # Bytes that are not UTF-8 stand for themselves, as they do in the names of files.
            text = read_file(path, max_bytes=_LONGEST_IGNORE_FILE).decode("utf-8-sig", "surrogateescape")
        except SourceError as error:
            if error.code != "not_found":
                raise
            return
        try:
            yield GitIgnoreSpec.from_lines(text.splitlines())
        except ValueError as error:
            raise SourceError("unreadable", f"{name_of(path)} cannot be used ({error}); correct the pattern") from error


def _spec(key: str, patterns: Sequence[str]) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise RequestError(f"{key} holds a pattern that cannot be used ({error}); correct it") from error
