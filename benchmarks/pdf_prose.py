"""Write PDF files of prose with known paragraphs, as papers, reports and letters.

The styles with reportlab are held out: rules were developed on those with fpdf2.
"""

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

_WORDS = (
    "the of a and in to for with on by from at as is was were are that which this these their its between after before "
    "during region market system method result measure growth energy water station reader service record account "
    "contract employee delivery machine temperature pressure committee government university department laboratory "
    "significantly approximately increasing considerable development administration information communication "
    "international responsibility environmental infrastructure recommendation classification implementation "
    "shows reports describes supports requires reduces increases follows contains depends remains becomes provides "
    "small large new early late final annual local public private common several various many few other "
    "data model test sample rate price cost value share level term index risk plan budget report survey policy"
).split()
_NAMES = "North South Berlin Paris Meyer Tanaka Smith Silva Rossi Novak Europe Asia Monday March October".split()


class Canvas(Protocol):
    """Draws on pages, in points from the top left corner."""

    def page(self) -> None:
        """Begin a page of 595 by 842 points."""

    def width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Return the width of a text."""

    def text(self, x: float, y: float, text: str, size: float, *, bold: bool = False, stretch: float = 0.0) -> None:
        """Draw a text with its baseline at `y`, its spaces wider by `stretch` points."""

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draw a line."""

    def output(self) -> bytes:
        """Return the file."""


class FpdfCanvas:
    """Draws with fpdf2."""

    def __init__(self) -> None:
        import fpdf

        self._pdf = fpdf.FPDF(unit="pt", format=(595, 842))
        self._pdf.set_auto_page_break(False)

    def page(self) -> None:
        """Begin a page."""
        self._pdf.add_page()

    def width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Return the width of a text."""
        self._pdf.set_font("times", "B" if bold else "", size)
        return float(self._pdf.get_string_width(text))

    def text(self, x: float, y: float, text: str, size: float, *, bold: bool = False, stretch: float = 0.0) -> None:
        """Draw a text; what its spaces are wider is spread over its letters."""
        self._pdf.set_font("times", "B" if bold else "", size)
        with self._pdf.local_context(char_spacing=stretch * text.count(" ") / len(text)):
            self._pdf.text(x, y, text)

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draw a line."""
        self._pdf.line(x0, y0, x1, y1)

    def output(self) -> bytes:
        """Return the file."""
        return bytes(self._pdf.output())


class ReportlabCanvas:
    """Draws with reportlab."""

    def __init__(self) -> None:
        from reportlab.pdfgen.canvas import Canvas as Drawing

        self._out = io.BytesIO()
        self._drawing = Drawing(self._out, pagesize=(595, 842))
        self._has_begun = False

    def page(self) -> None:
        """Begin a page."""
        if self._has_begun:
            self._drawing.showPage()
        self._has_begun = True

    def width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Return the width of a text."""
        return float(self._drawing.stringWidth(text, _font(bold), size))

    def text(self, x: float, y: float, text: str, size: float, *, bold: bool = False, stretch: float = 0.0) -> None:
        """Draw a text."""
        self._drawing.setFont(_font(bold), size)
        self._drawing.drawString(x, 842 - y, text, wordSpace=stretch or None)

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draw a line."""
        self._drawing.line(x0, 842 - y0, x1, 842 - y1)

    def output(self) -> bytes:
        """Return the file."""
        self._drawing.showPage()
        self._drawing.save()
        return self._out.getvalue()


def _font(bold: bool) -> str:
    return "Helvetica-Bold" if bold else "Helvetica"


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a document is set."""

    columns: int = 1
    size: float = 10.0
    leading: float = 12.0
    space: float = 6.0
    """Points between paragraphs."""
    indent: float = 0.0
    justified: bool = False
    hyphens: bool = False
    footnotes: bool = False
    figures: bool = False
    header: str = ""
    by_word: bool = False
    """Each word is drawn on its own, as many word processors do."""


DEVELOPMENT = {
    "report": Style(space=7, header="Annual Report 2024"),
    "letter": Style(size=11, leading=14, space=10),
    "paper in two columns": Style(columns=2, size=9, leading=10.5, space=0, indent=10, justified=True, hyphens=True),
    "paper with footnotes": Style(
        columns=2, size=9, leading=10.5, space=4, hyphens=True, footnotes=True, header="Journal of Tests, vol. 7"
    ),
    "book": Style(size=10.5, leading=13, space=0, indent=14, justified=True, hyphens=True, header="Chapter One"),
    "report with figures": Style(space=6, figures=True, header="Draft for review", by_word=True),
}
HELD_OUT = {
    "magazine in three columns": Style(columns=3, size=8.5, leading=10, space=5, hyphens=True, figures=True),
    "paper with all": Style(
        columns=2,
        size=9.5,
        leading=11.4,
        space=0,
        indent=12,
        justified=True,
        hyphens=True,
        footnotes=True,
        figures=True,
        header="Proceedings of the Workshop",
    ),
    "thesis": Style(size=11, leading=16.5, space=0, indent=18, justified=True, footnotes=True, header="2 Related Work"),
    "manual": Style(size=9, leading=11, space=5, figures=True, header="Operating Manual", by_word=True),
    "policy": Style(size=12, leading=14.4, space=12, justified=True, header="Policy of travel", by_word=True),
}


def documents(*, held_out: bool, seeds: int = 3) -> Iterator[tuple[str, bytes, list[str]]]:
    """Yield name, file and paragraphs of the generated documents."""
    canvas: Callable[[], Canvas] = ReportlabCanvas if held_out else FpdfCanvas
    for name, style in (HELD_OUT if held_out else DEVELOPMENT).items():
        for seed in range(seeds):
            setter = _Typesetter(canvas(), style, random.Random(f"{name} {seed}"))
            yield f"{name} {seed}", setter.document(), setter.paragraphs


@dataclass
class _Typesetter:
    canvas: Canvas
    style: Style
    random: random.Random
    paragraphs: list[str] = field(default_factory=list)
    _y: float = 0.0
    _column: int = 0
    _page: int = 0
    _floor: float = 780.0

    def document(self) -> bytes:
        """Return a document of some pages; `paragraphs` are those of its text."""
        self._new_page()
        for number in range(1, 6):
            self._heading(f"{number} {self._title()}")
            for _ in range(self.random.randint(4, 7)):
                self._paragraph(self._sentences(self.random.randint(2, 9)))
                if self.style.figures and self.random.random() < 0.2:
                    self._figure()
        return self.canvas.output()

    @property
    def _width(self) -> float:
        return (595 - 2 * 60 - 18 * (self.style.columns - 1)) / self.style.columns

    @property
    def _left(self) -> float:
        return 60 + self._column * (self._width + 18)

    def _new_page(self) -> None:
        self.canvas.page()
        self._page += 1
        if self.style.header:
            self.canvas.text(60, 40, self.style.header, self.style.size - 1)
            self.canvas.text(290, 815, str(self._page), self.style.size - 1)
        self._column = -1
        self._new_column()

    def _new_column(self) -> None:
        self._column += 1
        self._y = 75.0
        self._floor = 780.0
        if self.style.footnotes and self.random.random() < 0.5:
            self._floor -= 34
            self.canvas.rule(self._left, 755, self._left + 80, 755)
            note = self._sentences(1)
            for row, line in enumerate(self._break(f"{self._page} {note}", self.style.size - 2, 0)[:3]):
                y = 763 + 9 * row
                self.canvas.text(self._left, y, " ".join(line), self.style.size - 2)
        if self.style.figures and self.random.random() < 0.25:
            self._figure()

    def _advance(self, height: float) -> None:
        if self._y + height > self._floor:
            if self._column + 1 < self.style.columns:
                self._new_column()
            else:
                self._new_page()
        self._y += height

    def _heading(self, title: str) -> None:
        if self._y > 700:
            self._advance(999)
        self._advance(self.style.leading * 2)
        self.canvas.text(self._left, self._y, title[: int(self._width / 8)], self.style.size + 2, bold=True)
        self._y += 5

    def _figure(self) -> None:
        if self._y + 140 > self._floor:
            return
        self.canvas.rule(self._left, self._y + 10, self._left, self._y + 90)
        self.canvas.rule(self._left, self._y + 90, self._left + 120, self._y + 90)
        for tick in range(4):
            self.canvas.text(self._left + 5 + 30 * tick, self._y + 100, str(2019 + tick), 6)
        self._y += 118
        caption = self._break(f"Figure {self._page}. {self._sentences(1)}", self.style.size - 1, 0)[:3]
        for line in caption:
            self.canvas.text(self._left, self._y, " ".join(line), self.style.size - 1)
            self._y += self.style.leading - 1
        self._y += 6

    def _paragraph(self, text: str) -> None:
        self.paragraphs.append(text)
        lines = self._break(text, self.style.size, self.style.indent)
        for number, line in enumerate(lines):
            self._advance(self.style.leading)
            indent = self.style.indent if number == 0 else 0.0
            self._draw(line, indent, last=number == len(lines) - 1)
        self._y += self.style.space

    def _draw(self, words: Sequence[str], indent: float, *, last: bool) -> None:
        x = self._left + indent
        size = self.style.size
        text = " ".join(words)
        stretch = 0.0
        if self.style.justified and not last and len(words) > 1:
            stretch = (self._width - indent - self.canvas.width(text, size)) / (len(words) - 1)
        if not self.style.by_word:
            self.canvas.text(x, self._y, text, size, stretch=stretch)
            return
        for word in words:
            self.canvas.text(x, self._y, word, size)
            x += self.canvas.width(f"{word} ", size) + stretch

    def _break(self, text: str, size: float, indent: float) -> list[list[str]]:
        """Return the lines of a text, some words divided."""
        lines: list[list[str]] = [[]]
        room = self._width - indent
        space = self.canvas.width(" ", size)
        for word in text.split():
            width = self.canvas.width(word, size)
            if width > room and lines[-1]:
                cut = self._cut(word, room, size)
                if cut:
                    lines[-1].append(word[:cut] + "-")
                    word = word[cut:]
                    width = self.canvas.width(word, size)
                lines.append([])
                room = self._width
            lines[-1].append(word)
            room -= width + space
        return lines

    def _cut(self, word: str, room: float, size: float) -> int:
        if not self.style.hyphens or len(word) < 7 or not word.isalpha():
            return 0
        return next((at for at in range(len(word) - 3, 2, -1) if self.canvas.width(word[:at] + "-", size) <= room), 0)

    def _sentences(self, count: int) -> str:
        return " ".join(self._sentence() for _ in range(count))

    def _sentence(self) -> str:
        words = [self.random.choice(_WORDS) for _ in range(self.random.randint(6, 22))]
        for _ in range(self.random.randint(0, 2)):
            words[self.random.randrange(len(words))] = self.random.choice([*_NAMES, str(self.random.randint(2, 2030))])
        if self.random.random() < 0.3:
            words[self.random.randrange(len(words) - 1)] += ","
        text = " ".join(words)
        return text[0].upper() + text[1:] + self.random.choice(["."] * 9 + ["?"])

    def _title(self) -> str:
        return " ".join(self.random.choice(_WORDS[24:]).capitalize() for _ in range(self.random.randint(1, 4)))
