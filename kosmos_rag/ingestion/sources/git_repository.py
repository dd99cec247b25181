"""A bare clone of a git repository, read by git itself."""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.parts import may_have_parts
from kosmos_rag.ingestion.sources.files import read_content, too_large_error
from kosmos_rag.ingestion.sources.programs import (
    LONGEST_S,
    Program,
    ProgramFailed,
    inherited_environment,
    read_blocks,
    read_records,
)

SILENCE_S = 600.0
"""Seconds without output after which git is ended; a fetch reports its progress."""
LFS_SILENCE_S = 1800.0
"""The same for Git LFS, which writes a file once it has all of it."""

_UPKEEP = (
    ("repack", "-d", "-l", "--geometric=2"),
    ("commit-graph", "write", "--reachable", "--changed-paths", "--split", "--progress"),
)
"""What keeps a clone of many fetches small, and finds the last commit of a file without comparing the trees of all."""
_LEFTOVERS = (
    "objects/pack/.tmp-*",
    "objects/pack/tmp_*",
    "objects/info/commit-graphs/*.lock",
    "refs/kosmos/*.lock",
)
"""What git leaves where it is ended: space, and locks that refuse each later call."""
_SCHEMES = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"(?P<user>[A-Za-z0-9._-]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>[^/\\:][^:]*)")
_MODULE = b"160000"
_FILES = (b"100644", b"100755")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_LARGEST_POINTER = 1024
_LOCAL = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX",
})  # fmt: skip
"""Variables that point git to another repository, as within one of its hooks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeFile:
    """A file, or a submodule, of a tree."""

    path: bytes
    object_id: str
    """Of a file its blob, of a submodule its commit."""
    size: int = 0
    is_module: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """The commit that changed a file last."""

    commit: str
    date: str
    """Author's date, as ISO 8601."""


class Repository:
    """A repository and its bare clone. Thread-safe; processes of one user share the clone."""

    def __init__(self, url: str, folder: Path) -> None:
        """Find git; nothing is fetched yet. Raises ConfigError if it is not installed.

        Args:
            url: address or path of the repository.
            folder: folder of the clones.
        """
        self._url = url
        self._title = one_line(url)
        self._folder = folder / blake2b(url.encode(), digest_size=16).hexdigest()
        self._git = Program(
            "git",
            install="apt-get install git",
            # Neither hooks nor commands that an address could name are run.
            arguments=("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "gc.auto=0"),
            environment=inherited_environment(_LOCAL, GIT_TERMINAL_PROMPT="0", LC_ALL="C"),
        )

    def update(self, ref: str, *, expected: str | None = None) -> str:
        """Fetch a branch, tag or commit and return its commit.

        Raises SourceError.

        Args:
            ref: the branch, tag or commit.
            expected: an object that another process may have fetched meanwhile; then nothing is fetched.
        """
        with self._locked():
            if expected is None or not self.has(expected):
                self._call("fetch", "--progress", "--force", "--no-tags", "--", self._url, f"+{ref}:{_name_ref(ref)}")
                for arguments in _UPKEEP:
                    with suppress(ProgramFailed):  # of an older git; the clone is only slower then
                        self._git.run(*arguments, silence_s=LONGEST_S, folder=self._folder)
            return self.find_newest(ref)

    def find_newest(self, ref: str) -> str:
        """Return the commit that a branch or tag had at its last fetch. Raises SourceError."""
        return self._call("rev-parse", "--verify", f"{_name_ref(ref)}^{{commit}}").decode().strip()

    def has(self, object_id: str) -> bool:
        """Return whether the clone has an object."""
        try:
            self._git.run("cat-file", "-e", object_id, silence_s=SILENCE_S, folder=self._folder)
        except (ProgramFailed, OSError):
            return False
        return True

    def list_files(self, commit: str) -> Iterator[TreeFile]:
        """Yield the files and submodules of a commit; links are left out. Raises SourceError."""
        with (
            self._translate_errors(),
            self._git.stream("ls-tree", "-r", "-l", "-z", commit, silence_s=SILENCE_S, folder=self._folder) as output,
        ):
            for record in read_records(output):
                described, _, path = record.partition(b"\t")
                mode, _, object_id, size = described.split()
                if mode == _MODULE:
                    yield TreeFile(path=path, object_id=object_id.decode(), is_module=True)
                elif mode in _FILES:
                    yield TreeFile(path=path, object_id=object_id.decode(), size=int(size))

    def read(self, file: TreeFile, name: str, settings: IngestionSettings) -> bytes | BinaryIO:
        """Return the content of a file, as `read_content` does.

        Raises SourceError, with the name in its message.
        """
        _check_size(file.size, name, settings)
        with (
            self._translate_errors(),
            self._git.stream("cat-file", "blob", file.object_id, silence_s=SILENCE_S, folder=self._folder) as output,
        ):
            return read_content(read_blocks(output), name, settings)

    def read_large(self, pointer: bytes, name: str, settings: IngestionSettings) -> bytes | BinaryIO:
        """Return the content that a pointer of Git LFS refers to, as `read_content` does. Raises SourceError."""
        if size := re.search(rb"^size (\d+)$", pointer, re.MULTILINE):
            _check_size(int(size[1]), name, settings)
        try:
            stream = self._git.stream("lfs", "smudge", silence_s=LFS_SILENCE_S, folder=self._folder, data=pointer)
            with stream as output:
                content = read_content(read_blocks(output), name, settings)
        except ProgramFailed as error:
            remedy = "install git-lfs, and check that the server has the file"
            raise SourceError("unavailable", f"{name} cannot be fetched by Git LFS: {error}; {remedy}") from error
        if isinstance(content, bytes) and is_lfs_pointer(content):
            raise SourceError("unavailable", f"{name} is not on the server of Git LFS; push it there")
        return content

    def find_change(self, commit: str, path: bytes) -> FileChange:
        """Return the last commit up to `commit` that changed a file. Raises SourceError."""
        literal = ":(literal)" + path.decode("utf-8", "surrogateescape")
        line = self._call("log", "-1", "--no-show-signature", "--format=%H%x00%aI", commit, "--", literal)
        last, _, date = (line.decode().strip() or f"{commit}\0").partition("\0")
        return FileChange(commit=last, date=date)

    def read_modules(self, commit: str) -> dict[bytes, str]:
        """Return the addresses of submodules by their path.

        Those on other hosts are left out: what a repository names is not what an operator allows.
        """
        try:
            arguments = ("config", "--blob", f"{commit}:.gitmodules", "--null", "--list")
            listed = self._git.run(*arguments, silence_s=SILENCE_S, folder=self._folder)
        except ProgramFailed:
            return {}
        values: dict[str, dict[str, str]] = {}
        for record in listed.decode("utf-8", "surrogateescape").split("\0"):
            key, _, value = record.partition("\n")
            if match := re.fullmatch(r"submodule\.(.+)\.(path|url)", key):
                values.setdefault(match[1], {})[match[2]] = value
        modules = {}
        for module in values.values():
            if len(module) == 2 and (url := _resolve_module(self._url, module["url"])):
                modules[module["path"].encode("utf-8", "surrogateescape")] = url
        return modules

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the clone, and make it where there is none: two fetches at once would fail."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / "kosmos.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (self._folder / "HEAD").exists():
                    self._call("init", "--quiet", "--bare", ".")
                    self._call("config", "remote.origin.url", self._url)
                for pattern in _LEFTOVERS:
                    for path in self._folder.glob(pattern):
                        path.unlink()
                yield
        except OSError as error:
            raise SourceError(
                "unreadable", f"the clone of {self._title} cannot be written to {self._folder}: {error}"
            ) from error

    def _call(self, *arguments: str) -> bytes:
        with self._translate_errors():
            return self._git.run(*arguments, silence_s=SILENCE_S, folder=self._folder)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ProgramFailed as error:
            raise _refusal(self._title, error) from error


def check_address(url: str) -> str:
    """Return the address of a repository, made absolute where it is a path.

    Raises ValueError with the fault.
    """
    parts = urlsplit(url)
    if "://" in url:
        if parts.scheme not in _SCHEMES:
            raise ValueError(f"it must begin with one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}")
        if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
            raise ValueError(
                "it must not contain a user or password, because it is stored: use git's credential helper"
            )
        return url
    if _SCP.fullmatch(url):
        return url
    if "::" in url or url.startswith("-") or not url.strip():
        raise ValueError("it must be an address or a path")
    return str(Path(url).absolute())


def is_lfs_pointer(data: bytes) -> bool:
    """Return whether a file is a pointer of Git LFS."""
    return len(data) <= _LARGEST_POINTER and data.startswith(_LFS_POINTER)


def web_address(url: str, form: str) -> tuple[str | None, str]:
    """Return the web address of a repository, if any, and the form of its links.

    Args:
        url: address of the repository.
        form: `github`, `gitlab`, `gitea`, `none`, or `auto`: by the name of the host.
    """
    if "://" not in url and (scp := _SCP.fullmatch(url)):
        host, path = scp["host"], scp["path"]
    else:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
        if parts.scheme in ("http", "https") and parts.port:
            host = f"{host}:{parts.port}"
    if form == "auto":
        names = {"github": "github", "gitlab": "gitlab", "gitea": "gitea", "codeberg": "gitea", "forgejo": "gitea"}
        form = next((kind for name, kind in names.items() if name in host), "none")
    if not host or form == "none":
        return None, form
    scheme = "http" if url.startswith("http://") else "https"
    return f"{scheme}://{host}/{path.strip('/').removesuffix('.git')}", form


def _resolve_module(parent: str, url: str) -> str | None:
    """Return the address of a submodule; None if it is on another host."""
    if url.startswith(("./", "../")):
        if scp := _SCP.fullmatch(parent):
            return f"{scp['user'] or ''}{scp['host']}:{urljoin('/' + scp['path'] + '/', url).lstrip('/')}"
        resolved = urljoin(parent + "/", url) if "://" in parent else str((Path(parent) / url).resolve())
        return resolved.rstrip("/")
    try:
        address = check_address(url)
    except ValueError:
        return None
    return address if _host(address) == _host(parent) else None


def _check_size(size: int, name: str, settings: IngestionSettings) -> None:
    if size > settings.max_file_bytes and not may_have_parts(name):
        raise too_large_error(name, settings.max_file_bytes)


def _name_ref(ref: str) -> str:
    return f"refs/kosmos/{blake2b(ref.encode(), digest_size=16).hexdigest()}"


def _host(url: str) -> str:
    if "://" not in url and (scp := _SCP.fullmatch(url)):
        return scp["host"]
    return urlsplit(url).hostname or ""


def _refusal(title: str, error: ProgramFailed) -> SourceError:
    message = str(error)
    lowered = error.output.lower()
    if error.code is None:
        return SourceError("unavailable", f"{title}: {message}; try again later")
    if "couldn't find remote ref" in lowered or "not a valid object name" in lowered:
        return SourceError("not_found", f"{title} has no such branch or tag ({message}); check ref")
    if "host key verification failed" in lowered:
        reason = "this user does not know the key of its host, or knows another one"
        return SourceError("no_permission", f"{title}: {reason}; connect once by ssh")
    if any(words in lowered for words in ("authentication failed", "permission denied", "could not read username")):
        return SourceError("no_permission", f"{title} may not be read ({message}); set up git's credentials")
    missing = ("not found", "does not exist", "not appear to be a git repository", "repository not exported")
    if any(words in lowered for words in missing):
        return SourceError("not_found", f"{title} does not exist or is not visible ({message}); check url")
    return SourceError("unavailable", f"{title} cannot be read: {message}; try again later")
