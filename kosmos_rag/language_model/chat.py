"""A language model behind a server of the OpenAI chat protocol: Ollama, vLLM, llama.cpp, or a service."""

import contextlib
import json
import threading
import time
from concurrent.futures import Future
from typing import Any

from kosmos_rag.config import LanguageModelSettings, mask_password
from kosmos_rag.config.display import one_line
from kosmos_rag.errors import ConfigError, ModelError, ModelUnavailable, first_line

_EXAMPLE = "http://localhost:11434/v1"
_BUSY = (429, 503)
_PAUSE_S = 0.5
# What is asked for is a few hundred words; without a bound a server could fill the memory until the deadline.
_MAX_BYTES = 1_000_000
_LONGEST_REASON = 200


class ChatModel:
    """A model asked over HTTP. Thread-safe; `close` ends its connections."""

    def __init__(self, settings: LanguageModelSettings) -> None:
        """Prepare to ask; nothing is sent yet. Raises ConfigError where `url` or `api_key` cannot be used."""
        import httpx

        if settings.url is None:
            raise ConfigError(
                f"language_model.url is null: set it to the address of a server, such as {_EXAMPLE}, "
                "or set rag.expansion.queries=0 and rag.expansion.hyde=false"
            )
        self._settings = settings
        self._server = f"language model server {mask_password(settings.url)}"
        self._key = settings.api_key.get_secret_value() if settings.api_key else ""
        # The HTTP library shows a header that it does not take, and the key would be in the message.
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigError(
                "language_model.api_key holds a space, a line end or a sign that is not ASCII: correct it"
            )
        try:
            self._url = httpx.URL(settings.url.rstrip("/") + "/chat/completions")
            self._url.host.encode("idna")
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ConfigError(
                f"{self._server} has no valid address ({first_line(error)}): "
                f"set language_model.url to one such as {_EXAMPLE}"
            ) from None
        self._client = httpx.Client(headers={"Authorization": f"Bearer {self._key}"} if self._key else {})

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    def complete(self, prompt: str, *, max_tokens: int) -> str:
        """Return the model's answer to a prompt, at temperature 0 and within `language_model.timeout_s` in all.

        Raises ModelUnavailable where the server cannot be reached, is late or busy, or refuses the key or the model;
        ModelError where it fails or its answer holds no text.
        """
        request = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "stream": False,
        }
        status, content = self._in_time(request)
        if status != 200:
            raise self._refusal(status, content)
        return self._text(content)

    def close(self) -> None:
        """Close the connections to the server."""
        self._client.close()

    def _in_time(self, request: dict[str, Any]) -> tuple[int, bytes]:
        """Wait for the answer as long as the deadline allows.

        In a thread of its own, for the timeouts of an HTTP client bound each step and not their sum: looking up the
        name, each address of it, each byte of the headers. A call that is given up on ends at its next step.
        """
        until = time.monotonic() + self._settings.timeout_s
        future: Future[tuple[int, bytes]] = Future()

        def work() -> None:
            try:
                future.set_result(self._exchange(request, until))
            except BaseException as error:  # noqa: BLE001 — handed to the waiting thread
                future.set_exception(error)

        # A daemon, so that a hanging server does not keep the process from ending.
        threading.Thread(target=work, name="kosmos-rag-chat", daemon=True).start()
        try:
            return future.result(timeout=self._settings.timeout_s)
        except TimeoutError:
            raise ModelUnavailable(
                f"{self._server} gave no answer within {self._settings.timeout_s:g} s: "
                "raise language_model.timeout_s, or name a faster language_model.model"
            ) from None

    def _exchange(self, request: dict[str, Any], until: float) -> tuple[int, bytes]:
        """Send the request, and once more where the connection fails or the server is busy."""
        import httpx

        try:
            with contextlib.suppress(httpx.TransportError):
                status, content = self._send(request, until)
                if status not in _BUSY:
                    return status, content
            time.sleep(_PAUSE_S)
            return self._send(request, until)
        except httpx.TimeoutException as error:
            raise TimeoutError from error
        except httpx.TransportError as error:
            reason = one_line(first_line(error))
            raise ModelUnavailable(
                f"{self._server} cannot be reached: {reason}: start it, or correct language_model.url"
            ) from error
        except httpx.DecodingError as error:
            raise ModelError(f"{self._server} sent what cannot be read: {one_line(first_line(error))}") from error

    def _send(self, request: dict[str, Any], until: float) -> tuple[int, bytes]:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        content = bytearray()
        with self._client.stream("POST", self._url, json=request, timeout=left) as response:
            for piece in response.iter_bytes():
                content += piece
                if len(content) > _MAX_BYTES:
                    raise ModelError(f"{self._server} sent more than {_MAX_BYTES} bytes: correct language_model.url")
                if time.monotonic() > until:
                    raise TimeoutError
        return response.status_code, bytes(content)

    def _refusal(self, status: int, content: bytes) -> ModelError:
        said = f"{status}: {self._shown(content)}"
        if status in (401, 403):
            return ModelUnavailable(f"{self._server} refused the key ({said}): correct language_model.api_key")
        if status == 404:
            remedy = "correct language_model.model, or language_model.url, which mostly ends in /v1"
            return ModelUnavailable(f"{self._server} does not have model {self.name!r} ({said}): {remedy}")
        if status in _BUSY:
            return ModelUnavailable(f"{self._server} is busy ({said}): ask again later, or give it more room")
        return ModelError(f"{self._server} failed ({said}): look into its log, or correct language_model.model")

    def _text(self, content: bytes) -> str:
        try:
            text: object = json.loads(content)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str) or not text.strip():
            raise ModelError(
                f"{self._server} answered without a text ({self._shown(content)}): "
                "correct language_model.url, or name a language_model.model that answers without reasoning at length"
            )
        return text

    def _shown(self, content: bytes) -> str:
        """Show the beginning of what the server sent, without the key, which some repeat."""
        text = " ".join(content.decode(errors="replace").split())
        if self._key:
            text = text.replace(self._key, "***")
        return one_line(text[:_LONGEST_REASON]) or "nothing"
