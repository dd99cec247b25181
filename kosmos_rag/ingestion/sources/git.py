"""The files of a git repository at a branch or tag, as a source."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, BinaryIO, Literal
from urllib.parse import quote_from_bytes, unquote_to_bytes

from pydantic import AfterValidator, Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.core.section import Switch
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.files import attach_content, cache_folder
from kosmos_rag.ingestion.sources.git_repository import (
    FileChange,
    Repository,
    TreeFile,
    check_address,
    is_lfs_pointer,
    web_address,
)
from kosmos_rag.ingestion.sources.gitignore import Patterns
from kosmos_rag.ingestion.sources.listing import Entry, Listing, drop_duplicates
from kosmos_rag.ingestion.sources.spec import DocumentOptions, Name

_DEEPEST_SUBMODULE = 3
_LINKS = {
    "github": ("{web}/blob/{commit}/{path}", "#L{start}-L{end}"),
    "gitlab": ("{web}/-/blob/{commit}/{path}", "#L{start}-{end}"),
    "gitea": ("{web}/src/commit/{commit}/{path}", "#L{start}-L{end}"),
}
"""Addresses of a file in the web interface of a host, and of lines in it."""


class GitSpec(DocumentOptions):
    """A repository, what of it, and where it can be seen.

    Credentials come from git's own helpers or an SSH agent, and are never part of a spec.
    """

    kind: Literal["git"] = "git"
    name: Name
    """Begins the names of the documents: `git://name/path`."""
    url: Annotated[str, AfterValidator(check_address)]
    ref: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+@-]*$")
    """A branch or tag; None: the default branch."""
    include: tuple[str, ...] = ()
    """Patterns as in a .gitignore; empty: all files."""
    exclude: tuple[str, ...] = ()
    submodules: Switch = False
    """Take the files of submodules on the same host too."""
    lfs: Switch = False
    """Fetch files of Git LFS, which needs git-lfs; otherwise they are refused."""
    web: Literal["auto", "github", "gitlab", "gitea", "none"] = "auto"
    """Form of links to lines; auto: by the name of the host."""


class GitSource:
    """The files of a tree. Links and files that patterns leave out are skipped.

    A bare clone in the cache folder of this user is brought up to date by each pass, so an unchanged file is not read.
    """

    def __init__(self, spec: GitSpec, settings: IngestionSettings) -> None:
        """Compile the patterns and find git; nothing is fetched yet.

        Raises RequestError if a pattern is malformed, ConfigError if git is not installed.
        """
        self._spec = spec
        self._patterns = Patterns(spec.include, spec.exclude)
        self._settings = settings
        self._prefix = f"git://{spec.name}/"
        self._repositories = {spec.url: Repository(spec.url, cache_folder("git"))}
        self._fetches: set[tuple[str, str]] = set()
        """Addresses, and commits that were asked for there."""

    def listing(self) -> Listing:
        """Start a listing, in the order of git's tree."""
        entries = drop_duplicates(self._entries(), allow_in=self._prefix)
        return Listing(self._prefix, entries, self._covers, prefix=self._prefix)

    def load(self, entry: Entry) -> SourceDocument:
        """Read the file of an entry. Raises SourceError."""
        locator = entry.locator
        repository = self._repository(locator["url"])
        file = TreeFile(path=unquote_to_bytes(locator["path"]), object_id=locator["blob"], size=locator["size"])
        commit = self._find_commit(repository, locator)
        if not repository.has(file.object_id):
            raise SourceError(GONE, f"{entry.source} was removed after it was listed")
        content = repository.read(file, entry.source, self._settings)
        if isinstance(content, bytes) and is_lfs_pointer(content):
            content = self._read_large(repository, content, entry.source)
        change = repository.find_change(commit, file.path)
        document = self._spec.document(entry.source, b"", metadata=self._metadata(locator["url"], file, change))
        return attach_content(document, content)

    def _find_commit(self, repository: Repository, locator: Mapping[str, Any]) -> str:
        """Return the commit of a listing, or the newest one where it is gone. Raises SourceError.

        A commit that the server does not have is asked for once, while the content of the file is in the clone.
        """
        commit, ref = locator["commit"], locator["ref"]
        if repository.has(commit):
            return str(commit)
        if not repository.has(locator["blob"]):  # this clone is older than the listing
            newest = repository.update(ref, expected=locator["blob"])
        elif (locator["url"], commit) in self._fetches:
            return repository.find_newest(ref)
        else:
            self._fetches.add((locator["url"], commit))
            try:
                newest = repository.update(ref, expected=commit)
            except SourceError:
                newest = repository.find_newest(ref)
        return commit if repository.has(commit) else newest

    def _covers(self, source: str) -> bool:
        path = source.removeprefix(self._prefix)
        return path != source and self._patterns.admit(path, folder=False)

    def _repository(self, url: str) -> Repository:
        if url not in self._repositories:
            self._repositories[url] = Repository(check_address(url), cache_folder("git"))
        return self._repositories[url]

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        yield from self._tree(self._spec.url, self._spec.ref or "HEAD", folder=b"", depth=0)

    def _tree(self, url: str, ref: str, *, folder: bytes, depth: int) -> Iterator[Entry | IngestFailure]:
        repository = self._repository(url)
        commit = repository.update(ref)
        modules = repository.read_modules(commit) if self._spec.submodules else {}
        for file in repository.list_files(commit):
            path = folder + file.path
            if file.is_module:
                if module := modules.get(file.path):
                    yield from self._submodule(module, file, path, depth)
            elif self._patterns.admit(path.decode("utf-8", "surrogateescape"), folder=False):
                yield self._entry(url, ref, commit, file, path)

    def _submodule(self, url: str, file: TreeFile, path: bytes, depth: int) -> Iterator[Entry | IngestFailure]:
        name = self._prefix + path.decode("utf-8", "replace")
        if depth == _DEEPEST_SUBMODULE:
            message = f"{one_line(name)}: submodules are read {depth} deep; give it a source of its own"
            yield IngestFailure(source=name, code="unreadable", message=message)
            return
        try:
            yield from self._tree(url, file.object_id, folder=path + b"/", depth=depth + 1)
        except SourceError as error:
            yield IngestFailure(source=name, code=error.code, message=f"{one_line(name)}: {error}")

    def _entry(self, url: str, ref: str, commit: str, file: TreeFile, path: bytes) -> Entry:
        # The blob is the content: neither a commit elsewhere nor a new clone changes it.
        return Entry(
            source=self._prefix + path.decode("utf-8", "replace"),
            etag=self._spec.compute_etag(file.object_id, self._spec.web, self._spec.lfs),
            locator={
                "url": url, "ref": ref, "commit": commit, "blob": file.object_id, "size": file.size,
                "path": quote_from_bytes(file.path),
            },
        )  # fmt: skip

    def _read_large(self, repository: Repository, pointer: bytes, source: str) -> bytes | BinaryIO:
        if not self._spec.lfs:
            raise SourceError("refused", f"{source} is stored by Git LFS; set lfs: true, which needs git-lfs")
        return repository.read_large(pointer, source, self._settings)

    def _metadata(self, url: str, file: TreeFile, change: FileChange) -> dict[str, str]:
        metadata = {"commit": change.commit, "updated": change.date}
        web, form = web_address(url, self._spec.web)
        if web and form in _LINKS:
            link, lines = _LINKS[form]
            metadata["link"] = link.format(web=web, commit=change.commit, path=quote_from_bytes(file.path))
            metadata["link_lines"] = lines
        return metadata
