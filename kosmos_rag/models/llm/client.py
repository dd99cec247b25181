"""Chat client of a language model server.

It works with vLLM, llama.cpp, Ollama and hosted services.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.errors import ConfigError, ModelError, ModelUnavailable
from kosmos_rag.core.protocols import Message
from kosmos_rag.core.telemetry import genai, tracing, usage
from kosmos_rag.models.embedding.tokenizer import EstimatingTokenizer
from kosmos_rag.models.http.background import BackgroundLoop, BackgroundStream, Write
from kosmos_rag.models.http.client import read_start
from kosmos_rag.models.http.endpoint import BUSY, Endpoint
from kosmos_rag.models.http.retry import Retry, RetryPolicy, parse_retry_after, request_with_retry
from kosmos_rag.models.llm.protocols import PROTOCOLS, ChatProtocol, ProtocolError, ServerError, StreamChunk

if TYPE_CHECKING:
    import httpx

_RETRY = RetryPolicy(attempts=2, statuses=frozenset(BUSY))
# An answer has some hundred words; without a limit a server could fill the memory until the deadline.
_MAX_RESPONSE_BYTES = 4_000_000
_MAX_ERROR_BYTES = 10_000
_USAGE_S = 1.0
"""Seconds that token counts may come after the answer."""
_TOKENIZER = EstimatingTokenizer()
"""Counts where the server does not."""


class ChatModel:
    """A language model over HTTP.

    Thread-safe; `close` cancels all answers and closes the connections.
    """

    def __init__(self, settings: LanguageModelSettings) -> None:
        """Prepare the client; nothing is sent yet.

        Raises ConfigError where `url` or `api_key` is invalid.
        """
        import httpx

        self._settings = settings
        self._protocol = PROTOCOLS[settings.protocol]
        if settings.url is None:
            raise ConfigError(
                f"language_model.url is null: set it to the address of a server, such as {self._protocol.example}, "
                "or set rag.expansion.queries=0, rag.expansion.hyde=false and rag.answer.mode=extractive"
            )
        self._endpoint = Endpoint(
            kind="language model server",
            section="language_model",
            url=settings.url,
            path=self._protocol.path,
            api_key=settings.api_key,
            model=settings.model,
            example=self._protocol.example,
        )
        # No limit of connections: callers have limits of their own, and httpx would queue a stream without a sign.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._client = httpx.AsyncClient(headers=self._endpoint.headers, limits=limits)
        self._background = BackgroundLoop()

    @property
    def name(self) -> str:
        """The model's name as configured."""
        return self._settings.model

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> BackgroundStream:
        """Send the conversation and return the answer at temperature 0.

        `close` may come from any thread. The request is sent at once. It is retried once where the connection fails or
        the server is busy before the first token. Iterating raises ModelUnavailable where the server cannot be reached,
        is late or busy, or refuses key or model, and ModelError where it fails, breaks off, or answers without text.
        """
        body = self._protocol.build_request(messages, self._settings, max_tokens)
        completion = _Completion(self._client, self._endpoint, self._protocol, self._settings, body)
        answer = self._background.start(completion.run)
        span = self._open_span(messages, max_tokens)
        answer.on_end(lambda task: _end_span(span, task, completion))
        answer.on_end(usage.bind(lambda _: self._record_usage(messages, completion)))
        return answer

    def _open_span(self, messages: Sequence[Message], max_tokens: int) -> trace.Span:
        url = self._endpoint.url
        port = url.port or (443 if url.scheme == "https" else 80)
        attributes = genai.chat_attributes(self.name, self._settings.protocol, url.host, port, max_tokens)
        span = tracing.open_span(f"chat {self.name}", attributes, kind=trace.SpanKind.CLIENT)
        if span.is_recording() and genai.captures_texts():
            span.set_attributes(genai.input_messages((message.role, message.text) for message in messages))
        return span

    def _record_usage(self, messages: Sequence[Message], completion: "_Completion") -> None:
        """Charge the tokens that the server has reported, or an estimate of them.

        A server that has accepted a conversation bills it, also where its answer was cancelled.
        """
        if not completion.is_accepted:
            return
        input_tokens, output_tokens = completion.input_tokens, completion.output_tokens
        if input_tokens is None:
            input_tokens = sum(_TOKENIZER.count([message.text for message in messages]))
        if output_tokens is None:
            output_tokens = completion.estimated_tokens
        usage.record(usage.Quantity.INPUT_TOKENS, input_tokens, self.name)
        usage.record(usage.Quantity.OUTPUT_TOKENS, output_tokens, self.name)

    def close(self) -> None:
        """Cancel all answers and close the connections."""
        self._background.close(self._client.aclose)


def _end_span(span: trace.Span, task: "Future[bool]", completion: "_Completion") -> None:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        tracing.set_error(span, error)
    else:
        reason = "length" if task.result() else "stop"
        span.set_attribute("gen_ai.response.finish_reasons", [reason])
        if span.is_recording() and genai.captures_texts():
            span.set_attributes(genai.output_message("".join(completion.fragments), reason))
    span.set_attributes(genai.chat_usage(completion.input_tokens, completion.output_tokens))
    span.end()


class _Completion:
    """One answer: request, retry, deadlines, and the response as it comes."""

    def __init__(
        self,
        client: "httpx.AsyncClient",
        endpoint: Endpoint,
        protocol: ChatProtocol,
        settings: LanguageModelSettings,
        body: dict[str, Any],
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._protocol = protocol
        self._settings = settings
        self._body = body
        self._started = False
        """Whether the first token has come."""
        self._keeps_text = genai.captures_texts()
        self.fragments: list[str] = []
        """The pieces of the answer so far, where its span shall have them."""
        self.is_accepted = False
        """Whether the server has begun to answer."""
        self.estimated_tokens = 0
        """Estimated tokens of the answer so far."""
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        """Token counts that the server reported; None where it reported none."""

    async def run(self, write: Write) -> bool:
        """Write the answer and return whether it was truncated. Raises ModelError, ModelUnavailable."""
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s),
                asyncio.timeout(self._settings.first_token_s) as first_token,
            ):

                def write_started(token_text: str) -> None:
                    if not self._started and token_text.strip():
                        self._started = True
                        first_token.reschedule(None)
                    if self._started:
                        self.estimated_tokens += _TOKENIZER.count([token_text])[0]
                        if self._keeps_text:
                            self.fragments.append(token_text)
                        write(token_text)

                limit_s = min(self._settings.first_token_s, self._settings.timeout_s)
                until = asyncio.get_running_loop().time() + limit_s
                truncated = await request_with_retry(lambda: self._request(write_started), _RETRY, until=until)
        except TimeoutError:
            raise self._timeout_error() from None
        if not self._started:
            raise self._endpoint.error(
                "answered without a text: correct language_model.url, or name a language_model.model that answers "
                "without reasoning at length"
            )
        return truncated

    def _timeout_error(self) -> ModelUnavailable:
        first_token_s, timeout_s = self._settings.first_token_s, self._settings.timeout_s
        if self._started:
            return self._endpoint.unavailable(
                f"did not end its answer within {timeout_s:g} s: raise language_model.timeout_s, or lower "
                "rag.answer.max_output_tokens"
            )
        key = "first_token_s" if first_token_s <= timeout_s else "timeout_s"
        return self._endpoint.unavailable(
            f"gave no answer within {min(first_token_s, timeout_s):g} s: raise language_model.{key}, or name a faster "
            "language_model.model"
        )

    async def _request(self, write: Write) -> bool:
        import httpx

        try:
            async with self._client.stream("POST", self._endpoint.url, json=self._body, timeout=None) as response:
                if response.status_code != 200:
                    refusal = self._endpoint.refusal(response.status_code, await read_start(response, _MAX_ERROR_BYTES))
                    if response.status_code in _RETRY.statuses:
                        raise Retry(refusal, after_s=parse_retry_after(response.headers.get("retry-after", "")) or 0.0)
                    raise refusal
                self.is_accepted = True
                return await self._read_answer(response, write)
        except httpx.TransportError as error:
            if self._started:
                raise self._endpoint.error(
                    "ended the connection during its answer: see its log, and ask again"
                ) from error
            raise Retry(self._endpoint.unreachable(error)) from error
        except httpx.DecodingError as error:
            raise self._endpoint.unreadable(error) from error

    async def _read_answer(self, response: "httpx.Response", write: Write) -> bool:
        lines = self._read_lines(response)
        async for line in lines:
            try:
                chunk = self._protocol.parse_line(line)
            except ProtocolError:
                raise self._endpoint.error(
                    f"sent a line that is not of the protocol {self._settings.protocol} "
                    f"({self._endpoint.excerpt(line)}): correct language_model.protocol or language_model.url"
                ) from None
            except ServerError as error:
                raise self._endpoint.error(
                    f"failed ({self._endpoint.excerpt(str(error))}): look into its log"
                ) from None
            if chunk.text:
                write(chunk.text)
            self._read_counts(chunk)
            if chunk.ended:
                if self._settings.report_usage and self._protocol.reports_usage_last and self.input_tokens is None:
                    await self._read_usage(lines)
                return chunk.truncated
        raise self._endpoint.error("ended before its answer was complete: look into its log, and ask again")

    async def _read_usage(self, lines: AsyncIterator[str]) -> None:
        """Read the token counts that follow an answer, if they come soon.

        The answer is complete without them.
        """
        import httpx

        with suppress(TimeoutError, ModelError, ProtocolError, ServerError, httpx.HTTPError):
            async with asyncio.timeout(_USAGE_S):
                async for line in lines:
                    chunk = self._protocol.parse_line(line)
                    self._read_counts(chunk)
                    if chunk.ended or self.input_tokens is not None:
                        return

    def _read_counts(self, chunk: StreamChunk) -> None:
        if chunk.input_tokens is not None:
            self.input_tokens = chunk.input_tokens
        if chunk.output_tokens is not None:
            self.output_tokens = chunk.output_tokens

    async def _read_lines(self, response: "httpx.Response") -> AsyncIterator[str]:
        size = 0
        parts: list[bytes] = []  # of a line without an end: to join each with the next would be quadratic
        async for data in response.aiter_bytes():
            size += len(data)
            if size > _MAX_RESPONSE_BYTES:
                raise ModelError(
                    f"{self._endpoint.name} sent more than {_MAX_RESPONSE_BYTES} bytes: correct language_model.url, or "
                    "lower rag.answer.max_output_tokens"
                )
            # Not httpx's aiter_lines: it also splits at U+2028 and U+0085, which a text may hold.
            *lines, last = data.split(b"\n")
            if lines:
                lines[0], parts = b"".join((*parts, lines[0])), []
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
            parts.append(last)
        if remainder := b"".join(parts):
            yield remainder.decode(errors="replace")
