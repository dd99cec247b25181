"""Plain words in everything that people read: tests/prose_words.txt lists the words to avoid."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import kosmos_rag

PACKAGE = Path(kosmos_rag.__file__).parent
ROOT = PACKAGE.parent
WORDS = ROOT / "tests" / "prose_words.txt"

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TEMPLATES = sorted((PACKAGE / "apps" / "http" / "console").rglob("*.html"))
SCRIPTS = sorted((PACKAGE / "apps" / "http" / "console").rglob("*.js"))

# Word lists that the package reads or searches for, and texts of examples.
DATA = {
    "kosmos_rag/answering/words.py",
    "kosmos_rag/text2sql/linking/words.py",
    "kosmos_rag/answering/prompt_injection.py",
    "examples/corporate/generate.py",
    "examples/schema/programs.py",
}
CODE = ["kosmos_rag", "benchmarks", "examples", "workers", "docs"]

CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_BETWEEN_LITERALS = re.compile(r"""["']\s*[rbfu]*["']""")
"""Between two parts of one text."""
CODE_SPAN = re.compile(r"`[^`\n]*`|\]\([^)\n]*\)")

Line = tuple[str, str]
"""File with line number, and text."""


def _words() -> list[tuple[re.Pattern[str], str]]:
    """Return the words to avoid, and what to write instead."""
    entries = [line for line in WORDS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    pairs = [entry.split(" => ") for entry in entries]
    return [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in pairs]


def _blank(match: re.Match[str]) -> str:
    """Replace code by spaces; line numbers remain."""
    return re.sub(r"[^\n]", " ", match[0])


def _markdown(file: Path) -> Iterator[Line]:
    text = CODE_SPAN.sub(_blank, CODE_BLOCK.sub(_blank, file.read_text(encoding="utf-8")))
    yield from _lines(file, text)


def _lines(file: Path, text: str) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), start=1):
        yield f"{file.relative_to(ROOT)}:{number}", line


def _python(file: Path) -> Iterator[Line]:
    """Yield docstrings, messages, help texts and comments of a module, one line at a time."""
    source = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield f"{file.relative_to(ROOT)}:{node.lineno + offset}", CODE_SPAN.sub(" ", line)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield f"{file.relative_to(ROOT)}:{token.start[0]}", token.string


@cache
def _any_word() -> re.Pattern[str]:
    return re.compile("|".join(pattern.pattern for pattern, _ in _words()), re.IGNORECASE)


def _may_have_words(file: Path) -> bool:
    """Return whether a word to avoid stands anywhere in a module: most need not be parsed."""
    return _any_word().search(_BETWEEN_LITERALS.sub("", file.read_text(encoding="utf-8"))) is not None


def _violations(lines: Iterator[Line]) -> list[str]:
    words, any_word = _words(), _any_word()
    return [
        f"{place} has {match[0]!r}, write: {advice}"
        for place, line in lines
        if any_word.search(line)
        for pattern, advice in words
        if (match := pattern.search(line))
    ]


def test_words__each_have_an_advice_and_match_themselves() -> None:
    words = _words()
    assert len(words) > 20
    assert _violations(iter([("page:1", "It is borne out, and the process turns.")])) == [
        "page:1 has 'borne out', write: supported",
        "page:1 has 'process turns', write: liveness check",
    ]


def test_pages__use_plain_words() -> None:
    violations = [entry for file in PAGES for entry in _violations(_markdown(file))]
    assert violations == [], "\n".join(violations)


def test_console__uses_plain_words() -> None:
    files = [*TEMPLATES, *SCRIPTS]
    violations = [entry for file in files for entry in _violations(_lines(file, file.read_text(encoding="utf-8")))]
    assert violations == [], "\n".join(violations)


def test_code__uses_plain_words() -> None:
    files = [file for folder in CODE for file in sorted((ROOT / folder).rglob("*.py"))]
    files = [file for file in files if file.relative_to(ROOT).as_posix() not in DATA]
    violations = [entry for file in files if _may_have_words(file) for entry in _violations(_python(file))]
    assert violations == [], "\n".join(violations)


@pytest.mark.parametrize(
    "code",
    [
        '"""It is borne out."""',
        "number = 1  # it is borne out",
        'message = (\n    "it is borne "\n    f"out by {number}"\n)',
        "message = 'it is borne ' 'out'",
        'def find():\n    """Find.\n\n    It is borne out.\n    """',
    ],
)
def test_python__has_words_in_texts_and_comments(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(code)
    assert _may_have_words(file)
    assert len(_violations(_python(file))) == 1
