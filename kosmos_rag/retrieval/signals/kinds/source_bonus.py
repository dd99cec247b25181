"""Files, or kinds of files, that are worth more than others."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring


class Signal(Scoring):
    """A value by the name of the file, and one by its media type; both count."""

    files: Mapping[str, Number] = Field(default={}, description="Value by pattern of file names; the first counts.")
    media_types: Mapping[str, Number] = Field(default={}, description="Value by media type, `text/markdown`.")

    def value(self, asked: Asked, passage: Passage) -> float:  # noqa: ARG002
        """Return the sum of both."""
        name = passage.source.rpartition("/")[2]
        of_file = next((value for pattern, value in self.files.items() if fnmatchcase(name, pattern)), 0.0)
        return of_file + self.media_types.get(passage.media_type, 0.0)
