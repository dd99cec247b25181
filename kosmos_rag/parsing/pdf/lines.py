"""Lines of a PDF page: adjacent runs of characters, and their text."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kosmos_rag.parsing.clean import clean
from kosmos_rag.parsing.pdf.graphics import Box
from kosmos_rag.parsing.pdf.text_layer import RAISED, SEAM, WORD_GAP, Run

_SCRIPT_SIZE = 0.85
"""Sizes of the letters of a line that a superscript or subscript has at most."""
_LOWERED = 0.06
"""Sizes of the letters by which the baseline of a subscript is lower."""
_LINE_OFFSET = 0.5
"""Sizes of the letters by which baselines of one line differ at most; of a superscript more, because it is raised."""
_LETTER_GAP = 0.15
"""Sizes of the letters between two runs of one word at most."""
_SIMPLE_SCRIPT = re.compile(r"[-+\u2212]?\w+")
_ORDINAL = re.compile(r"st|nd|rd|th|er|re|e|o|a|º|ª")
LARGER = 1.05
"""Times the size of the text that a title has at least."""
ONE_LINE = 0.3
"""Sizes of the letters by which baselines of one line differ at most."""
_DESCENT = 0.25
"""Sizes of the letters that letters of most fonts take below the baseline."""
_UNPRINTED = re.compile("[\ufffe\uffff\x02\u200b\u2060\ufeff]")
_LINE_END_HYPHEN = re.compile(r"(?<=[^\W\d_])[\u00ad\u2010-]$|\u00ad$")
_HYPHENS = "-\u00ad\u2010"
_CHARACTERS = str.maketrans(
    {"\u00ad": "", "\u00a0": " ", "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl"}
    | {"\ufb05": "st", "\ufb06": "st", "\uf0b7": "•", "\uf0a7": "▪", "\uf0fc": "✓"}
)
"""Soft hyphens, ligatures, and the bullets of symbol fonts."""


class Line(NamedTuple):
    """A line of text on a page."""

    text: str
    left: float
    right: float
    baseline: float
    size: float
    """Of most of its characters, in points."""
    bold: bool
    divided: bool = False
    """The last word continues in the next line; the hyphen is not in the text."""
    runs: tuple[Run, ...] = ()
    region: int = 0
    """Number of its region on the page."""
    is_label: bool = False
    """It is a label of a figure."""
    is_banded: bool = False
    """It is alone in a shaded band or frame of its height, as the title of a section is."""
    heading: int = 0
    """Level of the heading that a tagged file calls it; 0 for none."""

    @property
    def style(self) -> tuple[float, bool]:
        """Size and weight."""
        return self.size, self.bold

    @property
    def fragments(self) -> list[Run]:
        """The parts of the line that may be cells."""
        return list(merge_scripts(self.runs))

    @property
    def box(self) -> Box:
        """The area of its letters."""
        return Box(self.left, self.baseline - _DESCENT * self.size, self.right, self.baseline + self.size)


def tidy(text: str) -> str:
    """Remove what is not printed, and write ligatures as letters."""
    if text.isascii() and text.isprintable():
        return text
    return clean(_UNPRINTED.sub("", text).translate(_CHARACTERS))


def join_runs(lines: Iterable[Sequence[Run]]) -> Iterator[Line]:
    """Yield the lines of a page, without wide gaps.

    PDFium starts a new line at each large gap and each change of the baseline; what continues a line joins it here.
    """
    open_runs: list[Run] = []
    for runs in lines:
        if open_runs and not _continues(open_runs[-1], runs[0]):
            yield join_line(open_runs)
            open_runs = []
        for run in runs:
            if open_runs and run is not runs[0] and not _is_near(open_runs[-1], run):
                yield join_line(open_runs)
                open_runs = []
            open_runs.append(run)
    if open_runs:
        yield join_line(open_runs)


def _continues(before: Run, run: Run) -> bool:
    size = max(before.size, run.size)
    most = _LINE_OFFSET if run.size == before.size else _LINE_OFFSET + RAISED
    return (
        not before.divided
        and abs(run.baseline - before.baseline) < most * size
        and _is_near(before, run)
        and (run.size == before.size or min(run.size, before.size) < _SCRIPT_SIZE * size)
    )


def _is_near(before: Run, run: Run) -> bool:
    """Return whether the gap between two runs is one between words."""
    size = max(before.size, run.size)
    return -0.3 * size < run.left - before.right < WORD_GAP * size


def join_rows(lines: Sequence[Line]) -> list[Line]:
    """Join lines of one row whose ends meet, wherever they are in the file.

    Words that are drawn last, and marks.
    """
    starts: dict[int, list[int]] = defaultdict(list)
    """Lines by where they begin, in points."""
    for index, line in enumerate(lines):
        starts[round(line.left)].append(index)
    following: dict[int, int] = {}
    for index, line in enumerate(lines):
        reach = max(1, round(WORD_GAP * line.size))
        near = (at for x in range(round(line.right) - 1, round(line.right) + reach + 1) for at in starts.get(x, ()))
        candidates = [at for at in near if at != index and _meets(line, lines[at])]
        if candidates:
            following[index] = min(candidates, key=lambda at: lines[at].left)
    joined = []
    followers = set(following.values())
    for index, line in enumerate(lines):
        if index not in followers:
            runs = list(line.runs)
            at = index
            while (at := following.get(at, -1)) >= 0:
                runs += lines[at].runs
            joined.append(line if len(runs) == len(line.runs) else join_line(runs))
    return joined


def _meets(line: Line, other: Line) -> bool:
    """Return whether another line continues where a line ends."""
    if line.divided or not other.runs:
        return False
    before, run = line.runs[-1], other.runs[0]
    if before.right > run.left + ONE_LINE * before.size:
        return False
    return _continues(before, run)


def merge_scripts(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield the runs of a line.

    Superscripts, and letters of another size, belong to the run before them.
    """
    pending: list[Run] = []
    for run in runs:
        if pending:
            before = pending[-1]
            is_other = run.size != before.size or abs(run.baseline - before.baseline) > 0.05 * before.size
            if not is_other or run.left - before.right > SEAM * max(run.size, before.size):
                yield _merge_runs(pending)
                pending = []
        pending.append(run)
    if pending:
        yield _merge_runs(pending)


def _merge_runs(runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    main = max(runs, key=lambda run: (run.size, len(run.text)))
    right = max(run.right for run in runs)
    return main._replace(text=join_text(runs, main), left=runs[0].left, right=right, start=None)


def join_line(runs: Sequence[Run]) -> Line:
    """Return the line that consecutive runs make."""
    if len(runs) == 1:
        text, left, right, baseline, size, bold, divided, _ = runs[0]
    else:
        sizes: Counter[float] = Counter()
        for run in runs:
            sizes[run.size] += len(run.text)
        size = sizes.most_common(1)[0][0]
        main = next(run for run in runs if run.size == size)
        left, right = min(run.left for run in runs), max(run.right for run in runs)
        baseline, divided = main.baseline, runs[-1].divided
        bold = all(run.bold for run in runs if run.size == size)
        text = join_text(runs, main)
    if text[-1:] in _HYPHENS and not divided and _LINE_END_HYPHEN.search(text) is not None:
        text, divided = text[:-1], True
    return Line(tidy(text).strip(), left, right, baseline, size, bold, divided, tuple(runs))


def join_text(runs: Sequence[Run], main: Run | None = None) -> str:
    """Return the text of runs.

    `^` and `_` precede superscripts and subscripts of the main run's letters.
    """
    main = main or max(runs, key=lambda run: (run.size, len(run.text)))
    parts: list[str] = []
    right = runs[0].left
    for run in runs:
        gap = run.left - right
        words = run.text.strip()
        mark = _script_mark(run, main)
        apart = gap > _LETTER_GAP * main.size
        if mark and parts and not apart and not (mark == "^" and _ORDINAL.fullmatch(words)):
            parts.append(f"{mark}{words}" if _SIMPLE_SCRIPT.fullmatch(words) else f"{mark}({words})")
        else:
            parts.append(f" {words}" if parts and apart else words)
        right = run.right
    return "".join(parts)


def _script_mark(run: Run, main: Run) -> str:
    if run.size > _SCRIPT_SIZE * main.size:
        return ""
    offset = (run.baseline - main.baseline) / max(main.size, 1.0)
    return "^" if offset > RAISED else "_" if offset < -_LOWERED else ""
