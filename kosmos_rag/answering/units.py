"""Units of an answer: sentences, list items, table rows and code blocks.

The text is Markdown, reStructuredText, AsciiDoc, Org, LaTeX, or plain with the tables of the parsers.

Headings, rules, directives, labels, template tags, HTML tags, comments and front matter belong to no unit. The grammars
are those of CommonMark 0.31, MyST, docutils, AsciiDoc, Org and LaTeX, as far as they decide where a unit ends.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from kosmos_rag.core.text.sentences import sentences
from kosmos_rag.core.types import UnitKind

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,}|:{3,})[ \t]*(?P<info>[^`\n]*)$")
_TEXT_DIRECTIVE = re.compile(r"\{(?!(?:code|sourcecode|literalinclude|highlight|math|parsed-literal)\b)[^}]*\}")
_ITEM = re.compile(r"[ \t]*(?:>[ \t]*)*(?:[-+•.]|\*{1,5}|\d{1,3}[.)]|#\.)[ \t]+")
_ROW = re.compile(r"[ \t]*\|.*")
_CELL_END = re.compile(r"(?<!\\)\|")
_ROW_RULE = re.compile(r"[ \t]*(?:\|[ \t]*[-:]+[ \t:|+-]*|\+[-=+]+\+|\|={3,})[ \t]*")
_TABLE_RULE = re.compile(r"[ \t]*={2,}(?:[ \t]+={2,})+[ \t]*")
"""Of a simple table of reStructuredText."""
_RULE = re.compile(r"""[ \t]*([=\-~^"'#*+.:_])\1{2,}[ \t]*""")
"""A thematic break, or a line below or above a heading."""
_NO_TEXT = re.compile(
    r"""
    [ \t]*(?:
        \#{1,6}(?:[ \t].*)?                          # a heading of Markdown
      | ={1,6}[ \t]+[^\s=].*                         # a heading of AsciiDoc
      | <h[1-6][ >].*</h[1-6]>[ \t]*                 # a heading of HTML
      | \\(?:part|chapter|(?:sub){0,2}section|paragraph|title)\*?(?:\[[^\]]*\])?\{.*\}[ \t]*  # of LaTeX
      | (?:\{%.*%\}|\{\{.*\}\}|\{\#.*\#\})[ \t]*       # a template tag
      | !\[[^\]]*\]\([^)]*\)[ \t]*                   # a picture
      | (?:>[ \t]*)+                                  # an empty line of a block quote
      | <!--.*-->[ \t]* | </?[a-zA-Z][^<>]*>[ \t]*   # an HTML comment or tag
      | \[(?:source|listing|literal)\b[^\]]*\][ \t]* # the style of a listing of AsciiDoc
      | \([\w.:-]+\)=[ \t]*                          # a label of MyST
      | \.\.(?:[ \t]+(?:_.*:|\[.*|\|.*|[^:]*))?      # a label, a footnote, a substitution or a comment
    )
    """,
    re.VERBOSE,
)
_DIRECTIVE = re.compile(r"(?P<indent>[ \t]*)\.\.[ \t]+(?P<name>[\w:.+-]+)::[ \t]*(?P<rest>.*)")
_CODE_DIRECTIVES = frozenset(("code", "code-block", "sourcecode", "parsed-literal", "prompt", "doctest", "math"))
_LISTING = re.compile(
    r"[ \t]*(?:\#\+begin_(?P<org>src|example)\b.*|\\begin\{(?P<tex>verbatim\*?|lstlisting|minted)\}.*)", re.IGNORECASE
)
"""The first line of a listing of Org or LaTeX."""
_LISTING_STYLE = re.compile(r"\[(?:source|listing|literal)\b[^\]]*\][ \t]*")
_LISTING_DELIMITER = re.compile(r"(-{4,}|\.{4,})[ \t]*")
"""Above and below a listing of AsciiDoc."""
_STATEMENT = re.compile(
    r"""
    (?:[ \t]*--[^\n]*\n)*[ \t]*(?:
        select\b[^;]*\bfrom\b
      | with\s+(?:recursive\s+)?[\w"]+\s*(?:\([^)]*\)\s*)?as\s*\(
      | (?:create|alter|drop)\s+(?:\w+\s+){0,3}(?:table|view|index|schema|function|type|database|role|policy)\b
      | (?:insert|merge)\s+into\b | delete\s+from\b | update\s+\S+\s+set\b
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BLOCK_LINES = 200
"""Of a statement, comment or tag, whose end is searched."""
_STATEMENT_START = re.compile(
    r"[ \t]*(?:--|(?:select|with|create|alter|drop|insert|merge|delete|update)\b)", re.IGNORECASE
)
_CLOSINGS = {"<!--": "-->", "{%": "%}", "{#": "#}", "{{": "}}"}
"""Ends of comments and template tags, by their beginnings."""
COLONS = (":", "\uff1a")
_TITLE_LINES = 3
_OPTION = re.compile(r"[ \t]+:[\w-]+:.*")
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?:(?:[\w.-]+[ \t]*:|[ \t]+|-[ \t]|\#)[^\n]*\n)+(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_PLAIN_TITLE = re.compile(
    r"(?P<number>\d+(?:\.\d+)*[.)]?[ \t]+)?(?P<words>[^\W\d_][^\n|`<>]{0,78}[^\s.:;!?,\u3002])[ \t]*"
)
"""A line of a plain text that may be a title where it is numbered, or its long words are capitalised."""
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_LABEL = re.compile(r"\s*\*\*[^*\n]+\*\*\s*")
"""A bold label such as `**Symptoms.**` belongs to the sentence after it."""
_TERM = re.compile(r"[ \t]*(?:``[^`\n]+``|`[^`\n]+`|\*\*[^*\n]+\*\*|--?\w[^\n]{0,60}|[\w.:-]*\w)[ \t]*\n[ \t]*\n\s*")
"""The term of a definition list, with a blank line after it: it belongs to the first sentence of its definition."""
_PLAIN_TERM = re.compile(r"[^\n]{1,60}[^\s.:;!?,]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A sentence, list item, table row or code block.

    `text` is exactly the characters from `start` to `end`.
    """

    text: str
    kind: UnitKind
    start: int
    end: int
    columns: tuple[str, ...] = ()
    """Names of the columns of a row of a Markdown table whose head is in the text."""
    heading: str = ""
    """The nearest title and the term of a definition above it in the text; empty without them."""


def cells(row: str) -> tuple[str, ...]:
    """Return the trimmed cells of a row of a Markdown table."""
    return tuple(cell.strip() for cell in _CELL_END.split(row.strip().removeprefix("|").removesuffix("|")))


def units(text: str, *, headings: Iterable[str] = (), columns: Sequence[str] = ()) -> Iterator[Unit]:
    """Yield the trimmed, non-blank units of a text in order.

    Args:
        headings: The titles of its sections; lines of one are a heading without any markup too.
        columns: Names of the columns of the table that the text begins within.
    """
    front = _FRONT_MATTER.match(text)
    scanner = _Scanner(
        text, front.end() if front else 0, frozenset(filter(None, map(_without_markup, headings))), columns
    )
    for kind, start, end in scanner.blocks():
        spans = _sentences(text, start, end) if kind == "sentence" else ((start, end),)
        for first, last in spans:
            piece = text[first:last]
            begin = first + len(piece) - len(piece.lstrip())
            if stripped := piece.strip():
                columns = scanner.columns if kind == "row" else ()
                yield Unit(
                    text=stripped,
                    kind=kind,
                    start=begin,
                    end=begin + len(stripped),
                    columns=columns,
                    heading=scanner.heading(begin),
                )


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for _, stop in sentences(text, (start, end), by_lines=False):
        if stop == end or not (_LABEL.fullmatch(text, start, stop) or _TERM.fullmatch(text, start, stop)):
            yield start, stop
            start = stop


def _without_markup(line: str) -> str:
    return " ".join(line.split()).strip("=#* ")


def _names_column(line: str, names: Iterable[str]) -> bool:
    return any(name and line.startswith(f"{name}: ") for name in names)


_Block = tuple[UnitKind, int, int]


class _Scanner:
    """Splits a text into blocks, line by line."""

    def __init__(self, text: str, start: int, titles: frozenset[str], columns: Sequence[str]) -> None:
        self._titles = titles
        self._columns = columns
        self._lines: list[str] = text[start:].split("\n")
        self._starts: list[int] = []
        for line in self._lines:
            self._starts.append(start)
            start += len(line) + 1
        self._at = 0
        self._open_notes: list[str] = []
        """Fences of notes that are not closed yet: what they hold is text."""
        self._missing: set[str] = set()
        """Texts that no later line has."""
        self.columns: tuple[str, ...] = ()
        """Names of the columns of the row that was yielded last."""
        self._title = ""
        self._terms: list[tuple[int, int, str]] = []
        """Indent, end and text of the terms around the block that was yielded last, the outermost first."""
        self._is_in_steps = False
        """Whether the paragraph that was yielded last is a numbered item."""

    def heading(self, start: int) -> str:
        """Return the nearest title and term above an offset of the block that was yielded last."""
        terms = [term for _, end, term in self._terms if end < start]
        return " ".join(filter(None, (self._title, *terms[-1:])))

    def blocks(self) -> Iterator[_Block]:
        """Yield kind, start and end of each block."""
        while self._at < len(self._lines):
            if not self._lines[self._at].strip():
                self._at += 1
                self.columns = ()
            elif skipped := self._title_lines() or self._markup_lines():
                self._at += skipped
            elif title := self._find_plain_title():
                # It may be a fact too: "Max Load 500 kg", "Council Approves Budget".
                self._set_title("")
                yield from self._text()
                self._set_title(title)
            elif (block := self._code_or_directive()) is not None:
                yield from block
            elif skipped := self._lines_without_text():
                self._at += skipped
            else:
                yield from self._text()

    def _code_or_directive(self) -> Iterator[_Block] | None:
        """Return the blocks of the code or directive that begins here."""
        line = self._lines[self._at]
        if fence := _FENCE.fullmatch(line):
            return self._fence(fence)
        if closing := self._listing_end():
            return self._listing(closing)
        if directive := _DIRECTIVE.fullmatch(line):
            return self._directive(directive)
        return None

    def _lines_without_text(self) -> int:
        """Return the number of lines before the next text.

        They are a heading, a rule, a label or a tag; 0 where none begins here.
        """
        line = self._lines[self._at]
        if _NO_TEXT.fullmatch(line) or _ROW_RULE.fullmatch(line):
            if line.lstrip().startswith(("#", "= ", "==")):
                self._set_title(_without_markup(line))
            return 1
        length = self._heading_lines()
        if length > 1:
            self._set_title(_without_markup(self._lines[self._at + length - 2]))
        return length

    def _text(self) -> Iterator[_Block]:
        line = self._lines[self._at]
        if _TABLE_RULE.fullmatch(line):
            yield from self._simple_table()
        elif _ROW.fullmatch(line):
            yield from self._row()
        elif names := self._column_names():
            yield from self._named_rows(names)
        elif statement_lines := self._statement_lines():
            self._at += statement_lines
            yield self._block("code", self._at - statement_lines, self._at)
        else:
            yield from self._paragraph()

    def _block(self, kind: UnitKind, first: int, last: int) -> _Block:
        """Return the block of the lines before `last`."""
        return kind, self._starts[first], self._starts[last - 1] + len(self._lines[last - 1])

    def _fence(self, fence: re.Match[str]) -> Iterator[_Block]:
        first, closing = self._at, fence[1]
        self._at += 1
        if not fence["info"].strip() and closing in self._open_notes:
            self._open_notes.remove(closing)
            return
        # The fence of a note has text in it, and one that is never closed was cut.
        if closing[0] == ":" or _TEXT_DIRECTIVE.match(fence["info"]):
            self._open_notes.append(closing)
            self._skip_options()
            return
        if last := self._find_line(first + 1, closing):
            self._at = last + 1
            yield self._block("code", first, last + 1)

    def _title_lines(self) -> int:
        """Return the number of lines of the title that begins here.

        The result is 0 where none begins.
        """
        if self._titles:
            for count in range(1, _TITLE_LINES + 1):
                title = _without_markup(" ".join(self._lines[self._at : self._at + count]))
                if title in self._titles:
                    self._set_title(title)
                    return count
        return 0

    def _set_title(self, title: str) -> None:
        self._title = title
        self._terms.clear()
        self._is_in_steps = False

    def _find_plain_title(self) -> str:
        """Return the words of the title without markup that begins here.

        It is a line of its own before a paragraph. An item of a list has another one around it, or indented text below.
        The result is empty without one.
        """
        title = _PLAIN_TITLE.fullmatch(self._lines[self._at])
        if (
            title is None
            or ": " in title[0]
            or (title["number"] and self._is_in_steps)
            or any(map(str.strip, (self._line(self._at - 1), self._line(self._at + 1))))
        ):
            return ""
        later = map(self._lines.__getitem__, range(self._at + 1, len(self._lines)))
        following = next(filter(str.strip, later), "")
        is_text = bool(following) and not following[0].isspace() and not _ITEM.match(following)
        long_words = _LONG_WORD.findall(title["words"])
        is_capitalised = bool(long_words) and all(word[0].isupper() for word in long_words)
        is_title = is_text and title["words"][0].isupper() and (title["number"] or is_capitalised)
        return title["words"] if is_title else ""

    def _line(self, at: int) -> str:
        """Return a line; an empty one before the first and after the last."""
        return self._lines[at] if 0 <= at < len(self._lines) else ""

    def _markup_lines(self) -> int:
        """Return the number of lines of the comment or template tag that begins here.

        The result is 0 where none of several lines begins.
        """
        line = self._lines[self._at].strip()
        closing = next((end for begin, end in _CLOSINGS.items() if line.startswith(begin) and end not in line), None)
        if closing is not None:
            for count, following in enumerate(self._lines[self._at : self._at + _BLOCK_LINES], 1):
                if following.rstrip().endswith(closing):
                    return count
        return 0

    def _listing_end(self) -> str:
        """Return the line that ends the listing that begins here.

        The result is empty where none begins.
        """
        line = self._lines[self._at]
        if listing := _LISTING.fullmatch(line):
            return f"#+end_{listing['org']}".lower() if listing["org"] else f"\\end{{{listing['tex']}}}".lower()
        delimiter = _LISTING_DELIMITER.fullmatch(line)
        has_style = self._at > 0 and _LISTING_STYLE.fullmatch(self._lines[self._at - 1]) is not None
        return delimiter[1] if delimiter and has_style else ""

    def _listing(self, closing: str) -> Iterator[_Block]:
        """Yield the lines up to the closing one.

        A listing that is never closed was cut: its lines are text.
        """
        first = self._at + 1
        self._at = first
        if last := self._find_line(first, closing):
            self._at = last + 1
            if last > first:
                yield self._block("code", first, last)

    def _find_line(self, start: int, text: str) -> int:
        """Return the number of the next line with this text.

        The result is 0 where there is none.
        """
        if text not in self._missing:
            for at in range(start, len(self._lines)):
                if self._lines[at].strip().lower() == text:
                    return at
            self._missing.add(text)
        return 0

    def _statement_lines(self) -> int:
        """Return the number of lines of the SQL statement that begins here.

        It ends with a line that ends with a semicolon. The result is 0 where none begins.
        """
        if not _STATEMENT_START.match(self._lines[self._at]):
            return 0
        for count, line in enumerate(self._lines[self._at : self._at + _BLOCK_LINES], 1):
            if line.lstrip().startswith("--"):
                continue
            end = line.rstrip()[-1:]
            if end == ";":
                statement = "\n".join(self._lines[self._at : self._at + count])
                return count if _STATEMENT.match(statement) else 0
            if end and end in ".:!?":
                return 0
        return 0

    def _column_names(self) -> Sequence[str]:
        """Return the names of the columns of the parser's table here.

        It begins here, or above the first line. Its rows name them: `Team: Finance; Owns: Cash`. The result is empty
        without one.
        """
        line, following = self._lines[self._at], self._lines[self._at + 1 : self._at + 2]
        if self._at == 0 and _names_column(line, self._columns):
            return self._columns
        names = cells(line) if " | " in line else ()
        return names if following and _names_column(following[0], names) else ()

    def _named_rows(self, names: Sequence[str]) -> Iterator[_Block]:
        """Yield the rows of a parser's table, up to a blank line."""
        if not _names_column(self._lines[self._at], names):
            self._at += 1
        while self._at < len(self._lines) and self._lines[self._at].strip():
            yield self._block("row", self._at, self._at + 1)
            self._at += 1

    def _directive(self, directive: re.Match[str]) -> Iterator[_Block]:
        first, indent = self._at, len(directive["indent"])
        self._at += 1
        self._skip_options()
        if directive["name"] in _CODE_DIRECTIVES:
            yield from self._indented_code(indent)
        elif directive["name"].endswith(("note", "warning", "tip", "hint", "important", "added", "changed")):
            end = self._starts[first] + len(self._lines[first])
            yield "sentence", end - len(directive["rest"]), end

    def _skip_options(self) -> None:
        while self._at < len(self._lines) and _OPTION.fullmatch(f" {self._lines[self._at].strip()}"):
            self._at += 1

    def _indented_code(self, indent: int) -> Iterator[_Block]:
        """Yield the block of lines that are indented more than `indent`."""
        first = last = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip():
                if len(line) - len(line.lstrip()) <= indent:
                    break
                last = self._at + 1
            self._at += 1
        self._at = last
        if last > first:
            yield self._block("code", first, last)

    def _heading_lines(self) -> int:
        """Return the number of lines of the heading that begins here.

        The result is 0 where none begins.
        """
        line, following = self._lines[self._at], self._lines[self._at + 1 : self._at + 3]
        if _RULE.fullmatch(line):
            overlined = len(following) == 2 and following[0].strip() and following[1].rstrip() == line.rstrip()
            return 3 if overlined else 1
        after_blank = self._at == 0 or not self._lines[self._at - 1].strip()
        if after_blank and following and not line[0].isspace() and not _ITEM.match(line) and not _ROW.match(line):
            return 2 if _RULE.fullmatch(following[0]) else 0
        return 0

    def _simple_table(self) -> Iterator[_Block]:
        """Yield the rows of a simple table.

        These are the lines after its second rule, or after the first of two.
        """
        length = sum(1 for _ in takewhile(str.strip, islice(self._lines, self._at, None)))
        rules = [at for at in range(self._at, self._at + length) if _TABLE_RULE.fullmatch(self._lines[at])]
        begin, end = rules[1 if len(rules) > 2 else 0] + 1, rules[-1]
        for at in range(begin, end):
            yield self._block("row", at, at + 1)
        self._at = end + 1

    def _row(self) -> Iterator[_Block]:
        """Yield a row of a table, unless it is its head."""
        following = self._lines[self._at + 1 : self._at + 2]
        self._at += 1
        is_head = following and _ROW_RULE.fullmatch(following[0]) and not following[0].lstrip().startswith(("+-", "|="))
        if is_head:
            self.columns = cells(self._lines[self._at - 1])
        else:
            yield self._block("row", self._at - 1, self._at)

    def _paragraph(self) -> Iterator[_Block]:
        """Yield an item or a paragraph, and its literal block."""
        first, is_item = self._at, _ITEM.match(self._lines[self._at]) is not None
        indent = len(self._lines[first]) - len(self._lines[first].lstrip())
        self._is_in_steps = is_item and self._lines[first].lstrip()[0].isdigit()
        self._at += 1
        while self._terms and indent <= self._terms[-1][0]:
            self._terms.pop()
        if not is_item and self._is_hanging(first, indent):
            self._terms.append((indent, self._starts[first] + len(self._lines[first]), self._lines[first].strip()))
        if not is_item and self._is_term(first, indent):
            self._at += 2
        # A line of an item may begin at the margin (a lazy continuation), but not below what may be a heading of Org.
        is_outline = self._lines[first].startswith("**") and is_item
        while self._at < len(self._lines) and self._continues(self._lines[self._at]):
            if (is_outline and not self._lines[self._at][0].isspace()) or self._markup_lines() or self._column_names():
                break
            self._at += 1
        block = self._block("item" if is_item else "sentence", first, self._at)
        yield block
        if is_item and self._lines[self._at - 1].rstrip().endswith(COLONS):
            item = _ITEM.sub("", " ".join(map(str.strip, self._lines[first : self._at])), count=1)
            # Of several sentences, only the last introduces: a heading is embedded before each item below it.
            *_, (introduction, end) = sentences(item, (0, len(item)))
            self._terms.append((indent, block[2], item[introduction:end]))
        if self._lines[self._at - 1].rstrip().endswith("::"):
            while self._at < len(self._lines) and not self._lines[self._at].strip():
                self._at += 1
            yield from self._indented_code(indent)

    def _is_term(self, at: int, indent: int) -> bool:
        """Return whether a line is a term above an indented definition."""
        following = self._lines[at + 1 : at + 3]
        if len(following) < 2 or not _TERM.fullmatch("\n".join((self._lines[at], following[0], ""))):
            return False
        definition = following[1]
        deeper = len(definition) - len(definition.lstrip()) > indent
        return deeper and self._continues(definition)

    def _is_hanging(self, at: int, indent: int) -> bool:
        """Return whether a line is a term right above its indented definition."""
        definition = self._line(at + 1)
        is_deeper = bool(definition.strip()) and len(definition) - len(definition.lstrip()) > indent
        return is_deeper and _PLAIN_TERM.fullmatch(self._lines[at].strip()) is not None

    def _continues(self, line: str) -> bool:
        """Return whether a line belongs to the paragraph or item before it."""
        if not line.strip():
            return False
        return not any(
            pattern.fullmatch(line) for pattern in (_FENCE, _LISTING, _DIRECTIVE, _NO_TEXT, _ROW, _RULE, _TABLE_RULE)
        ) and not _ITEM.match(line)
