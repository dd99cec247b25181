"""Parse subtitles (SubRip, WebVTT): the text of cues under their times."""

import re
from collections.abc import Iterator
from html import unescape
from itertools import zip_longest

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode

_SECTION_S = 60
"""Seconds of a section. Its heading is the time of its first words, which is what a citation names."""
_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}"
_CUE = re.compile(rf"^[ \t]*{_TIME}[ \t]+-->[ \t]+{_TIME}[^\n]*$", re.MULTILINE)
_NAME_OF_NEXT = re.compile(r"\n[ \t]*\n[^\n]*\n?\Z|\n\d+[ \t]*\n\Z")
"""Text above the next cue: its name after a blank line, or its number."""
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]+([^<>\n]+)>")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]*>|<\d[\d:.]*>|\{\\[^{}\n]*\}")
_NOTE = re.compile(r"^(?:NOTE|STYLE|REGION)\b")


def parse_subtitles(data: bytes, limits: OutputLimits, *, media_type: str) -> ParsedDocument:
    """Parse subtitles to a line for each cue.

    Each minute has a heading with its time. A file without cues keeps its lines unchanged.

    Args:
        media_type: SubRip or WebVTT.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    text = decode(data)
    composition = Composition(limits)
    section_ends, previous = -1, ""
    for second, words in _cues(text):
        if second >= section_ends or second < section_ends - _SECTION_S:
            composition.add_heading(1, f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}")
            composition.add_block(words)
            section_ends = second + _SECTION_S
        elif words != previous:  # live captions repeat the line above
            composition.add_line(words)
        previous = words
    if not previous:
        return ParsedDocument(text=text, media_type=media_type)
    return composition.build(media_type, None)


def _cues(text: str) -> Iterator[tuple[int, str]]:
    """Yield the second of each cue and its words, in one line."""
    cues = list(_CUE.finditer(text))
    for cue, following in zip_longest(cues, cues[1:]):
        payload = text[cue.end() : following.start()] if following else text[cue.end() :]
        if following:
            payload = _NAME_OF_NEXT.sub("", payload)
        if words := _words(payload):
            hours, minutes, seconds = (int(part or 0) for part in cue.group(1, 2, 3))
            yield hours * 3600 + minutes * 60 + seconds, words


def _words(payload: str) -> str:
    blocks = [block for block in re.split(r"\n[ \t]*\n", payload.strip("\n")) if not _NOTE.match(block)]
    text_with_speakers = _TAG.sub("", _VOICE.sub(r"\1: ", "\n".join(blocks)))
    return " ".join(unescape(text_with_speakers).split())
