"""What pages do with a request: its route, its body, its parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from catchment.broker.http.binding import BODY_BYTES_MAX, UnknownMediaTypeError
from catchment.broker.http.problems import TooLongError
from catchment.broker.http.protocols import BODY_S_MAX
from catchment.errors import InputError, shown
from catchment.model.notification import parsed_json

# Things in one answer: the most that a client may ask for, and how many it gets if it does not say.
PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 100


def path(path: str, **by_method: Callable[[Request], Awaitable[Response]]) -> Route:
    """One route for all methods of a path, so that the answer 405 names all of them in its header `Allow`."""

    async def handle(request: Request) -> Response:
        return await by_method["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, handle, methods=list(by_method))


async def body_of(request: Request) -> bytes:
    """The whole body. Of a body that is too long, no more than the limit and one chunk is ever in memory."""
    declared = request.headers.get("content-length", "0")
    body = bytearray()
    # A declared length past the limit is refused without reading. The header may be missing or wrong, so what arrives
    # is counted too.
    if not declared.isdecimal() or len(declared) > 18 or int(declared) <= BODY_BYTES_MAX:
        try:
            async with asyncio.timeout(BODY_S_MAX):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > BODY_BYTES_MAX:
                        break
                else:
                    return bytes(body)
        except TimeoutError:
            raise HTTPException(408, f"BODY_S_MAX is {BODY_S_MAX:.0f}: the body did not arrive in time") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended before the body did") from None
    raise TooLongError(f"BODY_BYTES_MAX is {BODY_BYTES_MAX:,}: send less at once")


def _parsed(body: bytes) -> object:
    try:
        return parsed_json(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start + 1} is not UTF-8") from None


async def json_body(request: Request, what: str) -> object:
    """The JSON of a body that must be `application/json`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnknownMediaTypeError(f"{what} must be application/json, found {shown(media_type)}")
    return _parsed(await body_of(request))


def limit_of(connection: HTTPConnection) -> int:
    """How many things the client wants at most."""
    limit = connection.query_params.get("limit", str(PAGE_DEFAULT))
    if not limit.isdecimal() or len(limit) > 4 or not 1 <= int(limit) <= PAGE_MAX:
        raise InputError(f"limit must be between 1 and {PAGE_MAX:,}, found {shown(limit)}")
    return int(limit)


def number_of(text: str, what: str) -> int:
    """A number in a path or parameter."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InputError(f"{what} must be a number, found {shown(text)}")
    return int(text)
