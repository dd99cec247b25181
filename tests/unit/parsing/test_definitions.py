"""Functions and types of source code as sections, by the grammar of the language."""

import pytest

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.document import fingerprint
from kosmos_rag.parsing import bounds, detect_small_text, parse
from kosmos_rag.parsing.sandbox.client import parse_confined
from kosmos_rag.parsing.text import definitions
from kosmos_rag.parsing.text.definitions import find_definitions

pytest.importorskip("tree_sitter", reason="needs kosmos-rag[code]")

PYTHON = '''import os

LIMIT = 1

# Starts the engine.
@cache
def run(a: int,
        b: int = 2) -> None:
    """def inner of a docstring"""
    return a


class Engine(Base):
    """An engine."""

    speed: int = 1

    async def stop(self):
        ...

    gear = 2


if __name__ == "__main__":
    run(1)
'''
OTHERS = {
    "a.js": (
        (
            "const add = (a, b) => {\n  return a;\n};\nexport default class App extends View {\n  async load() {\n"
            "    return 1;\n  }\n}\n"
        ),
        ["const add", "export default class App", "async load"],
    ),
    "a.tsx": (
        "export function App(p: Props): Element {\n  return <div>{p.x}</div>;\n}\ninterface Props {\n  a: string;\n}\n",
        ["export function App", "interface Props"],
    ),
    "a.ts": ("const a = <T>b;\nexport enum Kind {\n  A,\n}\n", ["export enum Kind"]),
    "a.go": (
        (
            "package a\n\n// Start runs.\nfunc (s *Server) Start() error {\n\treturn nil\n}\n\ntype Pool struct {\n"
            "\tn int\n}\n"
        ),
        ["func (s *Server) Start", "type Pool"],
    ),
    "a.rs": (
        (
            "#[derive(Debug)]\npub struct Key {\n  a: u8,\n}\nimpl<T> Store for Disk {\n  /// Gets it.\n  #[inline]\n"
            "  pub fn get(&self) -> u8 {\n    1\n  }\n}\n"
        ),
        ["pub struct Key", "impl<T> Store for Disk", "pub fn get"],
    ),
    "A.java": (
        'public class Main {\n  @Override @Deprecated(since="1") public int add(int a) {\n    return a;\n  }\n}\n',
        ["public class Main", "public int add"],
    ),
    "a.c": (
        "#include <a.h>\nstatic int *main(void) {\n  return 0;\n}\nstruct p {\n  int a;\n};\n",
        ["static int *main", "struct p"],
    ),
    "a.cpp": (
        "namespace n {\nclass A : B {\n  void f() {\n  }\n};\nvoid A::g() {\n}\n}\n",
        ["namespace n", "class A", "void f", "void A::g"],
    ),
    "a.h": ("class A {\n  void f() {\n  }\n};\n", ["class A", "void f"]),
    "a.cs": (
        "namespace N {\n  [Serial]\n  public class A {\n    public int F(int a) {\n      return a;\n    }\n  }\n}\n",
        ["namespace N", "public class A", "public int F"],
    ),
    "a.rb": (
        "module Shop\n  class Cart\n    def empty?\n      true\n    end\n  end\nend\n",
        ["module Shop", "class Cart", "def empty?"],
    ),
    "a.php": ("<?php\nclass B {\n  public function c($x) {\n    return 1;\n  }\n}\n", ["class B", "public function c"]),
    "a.sh": ("build() {\n  make\n}\n", ["build"]),
    "a.scala": ("object Main extends App {\n  def f(a: Int): Int = {\n    a\n  }\n}\n", ["object Main", "def f"]),
}


def parse_code(text: str, name: str) -> ParsedDocument:
    return parse(SourceDocument(source=name, data=text.encode()))


def find_section(parsed: ParsedDocument, text: str) -> tuple[str, ...]:
    return parsed.find_section(parsed.text.index(text))


def test_parse_code__sections_begin_with_their_comments_and_end_with_their_code() -> None:
    parsed = parse_code(PYTHON, "a.py")
    assert parsed.text == PYTHON
    assert find_section(parsed, "LIMIT") == ()
    for text in ("# Starts", "@cache", "b: int", "docstring", "return a"):
        assert find_section(parsed, text) == ("def run",)
    assert find_section(parsed, "speed") == ("class Engine",)
    assert find_section(parsed, "...") == ("class Engine", "async def stop")
    assert find_section(parsed, "gear") == ("class Engine",)
    assert find_section(parsed, "if __name__") == ()
    assert find_section(parsed, "run(1)") == ()


@pytest.mark.parametrize("name", OTHERS)
def test_parse_code__languages(name: str) -> None:
    text, expected = OTHERS[name]
    parsed = parse_code(text, name)
    assert parsed.text == text
    assert [heading.title for heading in parsed.headings] == expected


def test_parse_code__letters_of_several_bytes_before_a_definition() -> None:
    parsed = parse_code(f"# Grüße 東京 😀\n\nx = 'ä'\n\n{PYTHON}", "a.py")
    assert find_section(parsed, "return a") == ("def run",)
    heading = next(heading for heading in parsed.headings if heading.title == "class Engine")
    assert parsed.text[heading.start :].startswith("class Engine(Base)")


def test_parse_code__a_comment_after_code_belongs_to_that_code() -> None:
    parsed = parse_code("x = 1  # one\ndef f():\n    pass\n", "a.py")
    assert find_section(parsed, "# one") == ()
    assert find_section(parsed, "pass") == ("def f",)


def test_parse_code__files_with_errors_have_the_definitions_that_are_whole() -> None:
    parsed = parse_code("def f():\n    return 1\n\n)))) ((\n\nclass A:\n    x = 1\n", "a.py")
    assert find_section(parsed, "return 1") == ("def f",)
    assert find_section(parsed, "x = 1") == ("class A",)


def test_parse_code__a_file_without_definitions_has_no_sections() -> None:
    assert parse_code("print(1)\n", "a.py").headings == ()
    assert parse_code("f <- function(x) {\n  x\n}\n", "a.r").headings == ()


@pytest.mark.parametrize("name", ["a.py", "a.go", "a.js", "a.rs", "a.c", "a.rb"])
@pytest.mark.parametrize("piece", ["(", "{", "def f(", "class ", "/*", "# c\n", "f(function(){\n", "\\\n", "'"])
def test_parse_code__hostile_files_end(name: str, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some grammars take quadratic time: it is bounded."""
    monkeypatch.setattr(bounds, "MAX_GRAMMAR_S", 0.5)
    text = piece * (100_000 // len(piece)) + "x"
    assert parse_code(text, name).text == text


def test_parse_code__a_grammar_that_takes_too_long_leaves_the_beginnings_of_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_GRAMMAR_S", -1.0)
    parsed = parse_code(PYTHON * 20, "a.py")
    assert find_section(parsed, "gear") == ("class Engine", "def stop")


def test_parse_code__definitions_in_definitions_beyond_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = "".join(f"{' ' * level}def f{level}():\n" for level in range(60)) + " " * 60 + "pass\n"
    assert max(heading.level for heading in parse_code(nested, "a.py").headings) == bounds.MAX_HEADING_LEVEL
    monkeypatch.setattr(bounds, "MAX_HEADINGS", 10)
    assert len(parse_code("def f():\n    pass\n" * 50, "a.py").headings) == 10


def test_parse_code__names_with_line_breaks_are_one_line() -> None:
    parsed = parse_code("int\nmain\n(void) {\n  return 0;\n}\n", "a.c")
    assert [heading.title for heading in parsed.headings] == ["main"]


def test_parse_code__other_encodings() -> None:
    data = "def grüße():\n    return 'für Öl und Äpfel'\n".encode("cp1252")
    parsed = parse(SourceDocument(source="a.py", data=data))
    assert [heading.title for heading in parsed.headings] == ["def grüße"]


def test_detect_small_text__code_with_a_grammar_is_parsed_in_a_process() -> None:
    """The grammars are native code."""
    assert not detect_small_text(PYTHON.encode(), "a.py")
    assert detect_small_text(b"function f() end", "a.lua")
    parsed = parse_confined(SourceDocument(source="a.py", data=PYTHON.encode()), ParsingSettings())
    assert find_section(parsed, "return a") == ("def run",)


def test_fingerprint__differs_once_the_grammars_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = (SourceDocument(source=name, data=b"x") for name in ("a.py", "a.txt"))
    before = fingerprint(code, "key"), fingerprint(text, "key")
    monkeypatch.setattr("kosmos_rag.ingestion.document.has_grammar", lambda media_type: False)
    assert fingerprint(code, "key") != before[0]
    assert fingerprint(text, "key") == before[1]


def test_find_definitions__every_language_has_a_test() -> None:
    names = {"a.py", *OTHERS}
    languages = {parse_code(PYTHON if name == "a.py" else OTHERS[name][0], name).media_type for name in names}
    assert languages == set(definitions._GRAMMARS)
    assert find_definitions("", "text/x-python") == []


def test_find_definitions__each_type_of_a_group_in_go_has_its_lines() -> None:
    types = [f"\t// {name} is one.\n\t{name} struct {{\n\t\tn{name} int\n\t}}\n" for name in "AB"]
    parsed = parse_code("package a\n\ntype (\n" + "\n".join(types) + ")\n", "a.go")
    assert [heading.title for heading in parsed.headings] == ["A", "B"]
    assert [find_section(parsed, line) for line in ("A is one", "nA", "B is one", "nB")] == [
        ("A",),
        ("A",),
        ("B",),
        ("B",),
    ]


def test_find_definitions__do_not_search_a_long_line_again_for_each() -> None:
    """Each begins where it is, and not with the line, which has all of them."""
    headings = find_definitions("function f(){" * 1_000 + "\n" + "}" * 1_000, "text/javascript")
    far = [heading for heading in headings if heading.start > bounds.MAX_TITLE_CHARS]
    assert [heading.start for heading in far] == [13 * number for number in range(24, 1_000)]
    assert {heading.title for heading in far} == {"function f"}
