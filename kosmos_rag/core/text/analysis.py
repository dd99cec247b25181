"""Text analysis before PostgreSQL's text search parser: tags, scripts without spaces, and identifiers.

The parser drops `<Connector maxThreads="200"/>` as a tag. It takes a run of Chinese, Japanese, Korean, Thai, Lao, Khmer
or Burmese letters as one word, and `a.b.c` or `getUserById` too. Texts and queries go through the same functions, so
both have the same terms.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"  # Han
    "]+"
)
_BRACKET = re.compile(r"</?|/?>")
"""The ends of a tag. After a space, `/body` would be a path."""
_WIDTH = re.compile("[\uff01-\uffdc]+")
"""Latin letters as wide as Han ones, and narrow Katakana and Hangul."""
_IDENTIFIER = re.compile(
    r"""
      (?:[A-Za-z][a-z]*+ (?![A-Za-z0-9_] | (?:\.|-|::)[A-Za-z0-9_]) [^A-Za-z0-9_]*+)++  # plain words, many in one match
    | ([A-Za-z0-9_]+(?:(?:\.|-|::)[A-Za-z0-9_]+)*)
    """,
    re.VERBOSE,
)
"""The group is a token that may be an identifier."""
_OPTION = re.compile(r"(?<![\w-])--([A-Za-z][A-Za-z0-9_-]*)")
"""A long option of a command."""
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z\d]+|[A-Z\d]+")
_CODE = re.compile(r"\b[a-z]+\d+[a-z]*\b")
"""Letters and a number, as codes of parts have them. Hashes alternate, and would add many terms."""
_LETTERS_OR_DIGITS = re.compile(r"[a-z]{2,}|\d+")
_COMPOUND = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+")
"""Words joined by hyphens, which the parser splits: `state-of-the-art`, `Content-Type`."""
_MAX_IDENTIFIER = 100
"""Characters. Longer tokens are encoded data."""


def unspaced_runs(text: str) -> list[str]:
    """Return the runs of letters of scripts without spaces."""
    return _UNSPACED.findall(text)


def is_unspaced(text: str) -> bool:
    """Return whether most letters of a text are of scripts without spaces."""
    return not text.isascii() and 2 * sum(map(len, unspaced_runs(text))) > sum(map(str.isalpha, text))


def separate_words(text: str) -> str:
    """Replace brackets of tags by spaces, and scripts without spaces by overlapping bigrams.

    `训练数据` becomes `训练 练数 数据`; a single letter is kept. A letter and its accent become one letter, and
    letters of full or half width those of usual width. Source: CJKBigramFilter and CJKWidthFilter of Lucene.
    """
    if "<" in text or ">" in text:
        text = _BRACKET.sub(" ", text)
    if text.isascii():
        return text
    composed = unicodedata.normalize("NFC", _WIDTH.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text))
    return _UNSPACED.sub(_bigrams, composed)


def index_text(text: str) -> str:
    """Return a text for indexing, with bigrams and parts of identifiers.

    The parts follow at the end, so that the distances between words stay. `getUserById` adds `get user by id`, and
    `storage.local.retention` adds its three words and `storagelocalretention`. The parser drops hyphens, so an option
    adds a term of its own: `--url` adds `optionurl`, which a heading `URL` does not have.
    """
    terms = [term for token in filter(None, _IDENTIFIER.findall(text)) for term in _identifier_terms(token)]
    if "--" in text:
        terms += [f"option{re.sub('[-_]', '', option.lower())}" for option in _OPTION.findall(text)]
    return f"{separate_words(text)}\n{' '.join(terms)}" if terms else separate_words(text)


class QueryText(NamedTuple):
    """A query for the index of `index_text`."""

    text: str
    code_parts: Mapping[str, str]
    """Letters and digits of codes, which are in the text too, with the code of each; single letters are left out."""


def query_text(text: str) -> QueryText:
    """Return a query for the index of `index_text`.

    `XJ4471` adds `xj 4471` and so finds `XJ-4471-B`. Texts add no such parts: codes would be longer than their words.
    """
    parts = [(part, code) for code in _CODE.findall(text.lower()) for part in _LETTERS_OR_DIGITS.findall(code)]
    return QueryText(index_text(f"{text}\n{' '.join(part for part, _ in parts)}" if parts else text), dict(parts))


def _bigrams(run: re.Match[str]) -> str:
    letters = run[0]
    if len(letters) == 1:
        return f" {letters} "
    return f" {' '.join(letters[at : at + 2] for at in range(len(letters) - 1))} "


def _identifier_terms(token: str) -> list[str]:
    """Return the terms of an identifier that the parser does not produce.

    A plain word has none.
    """
    if len(token) > _MAX_IDENTIFIER or token[0].isdigit() or _COMPOUND.fullmatch(token):
        return []
    parts = [part.lower() for part in _PART.findall(token)]
    # One letter and a number is a unit, a formula or a version.
    if len(parts) < 2 or not any(len(part) > 1 and part.isalpha() for part in parts):
        return []
    identifier = token.lower()
    # The parser splits at _ and -, but not a token that it takes for a host.
    produced = {identifier} if "." in identifier else {identifier, *re.split(r"[_\-:]+", identifier)}
    terms = [part for part in parts if len(part) > 1 and part not in produced]
    joined = "".join(parts)
    return terms if joined in produced else [*terms, joined]
