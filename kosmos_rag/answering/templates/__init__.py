"""Prompt templates in Jinja2: block `system` for rules, block `user` for data.

Text from users and documents is fenced by a number that occurs in none of it, so no document can close its fence. The
number is random, or of a conversation, whose prompts begin alike, and a secret.
"""

import hmac
import secrets
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.protocols import Message

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

_BLOCKS = ("system", "user")
_PROCESS_SECRET = secrets.token_hex(32)


class Prompt:
    """A validated template."""

    def __init__(self, name: str, source: str, sample: dict[str, Any], *, fence_secret: str | None = None) -> None:
        """Compile a template and fill it with a sample. See `load`.

        Raises ConfigError, with the line.
        """
        require_extra("generation", "a prompt template", "jinja2")
        from jinja2 import TemplateSyntaxError

        self._name = name
        self._fence_secret = fence_secret or _PROCESS_SECRET
        self._environment = _environment()
        try:
            self._template: Template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise self._config_error(error.lineno, error) from error
        missing = [block for block in _BLOCKS if block not in self._template.blocks]
        if missing:
            raise ConfigError(
                f"template {name} has no block {missing[0]!r}: write {{% block {missing[0]} %}} … {{% endblock %}}"
            )
        self.messages(sample, fenced=())

    def messages(
        self,
        values: dict[str, Any],
        *,
        fenced: Iterable[str],
        earlier: Sequence[tuple[dict[str, Any], str]] = (),
        seed: str | None = None,
    ) -> list[Message]:
        """Render the template as messages.

        The templates also get `fence`, which occurs in none of the fenced texts.

        Args:
            fenced: Texts that the fence must not occur in.
            earlier: Variables of each earlier turn for the block `user`, and its answer.
            seed: What the fence follows from with the secret, equal for the prompts of a conversation; None for a
                random one.

        Raises:
            ConfigError: The template fails.
        """
        fence = {"fence": self._create_fence(fenced, seed)}
        messages = [Message(role="system", text=self._block("system", values | fence))]
        for turn_values, answer in earlier:
            messages.append(Message(role="user", text=self._block("user", turn_values | fence)))
            messages.append(Message(role="assistant", text=answer))
        return [*messages, Message(role="user", text=self._block("user", values | fence))]

    def _create_fence(self, texts: Iterable[str], seed: str | None) -> str:
        fenced_texts: Sequence[str] = tuple(texts)
        for attempt in count():
            fence = secrets.token_hex(8) if seed is None else self._derive_fence(seed, attempt)
            if not any(fence in text for text in fenced_texts):
                break
        return fence

    def _derive_fence(self, seed: str, attempt: int) -> str:
        text = f"{attempt} {seed}".encode(errors="surrogatepass")
        return hmac.digest(self._fence_secret.encode(), text, "sha256").hex()[:16]

    def _block(self, name: str, values: dict[str, Any]) -> str:
        try:
            return self._render(self._template.blocks[name], values).strip()
        except Exception as error:  # a template of the user's can do anything that fails
            lines = [
                frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"
            ]
            raise self._config_error(lines[-1] if lines else None, error) from error

    def _render(self, block: Callable[..., Iterable[str]], values: dict[str, Any]) -> str:
        try:
            return "".join(block(self._template.new_context(values)))
        except Exception:  # noqa: BLE001 — raised again, with the lines of the template
            self._environment.handle_exception()

    def _config_error(self, line: int | None, error: Exception) -> ConfigError:
        position = "" if line is None else f", line {line}"
        return ConfigError(
            f"template {self._name}{position}: {first_line(error)}: correct it, or name a shipped template"
        )


def load(name: str, sample: dict[str, Any], *, fence_secret: str | None = None) -> Prompt:
    """Load a shipped template by name, or a .j2 file by path.

    Args:
        name: Name of a shipped template, or path of a .j2 file.
        sample: Values to validate the template with.
        fence_secret: Key of the fences of conversations; None for the one of the process.

    Raises:
        ConfigError: The template does not exist or is broken.
    """
    if name.endswith(".j2"):
        path = Path(name).expanduser()
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"template {name} cannot be read: {first_line(error)}: correct the path") from error
        return Prompt(name, source, sample, fence_secret=fence_secret)
    shipped = sorted(entry.name.removesuffix(".j2") for entry in files(__package__).iterdir() if _is(entry.name))
    if name not in shipped:
        raise ConfigError(f"there is no template {name!r}: name {', '.join(shipped)}, or the path of a .j2 file")
    source = files(__package__).joinpath(f"{name}.j2").read_text(encoding="utf-8")
    return Prompt(name, source, sample, fence_secret=fence_secret)


def _is(name: str) -> bool:
    return name.endswith(".j2")


@cache
def _environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(  # a prompt is no HTML, and what it holds must not be changed
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
