"""Table and column names as natural-language words."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files

import yaml

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_MAX_ALIASES = 8


@cache
def abbreviations() -> dict[str, str]:
    """Return the expansions of abbreviations in abbreviations.yaml."""
    text = files(__package__).joinpath("abbreviations.yaml").read_text(encoding="utf-8")
    return {str(short): str(long) for short, long in yaml.safe_load(text).items()}


@cache
def words(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words.

    `avgExecTime` and `avg_exec_time` are avg, exec, time.
    """
    return tuple(word.lower() for word in _WORD.findall(_CAMEL.sub(" ", name)))


@cache
def humanize(name: str) -> str:
    """Return a name as words, with abbreviations expanded.

    A name without words is returned unchanged.
    """
    full_words = abbreviations()
    return " ".join(full_words.get(word, word) for word in words(name)) or name


def plural(word: str) -> str:
    """Return the regular plural of an English noun.

    A word that ends like a plural is returned unchanged.
    """
    if word.endswith(("ss", "x", "ch", "sh", "z")):
        return f"{word}es"
    if word.endswith("s"):
        return word
    return f"{word[:-1]}ies" if re.search(r"[^aeiou]y$", word) else f"{word}s"


def singular(word: str) -> str:
    """Return the singular of a regular English plural."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if re.search(r"(ss|x|ch|sh|z)es$", word):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def aliases(name: str) -> tuple[str, ...]:
    """Return likely names of a column, likeliest first.

    For example, `number of successes` for success_count.
    """
    phrase = humanize(name)
    candidates = [phrase, " ".join(words(name)), *_apply_rules(phrase.split())]
    return tuple(dict.fromkeys(alias for alias in candidates if alias))[:_MAX_ALIASES]


def _apply_rules(name_words: list[str]) -> Iterator[str]:
    if len(name_words) < 2:
        return
    if rule := _SUFFIX_RULES.get(name_words[-1]):
        yield from rule(name_words[:-1])
    if rule := _PREFIX_RULES.get(name_words[0]):
        yield from rule(name_words[1:])


_Rule = Callable[[list[str]], Iterator[str]]


def _pattern(*forms: str) -> _Rule:
    """Build a rule from forms.

    `{}` is the remaining words of the name, `{s}` their plural.
    """

    def rule(remaining: list[str]) -> Iterator[str]:
        noun = " ".join(remaining)
        plural_noun = " ".join([*remaining[:-1], plural(remaining[-1])])
        for form in forms:
            yield form.format(noun, s=plural_noun)

    return rule


_COUNT = _pattern("number of {s}", "how many {s}", "{} count")
_AVERAGE = _pattern("average {}", "mean {}", "typical {}")
_TOTAL = _pattern("total {}", "sum of {}", "overall {}")
_HIGHEST = _pattern("highest {}", "largest {}", "maximum {}")
_LOWEST = _pattern("lowest {}", "smallest {}", "minimum {}")
_PERCENTAGE = _pattern("percentage of {}", "share of {}", "rate of {}")
_TIME = _pattern("when {}", "time of {}", "date {}")
_DAY = _pattern("date of {}", "when {}", "day of {}")

_SUFFIX_RULES: dict[str, _Rule] = {
    "count": _COUNT,
    "counts": _COUNT,
    "number": _pattern("{} number", "number of the {}"),
    "average": _AVERAGE,
    "total": _TOTAL,
    "maximum": _HIGHEST,
    "minimum": _LOWEST,
    "percent": _PERCENTAGE,
    "percentage": _PERCENTAGE,
    "rate": _PERCENTAGE,
    "ratio": _PERCENTAGE,
    "at": _TIME,
    "on": _TIME,
    "timestamp": _TIME,
    "time": _pattern("time of {}", "how long {}", "when {}"),
    "date": _DAY,
    "year": _pattern("year of {}", "when {}"),
    "duration": _pattern("how long {}", "length of {}"),
    "milliseconds": _pattern("{} in milliseconds", "{}"),
    "seconds": _pattern("{} in seconds", "{}"),
    "by": _pattern("who {}", "{} by whom"),
    "identifier": _pattern("{}", "which {}", "identifier of the {}"),
    "name": _pattern("name of the {}", "{}", "what the {} is called"),
    "title": _pattern("title of the {}", "{}"),
    "status": _pattern("status of the {}", "state of the {}"),
    "state": _pattern("state of the {}", "status of the {}"),
    "type": _pattern("type of {}", "kind of {}"),
    "kind": _pattern("kind of {}", "type of {}"),
    "price": _pattern("price of the {}", "how much the {} costs"),
    "amount": _pattern("amount of {}", "how much {}"),
}
_PREFIX_RULES: dict[str, _Rule] = {
    "number": _COUNT,
    "count": _COUNT,
    "average": _AVERAGE,
    "mean": _AVERAGE,
    "total": _TOTAL,
    "sum": _TOTAL,
    "maximum": _HIGHEST,
    "minimum": _LOWEST,
    "is": _pattern("whether it is {}", "{}"),
    "has": _pattern("whether it has {}", "with {}"),
    "can": _pattern("whether it can {}", "able to {}"),
    "last": _pattern("latest {}", "most recent {}", "when last {}"),
    "first": _pattern("earliest {}", "when first {}"),
    "percent": _PERCENTAGE,
    "percentage": _PERCENTAGE,
    "date": _DAY,
    "name": _pattern("{} name"),
}
