"""Know the bold faces of a PDF."""

import re
from collections import Counter
from typing import NamedTuple

_BOLD = re.compile(
    rb"bold|black|heavy|demi|medi|cmbx|sfbx|\.b$|\.b\+|[-_, ](?:vet|fett|gras|negrita|negrito|grassetto)(?![a-z])",
    re.IGNORECASE,
)
"""In names of faces; Windows translates them."""
_BOLD_WEIGHT = 600
"""Of a face whose name does not say it."""


class Face(NamedTuple):
    """A font, as PDFium describes it."""

    name: bytes
    weight: int
    """An estimate from the width of stems."""

    @property
    def is_named_bold(self) -> bool:
        """Whether its name says that it is bold."""
        return _BOLD.search(self.name) is not None

    @property
    def is_heavy(self) -> bool:
        """Whether its weight alone says that it is bold."""
        return self.weight >= _BOLD_WEIGHT and not self.is_named_bold


class Faces:
    """The faces of a document.

    Bold is what is heavier than the text. Where the weight of the text is that of bold letters, weights are wrong, as
    files from Ghostscript have them, and only names count.
    """

    def __init__(self) -> None:
        """Begin without a face."""
        self._letters: Counter[Face] = Counter()
        self._boldness: dict[Face, tuple[bool, bool]] = {}
        """Whether a face is bold by name or weight, and by its name alone."""
        self._is_heavy: bool | None = None
        """Whether the text is heavy; None while pages are still read."""

    def add(self, face: Face, letters: int) -> None:
        """Count the letters of a line."""
        self._letters[face] += letters

    def is_bold(self, face: Face, *, by_name: bool = False) -> bool:
        """Return whether a face is bold by its name or, unless `by_name`, by its weight."""
        boldness = self._boldness.get(face)
        if boldness is None:
            boldness = self._boldness[face] = face.is_named_bold or face.is_heavy, face.is_named_bold
        return boldness[by_name]

    @property
    def has_heavy_text(self) -> bool:
        """Whether the face of most letters read so far looks bold by its weight alone."""
        if self._is_heavy is not None:
            return self._is_heavy
        return bool(self._letters) and self._letters.most_common(1)[0][0].is_heavy

    def settle(self) -> None:
        """Keep the answer of `has_heavy_text`: all letters are counted."""
        self._is_heavy = self.has_heavy_text
