"""Rules for the texts and titles of all parsers."""

import re
from collections.abc import Iterator

from kosmos_rag.parsing import bounds

TAB = 4
"""Columns of a tab, and of the indent of code."""
_UNCLEAN = re.compile(r"[\x00-\x08\x0b-\x1f\xad\u2060\ufeff\ud800-\udfff]")
_FORBIDDEN = re.compile(r"[\x00\xad\u2060\ufeff\ud800-\udfff]")
"""What cannot be stored, and invisible characters within words: soft hyphens, word joiners, byte order marks."""
_CONTROLS = re.compile(r"[\x01-\x08\x0b-\x1f]")
_BY_PROGRAM = re.compile(r"(?:Microsoft (?:Office )?(?:Word|PowerPoint|Excel)|(?:Libre|Open)Office(?:\.org)?) - ", re.I)
_FILE_NAME = re.compile(r"\.(?:docx?|pptx?|xlsx?|od[tsp]|rtf|pdf|tex|dvi|ps|indd|qxd)$", re.I)
_NO_TITLE = re.compile(
    r"\(?(?:anonymous|untitled|unnamed|unspecified|no title|unbenannt|ohne titel|sans titre|sin título)\)?(?: ?-?\d+)?"
    r"|(?:document|dokument|presentation|präsentation|slide|book|mappe|untitled document)? ?\d*"
    r"|powerpoint[- ]presentation",
    re.I,
)
"""What programs write where nobody gave a title."""


def clean(text: str) -> str:
    r"""Normalise line ends and control characters.

    Line ends become `\\n`, NUL, lone surrogates and soft hyphens are removed, other C0 controls but tab become spaces.
    """
    if not _UNCLEAN.search(text):  # by far the most; tables clean line by line
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub(" ", _FORBIDDEN.sub("", text))


def offset_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield offset and text of each line."""
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def clean_title(text: str) -> str | None:
    """Bring a title into one line of at most 300 characters.

    The result is None where nothing is left. Every chunk carries the titles of its section, so a megabyte after a `#`
    must not become one.
    """
    return " ".join(clean(text).split())[: bounds.MAX_TITLE_CHARS].rstrip() or None


def clean_property_title(text: str) -> str | None:
    """Bring the title of a file's properties into one line.

    The result is None where a program wrote it: a placeholder (`Untitled`), or the name of the file (`Microsoft Word -
    plan.docx`).
    """
    title = clean_title(_BY_PROGRAM.sub("", text.strip(), count=1))
    return None if title is None or _NO_TITLE.fullmatch(title) or _FILE_NAME.search(title) else title
