"""Requests to an identity provider, within limits of time and size."""

import asyncio
from typing import Any

_MAX_BYTES = 1_000_000
"""Maximum size of an answer; metadata, keys and tokens have some thousands."""


class FetchFailed(Exception):
    """A server does not answer, too late, or with too much."""


async def fetch(method: str, url: str, *, timeout_s: float, **options: Any) -> tuple[int, bytes]:
    """Return status and body of an answer. Raises FetchFailed.

    Args:
        url: of the request; redirects are not followed.
        timeout_s: seconds until the answer must be complete.
        options: further arguments of `httpx.AsyncClient` (verify) and of the request (data, headers).
    """
    import httpx

    verify = options.pop("verify", True)
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(timeout=timeout_s, verify=verify) as client,
            client.stream(method, url, **options) as response,
        ):
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > _MAX_BYTES:
                    raise FetchFailed(f"an answer of more than {_MAX_BYTES} bytes")
    except TimeoutError:
        raise FetchFailed(f"no complete answer within {timeout_s:g} s") from None
    # A value of the provider may be no header or no URL.
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise FetchFailed(str(error)) from error
    return response.status_code, bytes(content)
