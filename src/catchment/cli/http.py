"""What the commands that talk to a broker's HTTP side share: requests and their answers, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.errors import CatchmentError, UnavailableError

if TYPE_CHECKING:
    from http.client import HTTPResponse

DEFAULT_HTTP: Final = "127.0.0.1:7480"
# How long a broker may take to answer: sending a dead letter again takes as long as its sink.
ANSWER_S_MAX: Final = 150.0

HttpOption = Annotated[
    str,
    Parameter(
        name="--http",
        help=f"The address of the broker's HTTP side. Default: {DEFAULT_HTTP}.",
        metavar="HOST:PORT",
        show_default=False,
    ),
]


class RefusedByBrokerError(CatchmentError):
    """The broker has answered with an error."""


class HttpBroker:
    """`address` is `host:port` or a URL."""

    def __init__(self, address: str) -> None:
        from urllib.request import ProxyHandler, build_opener

        given = address or DEFAULT_HTTP
        self._base = given.rstrip("/") if "://" in given else f"http://{given}"
        # A broker is not reached through a proxy that this machine uses for the web.
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of the answer."""
        return self._answered(method, path, body)[0]

    def pages(self, path: str) -> Iterator[Any]:
        """All things of a list, page after page."""
        following = path
        while following:
            things, following = self._answered("GET", following, None)
            yield from things

    def _answered(self, method: str, path: str, body: object) -> tuple[Any, str]:
        """The JSON of the answer, and the path of the next page."""
        from urllib.error import HTTPError, URLError
        from urllib.request import Request

        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = Request(self._base + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=ANSWER_S_MAX) as response:
                return _json(response), _next_of(response.headers.get("Link", ""))
        except HTTPError as problem:
            with problem:
                raise RefusedByBrokerError(_reason(problem)) from None
        except (URLError, OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            advice = "give --http HOST:PORT as the broker printed it"
            raise UnavailableError(f"no broker answers at {self._base}: {reason}\n{advice}") from None


def _json(response: HTTPResponse) -> Any:
    text = response.read()
    return json.loads(text) if text else None


def _next_of(link: str) -> str:
    """The target of `<…>; rel="next"`."""
    return link[1:].partition(">")[0] if link.startswith("<") else ""


def _reason(problem: Any) -> str:
    try:
        return str(json.loads(problem.read())["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answered {problem.code} {problem.reason}"
