"""Parse small plain text, Markdown and source code, which need no library and no process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Note, ParsedDocument, SourceDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.detection import detect_small_text
from kosmos_rag.parsing.errors import translate_errors
from kosmos_rag.parsing.limits import OutputLimits, bound_notes
from kosmos_rag.parsing.text.code import parse_code
from kosmos_rag.parsing.text.markdown import parse_markdown
from kosmos_rag.parsing.text.markup import parse_markup
from kosmos_rag.parsing.text.plain import parse_text

Parser = Callable[[bytes, OutputLimits], ParsedDocument]


def _adapt_parser(parser: Callable[[bytes], ParsedDocument]) -> Parser:
    """Adapt a parser whose output is bounded by its input.

    A check at the end is enough.
    """
    return lambda data, _limits: parser(data)


TEXT_PARSERS: Mapping[str, Parser] = {
    **{name: _adapt_parser(partial(parse_code, media_type=name)) for name in set(media_types.CODE.values())},
    **{name: _adapt_parser(partial(parse_markup, media_type=name)) for name in set(media_types.MARKUP.values())},
    media_types.MARKDOWN: parse_markdown,
    media_types.TEXT: _adapt_parser(parse_text),
}


def parse_small_text(document: SourceDocument, limits: OutputLimits) -> ParsedDocument | None:
    """Parse a small plain text, with the result of `parse`; None for other documents.

    Raises ParseError as `parse` does.
    """
    media_type = detect_small_text(document.data, document.source, document.media_type)
    if media_type is None:
        return None
    with translate_errors(media_types.NAMES[media_type]):
        parsed = TEXT_PARSERS[media_type](document.data, limits)
    return complete(parsed, document, media_type, limits)


def complete(
    parsed: ParsedDocument, document: SourceDocument, media_type: str, limits: OutputLimits, notes: Sequence[Note] = ()
) -> ParsedDocument:
    """Check what a parser returned, and add the document's own title and the notes.

    Raises ParseError `empty` or `too_large`.

    Args:
        media_type: that of the document, where the parser may return the one of a file in it.
    """
    if not parsed.text or parsed.text.isspace():
        raise ParseError("empty", f"no text in the {media_types.NAMES[media_type]} file; give a document that has some")
    limits.check(parsed)
    return replace(parsed, title=document.title or parsed.title, notes=bound_notes((*notes, *parsed.notes)))
