"""What strangers can do to the HTTP side of a broker: half requests, endless bodies, floods, pages of other sites."""

import contextlib
import gc
import json
import socket
import time
from collections import Counter

import httpx
import pytest

from catchment.broker import turns
from catchment.broker.allowance import BURST_S, PINGS_PER_S
from catchment.broker.half_sent import HalfSent
from catchment.broker.http import delivery_log, gate, pages, protocols
from catchment.broker.http.binding import BODY_BYTES_MAX
from catchment.broker.http.pages import PUBLISHER
from catchment.model.notification import Notification
from tests.integration.live import WAIT_S, until, url_of
from tests.integration.over_http import BATCHED, an_event, publish, read, subscribe
from tests.integration.test_broker_bounds import framed_ping

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
}


@contextlib.contextmanager
def raw(broker, *lines):
    """A connection that has said some lines."""
    address = broker.http.address
    with socket.create_connection((address.host, address.port), timeout=WAIT_S) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        yield connection


def all_of(connection):
    """All that comes until the other side closes."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            data += part
    return data


def one_answer(connection):
    """An answer that is a JSON object without another in it."""
    data = b""
    while not data.endswith(b"}"):
        data += connection.recv(65_536)
    return data


def status_of(broker, *lines):
    with raw(broker, *lines, "Connection: close", "", "") as connection:
        return int(all_of(connection).split()[1])


def sent_until_closed(connection, piece, bytes_max):
    """How much the other side lets us send."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < bytes_max:
            sent += connection.send(piece)
    return sent


# --- half requests ------------------------------------------------------------------------------


def test_headers_that_do_not_arrive_are_timed_out(broker, monkeypatch):
    monkeypatch.setattr(protocols, "HEADER_S_MAX", 0.05)
    with raw(broker, "GET /healthz HTTP/1.1", "Host: localhost") as half, raw(broker) as silent:
        assert all_of(half).startswith(b"HTTP/1.1 408 ")
        assert all_of(silent) == b""
    assert broker.http.edge.closed_count == 2


def test_headers_of_a_second_request_are_timed_out_too(broker, monkeypatch):
    monkeypatch.setattr(protocols, "HEADER_S_MAX", 0.05)
    with raw(broker, "GET /healthz HTTP/1.1", "Host: localhost", "", "") as half:
        assert one_answer(half).startswith(b"HTTP/1.1 200")
        half.sendall(b"GET /heal")
        assert all_of(half).startswith(b"HTTP/1.1 408")


def test_the_oldest_half_request_makes_room(http, broker, monkeypatch):
    monkeypatch.setattr(protocols, "HEADERS_WAITING_MAX", 20)
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(raw(broker, "GET /healthz HTTP/1.1")) for _ in range(50)]
        assert http.get("/healthz").status_code == 200
        until(lambda: broker.http.connections_count <= 22)
        assert all_of(half[0]) == b""
        half[-1].sendall(b"\r\nHost: localhost\r\n\r\n")
        assert half[-1].recv(12) == b"HTTP/1.1 200"


def test_a_full_broker_still_says_that_it_is_alive(http, broker, monkeypatch):
    monkeypatch.setattr(gate, "HTTP_CONNECTIONS_MAX", 10)
    monkeypatch.setattr(protocols, "HTTP_CONNECTIONS_MOST", 15)
    stream = ("GET /events HTTP/1.1", "Host: localhost", "", "")
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stream_connection = stack.enter_context(raw(broker, *stream))
            assert stream_connection.recv(12) == b"HTTP/1.1 200"
        assert http.get("/subscriptions").status_code == 503
        for path in ("/healthz", "/metrics"):
            assert http.get(path).status_code == 200
        # Those that only take up room give it to those that ask.
        for _ in range(30):
            stack.enter_context(raw(broker, "GET /events HTTP/1.1"))
        with httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as other:
            assert other.get("/healthz").status_code == 200
        assert broker.http.connections_count <= 16


def test_streams_are_bounded(http, broker, monkeypatch):
    monkeypatch.setattr(pages, "STREAMS_MAX", 3)
    id = subscribe(http)
    stream = (f"GET /subscriptions/{id}/events HTTP/1.1", "Host: localhost", "", "")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            assert stack.enter_context(raw(broker, *stream)).recv(12) == b"HTTP/1.1 200"
        assert http.get(f"/subscriptions/{id}/events").status_code == 503
        with raw(broker, f"GET /subscriptions/{id}/ws HTTP/1.1", "Host: localhost", *_lines(UPGRADE), "", "") as more:
            assert more.recv(12) == b"HTTP/1.1 503"
    until(lambda: broker.http.subscriptions.readers_count == 0)


def _lines(headers):
    return [f"{name}: {value}" for name, value in headers.items() if name != "Connection"] + ["Connection: Upgrade"]


# --- bodies -------------------------------------------------------------------------------------

CHUNKED = ("Host: localhost", "Transfer-Encoding: chunked", "Content-Type: application/cloudevents+json", "", "")
CHUNK = b"10000\r\n" + bytes(0x10000) + b"\r\n"
# What the systems' buffers on both sides may hold besides.
BUFFERS_BYTES = 16 * 1_048_576


@pytest.mark.parametrize("request_line", ["POST /events", "POST /subscriptions", "GET /healthz", "GET /events"])
def test_an_endless_body_ends_early(http, broker, request_line):
    # In chunks, the same with a length that is a lie, and for pages that want no body.
    for framing in (CHUNKED, ("Host: localhost", f"Content-Length: {10**12}", "", "")):
        with raw(broker, f"{request_line} HTTP/1.1", *framing) as connection:
            sent = sent_until_closed(connection, CHUNK, 1_000_000_000)
        assert sent < BODY_BYTES_MAX + protocols.LINGER_BYTES_MAX + BUFFERS_BYTES
    assert http.get("/healthz").status_code == 200


def test_who_sends_too_much_can_read_why(broker):
    with raw(broker, "POST /events HTTP/1.1", *CHUNKED) as connection:
        for _ in range(BODY_BYTES_MAX // 0x10000 + 2):
            connection.sendall(CHUNK)
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_a_body_that_nobody_wants_is_not_awaited_for_long(broker, monkeypatch):
    monkeypatch.setattr(protocols, "LINGER_S_MAX", 0.05)
    with raw(broker, "GET /healthz HTTP/1.1", "Host: localhost", "Content-Length: 10", "", "abc") as connection:
        assert all_of(connection).startswith(b"HTTP/1.1 200")


def test_a_body_behind_its_answer_does_not_disturb_the_next_request(broker):
    with raw(broker, "GET /healthz HTTP/1.1", "Host: localhost", "Content-Length: 3", "", "") as connection:
        assert one_answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(b"abcGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one_answer(connection).startswith(b"HTTP/1.1 200")


def test_a_stream_whose_request_has_no_end_is_closed(broker, monkeypatch):
    monkeypatch.setattr(protocols, "BODY_S_MAX", 0.01)
    monkeypatch.setattr(protocols, "LINGER_S_MAX", 0.05)
    with raw(broker, "GET /events HTTP/1.1", "Host: localhost", "Content-Length: 10", "", "abc") as connection:
        assert all_of(connection).startswith(b"HTTP/1.1 200")


def test_bodies_that_are_not_whole_are_bounded_over_all_connections(http, broker, live):
    live.do(lambda: setattr(broker.http.edge, "half_sent", HalfSent(bytes_max=100_000)))
    begun = ("POST /events HTTP/1.1", "Host: localhost", "Content-Length: 90000", "ce-specversion: 1.0", "")
    with raw(broker, *begun, "x" * 60_000) as first, raw(broker, *begun, "x" * 60_000) as second:
        assert all_of(first) == b""
        second.sendall(b"x" * 30_000)
        assert second.recv(12) == b"HTTP/1.1 400"
    assert live.do(lambda: broker.http.edge.half_sent.bytes) == 0


def test_tiny_chunks_are_handled_in_slices(http, broker, monkeypatch):
    lengths = []

    class Counted(turns.Slice):
        def is_over(self):
            is_over = super().is_over()
            lengths.append(self.events)
            return is_over

    monkeypatch.setattr(turns, "Slice", Counted)
    id = subscribe(http)
    body = json.dumps(an_event(note="x" * 5_000)).encode()
    with raw(broker, "POST /events HTTP/1.1", *CHUNKED) as connection:
        connection.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 202"
    assert max(lengths) <= turns.SLICE_EVENTS < len(lengths)
    assert read(http, f"/subscriptions/{id}/events", 1)[0].json()["note"] == "x" * 5_000


def test_requests_one_behind_the_other_are_all_answered(broker):
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with raw(broker) as connection:
        connection.sendall(request * 500 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert all_of(connection).count(b"HTTP/1.1 200") == 501


# --- WebSockets ---------------------------------------------------------------------------------


def test_pings_of_a_websocket_are_limited(http, broker):
    with raw(broker, "GET /events/ws HTTP/1.1", "Host: localhost", *_lines(UPGRADE), "", "") as connection:
        assert b"101" in connection.recv(64)
        began = time.monotonic()
        connection.sendall(framed_ping(b"") * 5_000)
        connection.settimeout(0.2)
        received = b""
        with contextlib.suppress(TimeoutError):
            while True:
                received += connection.recv(65_536)
        passed_s = time.monotonic() - began
        # However long this took on a busy machine, there are no more pongs than the allowance of that time.
        assert PINGS_PER_S * BURST_S <= received.count(b"\x8a\x00") <= (passed_s + BURST_S + 1) * PINGS_PER_S
        publish(http, an_event("after"))
        connection.settimeout(WAIT_S)
        while b'"id":"after"' not in received:
            received += connection.recv(65_536)


# --- what streams leave behind ------------------------------------------------------------------

OF_STREAMS = (
    delivery_log.LogEntry,
    delivery_log.DeliveryLog,
    delivery_log.Reader,
    pages.EventStream,
    protocols.HttpConnection,
    protocols.WebSocketConnection,
)


def objects_of_streams():
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    return {kind.__name__: kinds[kind] for kind in OF_STREAMS}


def test_streams_that_nobody_reads_leave_nothing_behind(broker, live):
    """Their memory may stay with the allocator, which uses it again: what counts is that nothing refers to it."""
    before = live.do(objects_of_streams)
    with contextlib.ExitStack() as stack:
        for n in range(40):
            kind = ("/events/ws", *_lines(UPGRADE)) if n % 2 else ("/events",)
            request = (f"GET {kind[0]} HTTP/1.1", "Host: localhost", *kind[1:], "", "")
            assert stack.enter_context(raw(broker, *request)).recv(12)[9:] in (b"101", b"200")
        events = [Notification({"n": n}, payload=bytes(20_000)) for n in range(100)]
        live.do(lambda: broker.node.publish(PUBLISHER, events))
        during = live.do(objects_of_streams)
        assert during["LogEntry"] >= 40 * 30
        assert during["WebSocketConnection"] - before["WebSocketConnection"] == 20
    until(lambda: broker.http.connections_count == 0)
    until(lambda: live.do(objects_of_streams) == before, "an end of all objects")


# --- pages of other sites -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7480", "127.0.0.1.evil.example", "", "[", "[::1", "localhost:x", "a b", "127.0.0.2"],
)
def test_a_page_that_rebinds_a_name_can_do_nothing(http, broker, host):
    before = dict(broker.http.pages.answers.counts)
    event = json.dumps([an_event()])
    for lines in (
        ("POST /events HTTP/1.1", f"Host: {host}", *_lines_of(BATCHED), f"Content-Length: {len(event)}"),
        ("POST /subscriptions HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Content-Length: 2"),
        ("GET /events HTTP/1.1", f"Host: {host}"),
        ("GET /topology HTTP/1.1", f"Host: {host}", f"Origin: http://{host}"),
        ("GET /events/ws HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", *_lines(UPGRADE)),
    ):
        assert status_of(broker, *lines) in (400, 421), lines
    assert len(broker.http.subscriptions) == 0
    assert broker.node.totals.published == 0
    assert before != broker.http.pages.answers.counts


def _lines_of(headers):
    return [f"{name}: {value}" for name, value in headers.items()]


def test_names_of_the_broker_are_answered(live):
    broker = live.broker(allowed_hosts=("Broker.Example", "fe80::1"))
    port = broker.http.address.port
    for host in ("localhost", f"localhost:{port}", "LOCALHOST.", "127.0.0.1", f"127.0.0.1:{port}", "[::1]:80"):
        assert status_of(broker, "GET /healthz HTTP/1.1", f"Host: {host}") == 200, host
    for host in ("broker.example", "BROKER.EXAMPLE.:443", "[fe80::1]", "[FE80:0::1]:7480"):
        assert status_of(broker, "GET /healthz HTTP/1.1", f"Host: {host}") == 200, host
    assert status_of(broker, "GET /healthz HTTP/1.0") == 421
    assert status_of(broker, "GET /healthz HTTP/1.0", "Host: localhost", "Host: evil.example") in (400, 421)


ORIGINS = [
    (200, "http://localhost"),
    (200, "HTTP://LOCALHOST:80"),
    (200, "https://broker.example:8443"),
    (403, "http://localhost:3000"),
    (403, "https://elsewhere.example"),
    (403, "https://localhost.elsewhere.example"),
    (403, "null"),
    (403, "http://["),
    (403, "http://[::1"),
    (403, "http://localhost:99999999"),
    (403, "http://localhost/path"),
    (403, "http://user@localhost"),
    (403, "//localhost"),
    (403, "\xff\xfe"),
    (403, "x" * 10_000),
    (403, ""),
]


@pytest.mark.parametrize(("status", "origin"), ORIGINS)
def test_pages_of_other_sites_are_refused(live, caplog, status, origin):
    broker = live.broker(allowed_hosts=("broker.example",))
    origin_line = f"Origin: {origin}"
    assert status_of(broker, "GET /healthz HTTP/1.1", "Host: localhost", origin_line) == status
    websocket = ("GET /events/ws HTTP/1.1", "Host: localhost", origin_line, *_lines(UPGRADE))
    with raw(broker, *websocket, "", "") as connection:
        assert int(connection.recv(12).split()[1]) in ((101,) if status == 200 else (status, 431))
        if status != 200:
            all_of(connection)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


STRANGE = [
    ("Content-Type", "\xff"),
    ("Content-Type", ";" * 5_000),
    ("Content-Type", "application/cloudevents+json; charset="),
    ("Last-Event-ID", "\xb2.\xb2"),
    ("Last-Event-ID", "9" * 5_000),
    ("ce-specversion", "%"),
    ("ce-id", "%ff%"),
    ("ce-", "x"),
    ("Upgrade", "\xff"),
    ("Connection", "upgrade, \xff"),
    ("Sec-WebSocket-Key", "\xff"),
    ("Sec-WebSocket-Protocol", ",,,\xff"),
    ("Sec-WebSocket-Version", "x"),
    ("Sec-WebSocket-Extensions", ";;=\xff"),
    ("Expect", "\xff"),
    ("Content-Length", "\xb2"),
    ("Transfer-Encoding", "gzip"),
    ("X" * 9_000, "y" * 9_000),
]


@pytest.mark.parametrize(("name", "value"), STRANGE, ids=range(len(STRANGE)))
def test_no_header_makes_a_traceback(live, caplog, name, value):
    broker = live.broker()
    for path in ("/events", "/events/ws", "/subscriptions", "/subscriptions/%ff/events", "/healthz?limit=%ff"):
        for method in ("GET", "POST"):
            for more in ((), _lines(UPGRADE)):
                with raw(
                    broker, f"{method} {path} HTTP/1.1", "Host: localhost", *more, f"{name}: {value}", "", ""
                ) as it:
                    answer = it.recv(12)
                assert answer[9:10] in (b"1", b"2", b"4"), (path, method, answer)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_many_headers_of_a_websocket(live, caplog):
    """h11 takes more headers, and longer ones, than the library of WebSockets."""
    broker = live.broker()
    for more in ([f"x{n}: y" for n in range(300)], ["x: " + "y" * 9_000]):
        with raw(broker, "GET /events/ws HTTP/1.1", "Host: localhost", *more, *_lines(UPGRADE), "", "") as connection:
            assert b" 4" in connection.recv(12)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
