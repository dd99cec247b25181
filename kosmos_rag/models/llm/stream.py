"""One answer of a server: asked for, asked for again before it begins, read as it comes."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.errors import ModelError, ModelUnavailable, first_line
from kosmos_rag.models.llm.endpoint import BUSY, Server
from kosmos_rag.models.llm.loop import Write
from kosmos_rag.models.llm.protocols import ChatProtocol, NotOfProtocolError, ServerSaidError

if TYPE_CHECKING:
    import httpx

_PAUSE_S = 0.5
# What is asked for is some hundred words; without a bound a server could fill the memory until the deadline.
_MAX_BYTES = 4_000_000
_MAX_BYTES_OF_REFUSAL = 10_000


class _Again(Exception):
    """The answer had not begun, and may come at another try."""


class Exchange:
    """One answer, written piece by piece."""

    def __init__(
        self,
        client: "httpx.AsyncClient",
        server: Server,
        protocol: ChatProtocol,
        settings: LanguageModelSettings,
        body: dict[str, Any],
    ) -> None:
        self._client = client
        self._server = server
        self._protocol = protocol
        self._settings = settings
        self._body = body
        self._begun = False

    async def run(self, write: Write) -> bool:
        """Ask, write the pieces, and tell whether more would have come. Raises ModelError, ModelUnavailable."""
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s),
                asyncio.timeout(self._settings.first_token_s) as patience,
            ):

                def write_in_time(piece: str) -> None:
                    if not self._begun and piece.strip():
                        self._begun = True
                        patience.reschedule(None)
                    if self._begun:
                        write(piece)

                cut = await self._asked(write_in_time)
        except TimeoutError:
            raise self._late() from None
        if not self._begun:
            raise self._server.error(
                "answered without a text: correct language_model.url, or name a language_model.model that answers "
                "without reasoning at length"
            )
        return cut

    def _late(self) -> ModelUnavailable:
        first, whole = self._settings.first_token_s, self._settings.timeout_s
        if self._begun:
            return self._server.unavailable(
                f"did not end its answer within {whole:g} s: raise language_model.timeout_s, or lower "
                "rag.answer.model_tokens"
            )
        key = "first_token_s" if first <= whole else "timeout_s"
        return self._server.unavailable(
            f"gave no answer within {min(first, whole):g} s: raise language_model.{key}, or name a faster "
            "language_model.model"
        )

    async def _asked(self, write: Write) -> bool:
        try:
            return await self._sent(write, last=False)
        except _Again:
            await asyncio.sleep(_PAUSE_S)
            return await self._sent(write, last=True)

    async def _sent(self, write: Write, *, last: bool) -> bool:
        import httpx

        try:
            async with self._client.stream("POST", self._server.url, json=self._body, timeout=None) as response:
                if response.status_code in BUSY and not last:
                    raise _Again
                if response.status_code != 200:
                    raise self._server.refusal(response.status_code, await _beginning(response))
                return await self._read(response, write)
        except httpx.TransportError as error:
            if self._begun:
                raise self._server.error(
                    "broke off in the middle of its answer: look into its log, and ask again"
                ) from error
            if not last:
                raise _Again from error
            raise self._server.unreachable(error) from error
        except httpx.DecodingError as error:
            raise self._server.error(f"sent what cannot be read: {self._server.shown(first_line(error))}") from error

    async def _read(self, response: "httpx.Response", write: Write) -> bool:
        async for line in self._lines(response):
            try:
                said = self._protocol.read(line)
            except NotOfProtocolError:
                raise self._server.error(
                    f"sent a line that is not of the protocol {self._settings.protocol} ({self._server.shown(line)}): "
                    "correct language_model.protocol or language_model.url"
                ) from None
            except ServerSaidError as failure:
                raise self._server.error(f"failed ({self._server.shown(str(failure))}): look into its log") from None
            if said.text:
                write(said.text)
            if said.ended:
                return said.cut
        raise self._server.error("ended before its answer was complete: look into its log, and ask again")

    async def _lines(self, response: "httpx.Response") -> AsyncIterator[str]:
        """Yield lines that end in `\\n` alone: a text may hold the other line ends of Unicode."""
        size = 0
        kept = b""
        async for data in response.aiter_bytes():
            size += len(data)
            if size > _MAX_BYTES:
                raise ModelError(
                    f"{self._server.name} sent more than {_MAX_BYTES} bytes: correct language_model.url, or lower "
                    "rag.answer.model_tokens"
                )
            *lines, kept = (kept + data).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
        if kept:
            yield kept.decode(errors="replace")


async def _beginning(response: "httpx.Response") -> bytes:
    content = b""
    async for data in response.aiter_bytes():
        content += data
        if len(content) > _MAX_BYTES_OF_REFUSAL:
            break
    return content
