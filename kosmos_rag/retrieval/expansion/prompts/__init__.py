"""Prompts by name, one .txt file each.

They fence the question as data.
"""

import re
from functools import cache
from importlib.resources import files
from string import Template


def prompt(name: str, question: str, **values: object) -> str:
    """Fill the prompt of that name.

    Its variables are `$question`, the `$fence` around it, and `values`.
    """
    return _template(name).substitute(values, question=question, fence=_fence(question))


@cache
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8"))


def _fence(text: str) -> str:
    """Return more backticks than the text has in sequence.

    As Markdown fences code: no text can close its fence.
    """
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
