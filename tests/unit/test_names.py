"""Identifiers are terms of the field: no participle or pronoun as a noun, and no preposition as a function."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import kosmos_rag
from benchmarks.source_trees import walk_statements

ROOT = Path(kosmos_rag.__file__).parent.parent
FOLDERS = [
    *sorted(str(path.parent.relative_to(ROOT)) for path in (ROOT / "kosmos_rag").glob("*/__init__.py")),
    *("workers", "benchmarks", "examples", "tests"),
]

PARTICIPLES = """
asked begun counted done drawn found given gone got held kept known lost made meant met named ordered ranked said seen
sent shown spoken taken told used wanted written
"""
PRONOUNS = "it one ours own theirs them they what which whose"
PREPOSITIONS = "above at before below beside between by for in of on over to under with within"
LAST_WORDS = frozenset({"at", "by", "of"})
"""What a function may not end with; the name of a property may: created_at."""

NO_NOUNS = frozenset(f"{PARTICIPLES} {PRONOUNS}".split())
NO_FUNCTIONS = NO_NOUNS | frozenset(PREPOSITIONS.split())

ALLOWED = {
    "kosmos_rag/core/types/audit.py": {"shown": "a field of the JSON of the audit log"},
    "kosmos_rag/core/types/jobs.py": {"lost": "a field of the JSON of a job", "seen": "a field of the JSON of a run"},
    "kosmos_rag/evaluation/offline/report.py": {"lost": "questions won and lost, as in a comparison of systems"},
    "kosmos_rag/text2sql/linking/weights.py": {"named": "the name of a part of a score, as results have it"},
}
"""Names that stay, by file, with the reason."""

SHARED_CLASS_NAMES = {
    "protocols of model servers": {"Cohere", "Jina", "Ollama", "OpenAI", "TextEmbeddingsInference", "VLLM", "Voyage"},
    "adapters of several frameworks": {"KosmosRetriever", "KosmosVectorStore"},
    "parts of several file formats": {"Paragraph", "Row", "Styles", "TextReader"},
}
"""Names of public classes that occur more than once, by what the classes are."""


def _is_refused_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return False
    words = node.name.strip("_").split("_")
    return words[0] in NO_FUNCTIONS if len(words) == 1 else words[-1] in LAST_WORDS


def _variables(node: ast.AST) -> Iterator[str | None]:
    """Yield the names that a node binds, without those of functions."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.ExceptHandler(name=name):
            yield name
        case ast.MatchMapping(rest=name) | ast.alias(asname=name):
            yield name


_BINDING = {
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Name, ast.Attribute, ast.arg, ast.MatchAs, ast.MatchStar),
    *(ast.ExceptHandler, ast.MatchMapping, ast.alias),
}
"""Types of the nodes that bind a name: one in four of all."""


def find_refused(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each identifier that is refused."""
    for node in ast.walk(tree):
        if type(node) not in _BINDING:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_refused_function(node):
            yield node.lineno, node.name
        for name in _variables(node):
            if name is not None and name.strip("_") in NO_NOUNS:
                yield getattr(node, "lineno", 0), name


@dataclass(frozen=True, kw_only=True)
class Module:
    """The names of a module that the tests compare."""

    refused: list[tuple[int, str]]
    functions: list[tuple[int, str]]
    """At its top."""
    classes: list[str]


@cache
def _read(file: Path) -> Module:
    tree = ast.parse(file.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Module(
        refused=list(find_refused(tree)),
        functions=[(node.lineno, node.name) for node in functions],
        classes=[node.name for node in walk_statements(tree) if isinstance(node, ast.ClassDef)],
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_identifiers__are_no_participles_pronouns_and_prepositions(folder: str) -> None:
    violations = []
    for file in sorted((ROOT / folder).rglob("*.py")):
        path = str(file.relative_to(ROOT))
        for line, name in _read(file).refused:
            if name not in ALLOWED.get(path, {}):
                violations.append(f"{path}:{line} {name}")
    assert violations == [], "name them for their role: \n" + "\n".join(violations)


def test_tests__are_named_for_a_unit_and_a_case() -> None:
    violations = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for line, name in _read(file).functions
        if name.startswith("test_") and "__" not in name
    ]
    assert violations == [], "name them test_<unit>__<case>: \n" + "\n".join(violations)


def test_allowed_names__are_still_in_use() -> None:
    for path, names in ALLOWED.items():
        refused = {name for _, name in _read(ROOT / path).refused}
        assert names.keys() <= refused, f"{path} has no name {sorted(names.keys() - refused)}: remove it from ALLOWED"


def test_public_classes__have_names_of_their_own() -> None:
    files = sorted((ROOT / "kosmos_rag").rglob("*.py"))
    counts = Counter(name for file in files for name in _read(file).classes if name[0] != "_")
    repeated = {name for name, count in counts.items() if count > 1}
    assert repeated == set().union(*SHARED_CLASS_NAMES.values())


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("found = hits.asked", ["found"]),
        ("for one, hit in hits:\n    self.kept = one", ["one", "kept"]),
        ("def find(given, *, _told=None):\n    pass", ["given", "_told"]),
        ("def line_at(offset):\n    pass", ["line_at"]),
        ("@property\ndef created_at(self):\n    pass", []),
        ("class Vector:\n    def of(self):\n        return kept(found=self.known)", ["of"]),
        ("import json as said", ["said"]),
        ("match value:\n    case {'key': asked, **held}:\n        pass", ["held", "asked"]),
        ("matches = [(hit := find(text)) for text in texts]", []),
    ],
)
def test_refused_identifiers__are_listed_with_every_kind_of_binding(code: str, names: list[str]) -> None:
    assert sorted(name for _, name in find_refused(ast.parse(code))) == sorted(names)
