"""Source code keeps its lines; without a grammar the beginnings of lines show the definitions, which are headings."""

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.text import code


@pytest.fixture(autouse=True)
def _without_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "has_grammar", lambda media_type: False)


PYTHON = '''"""A module of the
class of things that def initely end well."""

class Engine(Base):
    def run(self):
        return 1

    async def stop(self): ...


def main() -> None:
    pass
'''
SQL = """-- name: recent orders
SELECT * FROM orders;

CREATE TABLE orders (id int);
create or replace view big_orders as select 1;
CREATE INDEX CONCURRENTLY by_day ON orders (day);
-- CREATE is not at the begin of this line
"""
OTHERS = {
    "a.go": (
        "func (s *Server) Start(ctx int) error {\ntype Pool struct {\n// func of words\n",
        ["func (s *Server) Start", "type Pool"],
    ),
    "a.rs": (
        "pub(crate) async fn run<T>(x: T) {\nimpl<T> Store for Disk {\npub struct Key;\n",
        ["fn run", "impl<T> Store", "struct Key"],
    ),
    "a.ts": (
        "export default class App extends View {\nexport async function load() {\n",
        ["class App", "function load"],
    ),
    "a.java": ("public final class Main {\n  private static record Pair(int a) {}\n", ["class Main", "record Pair"]),
    "a.sh": ("set -e\nbuild() {\nfunction deploy () {\necho build\n", ["build", "function deploy"]),
    "a.rb": ("module Shop\n  class Cart\n    def empty?\n", ["module Shop", "class Cart", "def empty?"]),
    "a.c": ("int main(void) { return 0; }\n", []),
    "a.r": ("f <- function(x) x\n", []),
}


def parse_code(text: str, name: str) -> ParsedDocument:
    return parse(SourceDocument(source=name, data=text.encode()))


def titles(parsed: ParsedDocument) -> list[str]:
    return [heading.title for heading in parsed.headings]


def test_parse_code__python() -> None:
    parsed = parse_code(PYTHON, "a.py")
    assert parsed.text == PYTHON
    assert [(h.level, h.title) for h in parsed.headings] == [
        (1, "class Engine"),
        (2, "def run"),
        (2, "def stop"),
        (1, "def main"),
    ]
    assert parsed.find_section(parsed.text.index("return 1")) == ("class Engine", "def run")
    assert all(parsed.text[: h.start].endswith("\n") for h in parsed.headings)


def test_parse_code__sql() -> None:
    parsed = parse_code(SQL, "a.sql")
    assert parsed.text == SQL
    assert parsed.media_type == "application/sql"
    assert titles(parsed) == [
        "recent orders",
        "CREATE TABLE orders",
        "create or replace view big_orders",
        "CREATE INDEX CONCURRENTLY by_day ON orders",
    ]


@pytest.mark.parametrize("name", OTHERS)
def test_parse_code__other_languages(name: str) -> None:
    text, expected = OTHERS[name]
    parsed = parse_code(text, name)
    assert parsed.text == text
    assert titles(parsed) == expected


@pytest.mark.parametrize("name", ["a.py", "a.sql", "a.go", "a.sh", "a.rs"])
@pytest.mark.parametrize(
    "piece", ["CREATE ", " ", "\t", "def ", "pub ", "impl<", "func (", "a", "-- name:", "case case "]
)
def test_parse_code__hostile_lines_take_linear_time(name: str, piece: str) -> None:
    # A quarter of a megabyte in one line: were it quadratic, the time limit of the suite would end it.
    assert parse_code(piece * (250_000 // len(piece)) + "x", name).text.endswith("x")
