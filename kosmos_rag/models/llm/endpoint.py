"""A server of language models: its address, its key, and its failures said without either's secrets."""

from typing import TYPE_CHECKING

from kosmos_rag.core.config import LanguageModelSettings, mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, ModelError, ModelUnavailable, first_line
from kosmos_rag.models.llm.protocols import ChatProtocol

if TYPE_CHECKING:
    import httpx

BUSY = (429, 503)
"""The statuses of a server that may answer later."""

_LONGEST_REASON = 200


class Server:
    """Where to ask, and what to say where that fails."""

    url: "httpx.URL"

    def __init__(self, settings: LanguageModelSettings, protocol: ChatProtocol) -> None:
        """Read address and key. Raises ConfigError where one cannot be used."""
        import httpx

        if settings.url is None:
            raise ConfigError(
                f"language_model.url is null: set it to the address of a server, such as {protocol.example}, "
                "or set rag.expansion.queries=0, rag.expansion.hyde=false and rag.answer.writer=evidence"
            )
        self.name = f"language model server {mask_password(settings.url)}"
        self._model = settings.model
        self._example = protocol.example
        self._key = settings.api_key.get_secret_value() if settings.api_key else ""
        # The HTTP library shows a header that it does not take, and the key would be in the message.
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigError(
                "language_model.api_key holds a space, a line end or a sign that is not ASCII: correct it"
            )
        try:
            self.url = httpx.URL(settings.url.rstrip("/") + protocol.path)
            self.url.host.encode("idna")
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ConfigError(
                f"{self.name} has no valid address ({first_line(error)}): "
                f"set language_model.url to one such as {protocol.example}"
            ) from None

    @property
    def headers(self) -> dict[str, str]:
        """The header that shows the key, where there is one."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def error(self, what: str) -> ModelError:
        """Return an error of this server."""
        return ModelError(f"{self.name} {what}")

    def unavailable(self, what: str) -> ModelUnavailable:
        """Return the error of a server that cannot be used now."""
        return ModelUnavailable(f"{self.name} {what}")

    def unreachable(self, error: BaseException) -> ModelUnavailable:
        """Return the error of a connection that failed."""
        # The HTTP library shows what it could not read, and that may be anything.
        reason = self.shown(first_line(error))
        return self.unavailable(f"cannot be reached: {reason}: start it, or correct language_model.url")

    def refusal(self, status: int, content: bytes) -> ModelError:
        """Return the error of an answer with another status than 200."""
        said = f"{status}: {self.shown(content.decode(errors='replace'))}"
        if status in (401, 403):
            return self.unavailable(f"refused the key ({said}): correct language_model.api_key")
        if status == 404:
            remedy = f"correct language_model.model, or language_model.url, which mostly is like {self._example}"
            return self.unavailable(f"does not have model {self._model!r} ({said}): {remedy}")
        if status in BUSY:
            return self.unavailable(f"is busy ({said}): ask again later, or give it more room")
        return self.error(f"failed ({said}): look into its log, or correct language_model.model")

    def shown(self, text: str) -> str:
        """Show the beginning of what the server sent, without the key, which some repeat."""
        text = " ".join(text.split())
        if self._key:
            text = text.replace(self._key, "***")
        return one_line(text[:_LONGEST_REASON]) or "nothing"
