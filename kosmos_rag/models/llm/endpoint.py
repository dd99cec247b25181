"""Address and key of a language model server.

Error messages show neither the key nor secrets in the address.
"""

from typing import TYPE_CHECKING

from kosmos_rag.core.config import LanguageModelSettings, mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, ModelError, ModelUnavailable, first_line
from kosmos_rag.models.llm.protocols import ChatProtocol

if TYPE_CHECKING:
    import httpx

BUSY = (429, 503)
"""HTTP statuses worth a retry."""

_MAX_REASON_CHARS = 200


class Endpoint:
    """A language model server: its address, and errors for its failures."""

    url: "httpx.URL"

    def __init__(self, settings: LanguageModelSettings, protocol: ChatProtocol) -> None:
        """Validate address and key. Raises ConfigError."""
        import httpx

        if settings.url is None:
            raise ConfigError(
                f"language_model.url is null: set it to the address of a server, such as {protocol.example}, "
                "or set rag.expansion.queries=0, rag.expansion.hyde=false and rag.answer.mode=extractive"
            )
        self.name = f"language model server {mask_password(settings.url)}"
        self._model = settings.model
        self._example = protocol.example
        self._key = settings.api_key.get_secret_value() if settings.api_key else ""
        # The HTTP library quotes a header that it refuses, and the key would be in its message.
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigError(
                "language_model.api_key contains a space, a line end or a character that is not ASCII: correct it"
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
        """The authorization header, if there is a key."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def error(self, message: str) -> ModelError:
        """Build an error of this server."""
        return ModelError(f"{self.name} {message}")

    def unavailable(self, message: str) -> ModelUnavailable:
        """Build the error of a server that cannot be used now."""
        return ModelUnavailable(f"{self.name} {message}")

    def unreachable(self, error: BaseException) -> ModelUnavailable:
        """Build the error of a failed connection."""
        # The HTTP library quotes what it could not parse, which may hold the key.
        reason = self.excerpt(first_line(error))
        return self.unavailable(f"cannot be reached: {reason}: start it, or correct language_model.url")

    def refusal(self, status: int, content: bytes) -> ModelError:
        """Build the error of a response whose status is not 200."""
        details = f"{status}: {self.excerpt(content.decode(errors='replace'))}"
        if status in (401, 403):
            return self.unavailable(f"refused the key ({details}): correct language_model.api_key")
        if status == 404:
            remedy = f"correct language_model.model, or language_model.url, which is usually like {self._example}"
            return self.unavailable(f"does not have model {self._model!r} ({details}): {remedy}")
        if status in BUSY:
            return self.unavailable(f"is busy ({details}): ask again later, or give it more resources")
        return self.error(f"failed ({details}): look into its log, or correct language_model.model")

    def excerpt(self, text: str) -> str:
        """Return the start of a server's reply on one line.

        The key is masked: some servers echo it.
        """
        text = " ".join(text.split())
        if self._key:
            text = text.replace(self._key, "***")
        return one_line(text[:_MAX_REASON_CHARS]) or "nothing"
