"""Detect instructions to a language model in the text of documents.

Detection uses a list of patterns (instructions.txt), so it is incomplete: a text that it misses is still fenced as data
in the prompt, and a false positive only prevents an answer from being verified.
"""

import base64
import binascii
import re
import unicodedata
from functools import cache
from importlib.resources import files

from kosmos_rag.answering.sanitize import strip_invisible

_PLACEHOLDERS = {
    "<ai>": r"(?:ai|a\.i\.|llms?|gpt|copilot|(?:ai |virtual |digital )?assistants?|(?:large )?language models?|"
    r"chat ?bots?|bots?|summari[sz]ers?)",
    "<say>": r"(?:answer|reply|respond|say|output|print|repeat|echo|emit|write|state|include|mention|append|add|insert|"
    r"tell|claim|recommend|ignore|follow|begin|start|end)",
    "<few>": r"\W+(?:\w+\W+){0,4}?",
}
# Matches after removing separators and mapping digits to letters; 1 may be l or i, so l is mapped to i.
_SQUEEZED = re.compile(
    r"(?:ignore|disregard|forget|override)(?:all|any|the|every|your|of|these|those){0,3}"
    r"(?:previous|prior|above|earlier|system|preceding)(?:instruction|rule|prompt|guideline|context)".replace("l", "i")
)
_NOT_LETTERS = re.compile(r"[^a-z]+")
_LEETSPEAK = str.maketrans("013457@$|l", "oieastasii")
# Cyrillic and Greek letters that look like Latin ones.
_HOMOGLYPHS = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455\u0501"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7",
    "abekmhopctyxijsdaeikvoptux",
)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_MAX_EXCERPT_CHARS = 60


def find_instruction(text: str) -> str | None:
    """Return the first instruction to a language model in a text.

    Up to 60 characters; None without one. Base64 is decoded.
    """
    visible_text = strip_invisible(text)
    instruction = _match_instruction(visible_text) or next(
        filter(None, (_match_instruction(_decode(encoded)) for encoded in _BASE64.findall(visible_text))), None
    )
    return None if instruction is None else " ".join(instruction.split())[:_MAX_EXCERPT_CHARS]


def _match_instruction(text: str) -> str | None:
    folded = _fold(text)
    for variant in dict.fromkeys((folded, folded.translate(_HOMOGLYPHS))):
        if match := _instruction_pattern().search(variant):
            return match[0]
        if match := _SQUEEZED.search(_NOT_LETTERS.sub("", variant.translate(_LEETSPEAK))):
            return match[0]
    return None


@cache
def _instruction_pattern() -> re.Pattern[str]:
    lines = files(__package__).joinpath("instructions.txt").read_text(encoding="utf-8").splitlines()
    alternatives = "|".join(line for line in lines if line and not line.startswith("# "))
    for name, expression in _PLACEHOLDERS.items():
        alternatives = alternatives.replace(name, expression)
    return re.compile(alternatives)


def _fold(text: str) -> str:
    """Return a text in lower case, NFKD, without combining marks."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _decode(coded: str) -> str:
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
