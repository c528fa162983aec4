"""Requests to sinks over real sockets: what is never done, whatever a sink answers."""

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from catchment.broker.http.webhooks.sinks import ANSWER_BYTES_MAX, SinkError, Sinks
from catchment.broker.targets import TargetRules, target_of

LOOPBACK = TargetRules(("127.0.0.0/8",))


@asynccontextmanager
async def server(answer, tls=None):
    """A server that calls `answer(reader, writer)` for each request, after it has read the headers."""
    requests = []

    async def handle(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                requests.append(head)
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    served = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield served.sockets[0].getsockname()[1], requests
    finally:
        served.close()


async def ask(sinks, port, timeout_s=10.0, host="127.0.0.1", scheme="http"):
    try:
        return await sinks.ask("POST", target_of(f"{scheme}://{host}:{port}/hook"), {"x-a": "b"}, b"hello", timeout_s)
    finally:
        await sinks.close()


def saying(text):
    async def answer(reader, writer):
        writer.write(text)
        await writer.drain()

    return answer


def test_an_answer():
    async def scene():
        text = b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nX-Other: y\r\nContent-Length: 7\r\n\r\ntoo\nbad"
        async with server(saying(text)) as (port, requests):
            answer = await ask(Sinks(LOOPBACK), port)
            assert (answer.status, answer.headers, answer.text) == (429, {"retry-after": "7"}, "too bad")
            (head,) = requests
            assert head.startswith(b"POST /hook HTTP/1.1\r\n")
            assert f"host: 127.0.0.1:{port}".encode() in head.lower()

    asyncio.run(scene())


def test_a_redirect_is_not_followed():
    async def scene():
        async with server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as (other_port, others):
            location = f"Location: http://127.0.0.1:{other_port}/hook".encode()
            text = b"HTTP/1.1 307 Elsewhere\r\n%b\r\nContent-Length: 0\r\n\r\n" % location
            async with server(saying(text)) as (port, requests):
                assert (await ask(Sinks(LOOPBACK), port)).status == 307
                assert (len(requests), others) == (1, [])

    asyncio.run(scene())


def test_an_endless_body_is_not_read():
    async def scene():
        sent = 0

        async def endless(reader, writer):
            nonlocal sent
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"x" * 1_024)
                sent += 1_024
                await writer.drain()

        async with server(endless) as (port, _):
            assert (await ask(Sinks(LOOPBACK), port)).status == 200
            # What the kernels of both sides hold is not counted here: some megabytes.
            assert sent < ANSWER_BYTES_MAX + 32 * 1_048_576

    asyncio.run(scene())


def test_an_answer_that_drips_takes_no_longer_than_the_timeout():
    async def scene():
        async def dripping(reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

        async with server(dripping) as (port, _):
            with pytest.raises(SinkError, match=r"no answer within 0\.2 s"):
                await ask(Sinks(LOOPBACK), port, 0.2)

    asyncio.run(scene())


@pytest.mark.parametrize("text", [b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, b""])
def test_what_is_no_answer(text):
    async def scene():
        async def answer(reader, writer):
            writer.write(text)
            await writer.drain()
            writer.close()

        async with server(answer) as (port, _):
            with pytest.raises(SinkError):
                await ask(Sinks(LOOPBACK), port)

    asyncio.run(scene())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_that_is_not_allowed_is_not_connected_to(host):
    async def scene():
        async with server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as (port, requests):
            with pytest.raises(SinkError, match="not a public address"):
                await ask(Sinks(TargetRules()), port, host=host)
            assert requests == []
            assert (await ask(Sinks(TargetRules((host,))), port, host=host)).status == 200

    asyncio.run(scene())


def test_the_environment_names_no_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async def scene():
        async with server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as (port, _):
            assert (await ask(Sinks(LOOPBACK), port)).status == 200

    asyncio.run(scene())


def test_a_certificate_must_be_good(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    rules = TargetRules(("localhost",))

    async def scene():
        async with server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), tls) as (port, requests):
            with pytest.raises(SinkError, match="certificate"):
                await ask(Sinks(rules), port, host="localhost", scheme="https")
            assert requests == []
            trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
            assert (await ask(Sinks(rules, trusting), port, host="localhost", scheme="https")).status == 200

    asyncio.run(scene())
