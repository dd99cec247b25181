"""A language model behind a server of chats: vLLM, llama.cpp, Ollama, or a service."""

from collections.abc import Sequence

from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.protocols import Message
from kosmos_rag.models.llm.endpoint import Server
from kosmos_rag.models.llm.loop import Background, Pieces
from kosmos_rag.models.llm.protocols import PROTOCOLS
from kosmos_rag.models.llm.stream import Exchange


class ChatModel:
    """A model asked over HTTP. Thread-safe; `close` gives up what is under way and ends its connections."""

    def __init__(self, settings: LanguageModelSettings) -> None:
        """Prepare to ask; nothing is sent yet. Raises ConfigError where `url` or `api_key` cannot be used."""
        import httpx

        self._settings = settings
        self._protocol = PROTOCOLS[settings.protocol]
        self._server = Server(settings, self._protocol)
        # As many at once as ask: whoever asks has limits, and httpx's own would keep a stream waiting unseen.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._client = httpx.AsyncClient(headers=self._server.headers, limits=limits)
        self._background = Background()

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Pieces:
        """Let the model answer at temperature 0; the request is sent at once. `close` may come from any thread.

        It is asked once more where, before its answer has begun, the connection fails or the server is busy. The
        pieces raise ModelUnavailable where the server cannot be reached, is late or busy, or refuses the key or the
        model; ModelError where it fails, breaks off, or its answer holds no text.
        """
        body = self._protocol.request(messages, self._settings, max_tokens)
        exchange = Exchange(self._client, self._server, self._protocol, self._settings, body)
        return self._background.start(exchange.run)

    def close(self) -> None:
        """Give up all answers that are under way, and close the connections to the server."""
        self._background.close(self._client.aclose)
