"""The documentation trees, which pip downloads: checked by SHA-256, stored in benchmarks/results/trees."""

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.command import EXAMPLES, ROOT

HERE = Path(__file__).parent
CACHE = ROOT / "benchmarks" / "results" / "trees"
SUFFIXES = (".md", ".rst")
PIP_TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, with the line that answers it unless it has no answer."""

    kind: str
    """`paraphrase`, `identifier`, `ordinary` or `unanswerable`."""
    text: str
    file: str = ""
    quote: str = ""
    """A part of the answering line."""
    lines: tuple[int, ...] = ()
    """The lines of the file that hold the quote, from 1."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A documentation tree and its questions."""

    name: str
    part: str
    files: dict[str, bytes]
    questions: list[Question]


def load_trees(names: tuple[str, ...]) -> Iterator[Tree]:
    """Yield the trees of these names; none means all.

    Raises:
        SystemExit: A name is unknown, or a tree can be neither found nor fetched.
    """
    described = yaml.safe_load((HERE / "trees.yaml").read_text(encoding="utf-8"))
    for name in names or tuple(described):
        if name not in described:
            raise SystemExit(f"there is no tree {name!r}; choose from {', '.join(described)}")
        tree = described[name]
        files = _read(fetch(tree["distribution"], tree["sha256"]), tree["folder"], tuple(tree["left_out"]))
        questions = (HERE / "questions" / f"{name}.jsonl").read_text(encoding="utf-8")
        yield Tree(name=name, part=tree["part"], files=files, questions=_locate(questions, files))


def quick_tree() -> Tree:
    """Return a tree of two files of examples/ with one question a kind."""
    files = {file.name: file.read_bytes() for file in sorted((EXAMPLES / "knowledge_base").glob("*.md"))[:2]}
    name, text = next((name, data.decode()) for name, data in files.items())
    line = max(text.splitlines(), key=len)
    kinds = ("paraphrase", "identifier", "ordinary")
    questions = [{"kind": kind, "question": line, "file": name, "quote": line} for kind in kinds]
    questions.append({"kind": "unanswerable", "question": "Who won the match?"})
    return Tree(
        name="examples", part="quick", files=files, questions=_locate("\n".join(map(json.dumps, questions)), files)
    )


def fetch(distribution: str, sha256: str) -> Path:
    """Return the source distribution, downloaded with pip unless it is in the cache."""
    name, _, version = distribution.partition("==")
    archive = CACHE / f"{name}-{version}.tar.gz"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            distribution,
        ]
        subprocess.run([*command, "--dest", str(CACHE)], check=False, timeout=PIP_TIMEOUT_S)
    if not archive.exists():
        raise SystemExit(f"pip could not download the source distribution of {distribution}, which holds its pages")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
        raise SystemExit(f"{archive} is not the file that the questions were written for: remove it and try again")
    return archive


def _read(archive: Path, folder: str, left_out: tuple[str, ...]) -> dict[str, bytes]:
    """Return the pages below `folder` by their path in it."""
    files = {}
    with tarfile.open(archive) as members:
        for member in members:
            path = member.name.partition("/")[2].removeprefix(f"{folder}/")
            inside = member.name.partition("/")[2].startswith(f"{folder}/")
            if inside and member.isfile() and path.endswith(SUFFIXES) and not path.startswith(left_out):
                content = members.extractfile(member)
                assert content is not None
                files[path] = content.read()
    return dict(sorted(files.items()))


def _locate(questions: str, files: dict[str, bytes]) -> list[Question]:
    """Read questions and find the lines of their quotes."""
    located = []
    for row in map(json.loads, questions.splitlines()):
        lines: tuple[int, ...] = ()
        if "quote" in row:
            content = files[row["file"]].decode(errors="replace").splitlines()
            lines = tuple(number for number, line in enumerate(content, 1) if row["quote"] in line)
            assert lines, row
        located.append(
            Question(
                kind=row["kind"],
                text=row["question"],
                file=row.get("file", ""),
                quote=row.get("quote", ""),
                lines=lines,
            )
        )
    return located
