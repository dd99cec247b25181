"""Turn pages in Confluence's storage format into plain HTML.

https://confluence.atlassian.com/doc/confluence-storage-format-790796544.html
"""

import re
from html import escape

ENTITIES = "entities.xml"
DESCRIPTOR = "exportDescriptor.properties"
"""Members of an export in XML."""
IS_INDEX = re.compile(rb"atlassian|confluence", re.IGNORECASE)
"""Matches the page `index.html` of an export in HTML."""
IS_STORAGE = re.compile(r"<(?:ac|ri):[a-z-]+[\s/>]")

# A section ends before the next one begins, so that many unclosed ones are not searched to the end.
_DATA = r"\s*<!\[CDATA\[((?:(?!<!\[CDATA\[).)*?)\]\]>\s*"
_BODY = re.compile(f"<ac:plain-text-body>{_DATA}</ac:plain-text-body>", re.DOTALL)
_LINK_BODY = re.compile(f"<ac:plain-text-link-body>{_DATA}</ac:plain-text-link-body>", re.DOTALL)
_TITLE = re.compile(r'<ac:parameter\s+ac:name="title"\s*>([^<]*)</ac:parameter>')
_PARAMETER = re.compile(r"<ac:(parameter|task-id|task-status|task-uuid)\b[^<>]*>[^<]*</ac:\1>")
_PAGE = re.compile(r'<ri:page\b[^<>]{0,500}?\sri:content-title="([^"<>]{0,300})"[^<>]{0,500}/>\s*(?=</ac:link>)')
_TASK = re.compile(r"<(/?)ac:(task-list|task)>")
_TASK_ELEMENTS = {"task-list": "ul", "task": "li"}
_OTHER = re.compile(r"</?(?:ac|ri):[^<>]*>")


def to_html(source: str) -> str:
    """Convert the storage format of Confluence to HTML.

    Code becomes `pre`, links become their words, tasks lists. Settings of macros are left out.
    """
    source = _BODY.sub(lambda match: f"<pre>{escape(match[1])}</pre>", source)
    source = _LINK_BODY.sub(lambda match: escape(match[1]), source)
    source = _PAGE.sub(r"\1", source)
    source = _TITLE.sub(r"<p>\1</p>", source)
    source = _PARAMETER.sub("", source)
    source = _TASK.sub(lambda match: f"<{match[1]}{_TASK_ELEMENTS[match[2]]}>", source)
    return _OTHER.sub("", source)
