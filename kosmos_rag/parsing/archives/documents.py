"""Parse archives of documents: each file is a section under its name."""

import mimetypes
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import unquote

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.archives.members import Member, decompress, is_compressed, is_tar, read_members, strip_extension
from kosmos_rag.parsing.archives.slack import add_slack_export, is_slack_export
from kosmos_rag.parsing.clean import clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits

UNREADABLE = "attachment_unreadable"
_NO_DOCUMENTS = ("image/", "audio/", "video/", "font/")
_NOTION_ID = re.compile(r"(?:%20|[ -])[0-9a-f]{32}(?=[./_)]|$)")
_NOTION_PAGE = re.compile(r".* [0-9a-f]{32}\.(?:md|html|csv)$", re.DOTALL)
_NOTION_LINK = re.compile(r"\]\((?P<target>[^()\s]{1,500}?(?:%20|-)[0-9a-f]{32}(?:\.(?:md|html|csv))?)\)")


def parse_archive(
    document: SourceDocument, limits: OutputLimits, parse_part: Callable[[SourceDocument], ParsedDocument]
) -> ParsedDocument:
    """Parse an archive: each file by its own parser, as a section under its path.

    A compressed file that is no archive is the file itself. Exports of Slack are channels with the names of their
    users, those of Notion pages without the ids in their names and links. A file that cannot be read is a note.

    Args:
        document: ZIP, 7-Zip, tar, or a file that gzip, bzip2 or xz compresses.
        parse_part: parses a file of the archive.

    Raises:
        ParseError: `too_large`, `encrypted`, `corrupt` or `empty`.
    """
    data, name = document.data, media_types.NAMES[media_types.ZIP]
    if is_compressed(data):
        data = decompress(data, name)
        if not is_tar(data):
            return parse_part(replace(document, source=strip_extension(document.source), data=data, media_type=None))
    members = list(read_members(data, name))
    composition = Composition(limits)
    if is_slack_export(members):
        add_slack_export(composition, members)
    else:
        _add_members(composition, members, parse_part)
    return composition.build(media_types.ZIP, None)


def _add_members(
    composition: Composition, members: Sequence[Member], parse_part: Callable[[SourceDocument], ParsedDocument]
) -> None:
    is_notion = any(_NOTION_PAGE.match(member.name) for member in members)
    names = {member.name for member in members}
    for member in members:
        kind = mimetypes.guess_type(member.name)[0] or ""
        # Notion exports a database twice: the columns of its view, and all columns.
        if kind.startswith(_NO_DOCUMENTS) or re.sub(r"\.csv$", "_all.csv", member.name) in names - {member.name}:
            continue
        name, data = _clean_notion(member) if is_notion else member
        try:
            parsed = parse_part(SourceDocument(source=member.name, data=data))
        except ParseError as error:
            if error.code != "empty":
                composition.add_note(UNREADABLE, f"{name!r} cannot be read ({error.code}): {error}")
            continue
        part = replace(parsed, text=parsed.text.rstrip())
        composition.add_document(part, parent_level=1, attachment=clean_title(name))


def _clean_notion(member: Member) -> Member:
    """Return a page of Notion without the ids in its name and its links."""
    name = _NOTION_ID.sub("", member.name)
    if not member.name.endswith(".md"):
        return Member(name, member.data)
    text = member.data.decode("utf-8", "replace")
    linked = _NOTION_LINK.sub(lambda link: f"]({unquote(_NOTION_ID.sub('', link['target']))})", text)
    return Member(name, linked.encode())
