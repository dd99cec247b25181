"""Address and key of a model server.

Error messages show neither the key nor secrets in the address.
"""

from typing import TYPE_CHECKING

from pydantic import SecretStr

from kosmos_rag.core.config import mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, InputRefused, ModelError, ModelUnavailable, first_line

if TYPE_CHECKING:
    import httpx

BUSY = (429, 503)
"""HTTP statuses of a server that may answer later."""

_INVALID_INPUT = (400, 413, 422)
_MAX_REASON_CHARS = 200


class Endpoint:
    """A model server: its address, and errors for its failures."""

    url: "httpx.URL"

    def __init__(
        self,
        *,
        kind: str,
        section: str,
        url: str,
        path: str,
        api_key: SecretStr | None,
        model: str,
        example: str,
        input_remedy: str | None = None,
    ) -> None:
        """Validate address and key. Raises ConfigError.

        Args:
            kind: Kind of server, for messages: "embedding server".
            section: Section of the configuration that names the server.
            url: Base address. Its query, if it has one, stays behind the path.
            path: Path of the endpoint below the base address.
            api_key: Key that is sent as a bearer token, or None.
            model: Name of the model, for messages.
            example: Example of a base address.
            input_remedy: What to change if the server refuses the content of a request; None for no advice.
        """
        import httpx

        self.section = section
        self.name = f"{kind} {mask_password(url)}"
        self._public = f"{kind} failed; the log of the process has the error"
        self._model = model
        self._example = example
        self._input_remedy = input_remedy
        self._key = api_key.get_secret_value() if api_key else ""
        # The HTTP library quotes a header that it refuses, and the key would be in its message.
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigError(
                f"{section}.api_key contains a space, a line end or a character that is not ASCII: correct it"
            )
        try:
            base = httpx.URL(url)
            self.url = base.copy_with(path=base.path.rstrip("/") + path)
            self.url.host.encode("idna")
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ConfigError(
                f"{self.name} has no valid address ({first_line(error)}): set {section}.url to one such as {example}"
            ) from None

    @property
    def headers(self) -> dict[str, str]:
        """The authorization header, if there is a key."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def error(self, message: str) -> ModelError:
        """Build an error of this server."""
        return ModelError(f"{self.name} {message}", public=self._public)

    def unavailable(self, message: str) -> ModelUnavailable:
        """Build the error of a server that cannot be used now."""
        return ModelUnavailable(f"{self.name} {message}", public=self._public)

    def unreachable(self, error: BaseException) -> ModelUnavailable:
        """Build the error of a failed connection."""
        # The HTTP library quotes what it could not parse, which may hold the key.
        reason = self.excerpt(first_line(error))
        return self.unavailable(f"cannot be reached: {reason}: start it, or correct {self.section}.url")

    def unreadable(self, error: BaseException) -> ModelError:
        """Build the error of a response whose encoding is broken."""
        return self.error(f"sent an unreadable response: {self.excerpt(first_line(error))}")

    def refusal(self, status: int, content: bytes) -> ModelError:
        """Build the error of a response whose status is not 200."""
        section = self.section
        details = f"{status}: {self.excerpt(content.decode(errors='replace'))}"
        if status in (401, 403):
            return self.unavailable(f"refused the key ({details}): correct {section}.api_key")
        if status == 404:
            remedy = f"correct {section}.model, or {section}.url, which is usually like {self._example}"
            return self.unavailable(f"does not have model {self._model!r} ({details}): {remedy}")
        if status in BUSY:
            return self.unavailable(f"is busy ({details}): ask again later, or give it more resources")
        if status in _INVALID_INPUT and self._input_remedy is not None:
            message = f"{self.name} refused the request ({details}): {self._input_remedy}"
            return InputRefused(message, public=self._public)
        return self.error(f"failed ({details}): look into its log, or correct {section}.model")

    def excerpt(self, text: str) -> str:
        """Return the start of a server's reply on one line.

        The key is masked: some servers echo it.
        """
        text = " ".join(text.split())
        if self._key:
            text = text.replace(self._key, "***")
        return one_line(text[:_MAX_REASON_CHARS]) or "nothing"
