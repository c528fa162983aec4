"""A sink for webhooks: an HTTP server of the standard library, which answers what a test says."""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

AGREES = {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "*"}


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Sink:
    """`answer` says what to answer to a request: a status, or a status and headers. By default the sink agrees to the
    handshake and accepts everything."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], int | tuple[int, dict[str, str]]] = lambda asked: 204
        self.handshake: tuple[int, dict[str, str]] = (200, AGREES)
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length", "0"))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, self.rfile.read(length))
                sink.asked.append(asked)
                said = sink.handshake if self.command == "OPTIONS" else sink.answer(asked)
                status, more = said if isinstance(said, tuple) else (said, {})
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if status != 204 and "Content-Length" not in more:
                    self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PUT = do_OPTIONS = do_GET = handle_any  # noqa: N815  # the library's names

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def posted(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "POST"]

    @property
    def ids(self) -> list[str]:
        return [asked.headers["ce-id"] for asked in self.posted]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def a_sink():
    sink = Sink()
    try:
        yield sink
    finally:
        sink.close()
