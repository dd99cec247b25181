"""Options, fields and names that a text defines.

References describe each option or field below its name, or next to it. The name is the heading of its description, and
seldom a heading of the document. Forms of Markdown, reStructuredText, manual pages and text are recognised.
"""

import re

_MARKER = r"(?:[-*+•][ \t]+|\d+[.)][ \t]+|\|[ \t]*|\#{1,6}[ \t]+)?"
_QUOTED = r"(?::[\w:]+:)?(?:``[^`\n]+``|`[^`\n]+`|\*\*[^*\n]+\*\*)"
_DIRECTIVES = "option|envvar|confval|describe|setting|data|attribute|property|method|function|class|exception|module"
_FORMS = re.compile(
    rf"""
      # Code or bold text that begins a line, an item, a row or a heading, before a separator or the end of the line.
      ^[ \t]*{_MARKER} (?P<quoted>{_QUOTED}(?:[ \t]*(?:,|/|\bor\b)[ \t]*{_QUOTED})*)
      [ \t]* (?=$ | : | --?[ \t] | [\u2013\u2014|])
      # An option at the beginning of a line, up to two spaces.
    | ^[ \t]*{_MARKER} (?P<option>--?[A-Za-z](?:[ ]?\S)*?) (?=[ \t]{{2}}|[ \t]*$)
      # A directive of Sphinx that describes an object.
    | ^[ \t]*\.\.[ ](?:\w+:)?(?:auto)?(?:{_DIRECTIVES})::[ \t]*(?P<object>\S[^\n]*)
      # A line above an indented text, or above `: `; not an item of a list, a directive, a fence or a sentence.
    | ^(?P<indent>[ \t]*) (?![-*+•>|][ \t] | \d+[.)][ \t] | \.\.[ ] | ```|~~~)
      (?P<term>\S(?:[ \t]?\S){{0,79}}?[^\s.,:;!?{{(\[])
      [ \t]*\n (?: :[ \t]+\S | (?:[ \t]*\n)?(?P=indent)[ \t]+\S )
    """,
    re.VERBOSE | re.MULTILINE,
)
_MAX_WORDS = 6
"""Words of a defined term. More are a sentence."""


def find_defined_terms(text: str) -> list[str]:
    """Return the terms that a text defines, in order and without repetitions."""
    terms = (
        next(group for name, group in match.groupdict().items() if group and name != "indent")
        for match in _FORMS.finditer(text)
    )
    return [term for term in dict.fromkeys(terms) if len(term.split()) <= _MAX_WORDS and any(map(str.isalnum, term))]
