"""The JSON of a webhook: a subscription of the CloudEvents Subscriptions API that has a `sink`.

    {"id": "audit", "types": ["com.example.sold"],
     "sink": "https://sink.example/hook", "protocol": "HTTP",
     "protocolsettings": {"method": "POST", "headers": {"X-Team": "shop"}},
     "sinkCredential": {"credentialType": "ACCESSTOKEN", "accessToken": "…", "accessTokenType": "bearer",
                        "accessTokenExpiresUtc": "2027-01-01T00:00:00Z"},
     "config": {"mode": "binary", "rate": 600, "attempts": 12, "giveup_s": 86400, "timeout_s": 30}}

Secrets go in and never come out: the values of `headers` and the secrets of `sinkCredential` are shown as HIDDEN. A
`PUT` that says HIDDEN keeps what was there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from catchment.broker.http.webhooks.message import Mode
from catchment.broker.http.webhooks.permission import RATE_MAX
from catchment.errors import CatchmentError, InputError, LimitError, shown
from catchment.model.values import parse_time

PUSH_MEMBERS: Final = ("sink", "sinkCredential", "protocol", "protocolsettings", "config")
HIDDEN: Final = "***"

# Failed attempts before a notification becomes a dead letter: with the pauses between them half an hour or so.
ATTEMPTS_DEFAULT: Final = 12
ATTEMPTS_MAX: Final = 100
# How long a notification may be tried: a day, at most a month.
GIVEUP_S_DEFAULT: Final = 86_400
GIVEUP_S_MAX: Final = 31 * 86_400
# How long one request may take, with its answer.
TIMEOUT_S_DEFAULT: Final = 30
TIMEOUT_S_MAX: Final = 120
# Headers that a user adds to each request, and the bytes of their names and values.
SINK_HEADERS_MAX: Final = 32
SINK_HEADERS_BYTES_MAX: Final = 4_096
# The texts of a credential: a long token has some kilobytes.
CREDENTIAL_CHARACTERS_MAX: Final = 8_192

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Headers that belong to HTTP, to CloudEvents or to the handshake.
_RESERVED: Final = frozenset(
    {"connection", "content-length", "content-type", "expect", "host", "keep-alive", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
_RESERVED_PREFIXES: Final = ("ce-", "webhook-", "proxy-")
_CREDENTIALS: Final = {
    "PLAIN": ("identifier", "secret"),
    "ACCESSTOKEN": ("accessToken", "accessTokenExpiresUtc", "accessTokenType"),
}
_SECRETS: Final = ("secret", "accessToken")


class Push(Struct, frozen=True):
    """How notifications of a webhook are sent. `credential` is as it was given."""

    sink: str
    method: Literal["POST", "PUT"] = "POST"
    headers: dict[str, str] = {}
    credential: dict[str, str] = {}
    mode: Mode = "binary"
    rate: int | None = None
    attempts: int = ATTEMPTS_DEFAULT
    giveup_s: int = GIVEUP_S_DEFAULT
    timeout_s: int = TIMEOUT_S_DEFAULT

    @property
    def resource(self) -> dict[str, Any]:
        """The members as they are shown, with the defaults and without secrets."""
        credential = {name: HIDDEN if name in _SECRETS else text for name, text in self.credential.items()}
        names = ("mode", "rate", "attempts", "giveup_s", "timeout_s")
        return {
            "sink": self.sink,
            "protocol": "HTTP",
            "protocolsettings": {"method": self.method, "headers": dict.fromkeys(self.headers, HIDDEN)},
            **({"sinkCredential": credential} if credential else {}),
            "config": {name: getattr(self, name) for name in names},
        }

    def expires_at(self) -> datetime | None:
        """When the access token ends to be good."""
        return parse_time(text) if (text := self.credential.get("accessTokenExpiresUtc")) else None

    @property
    def request_headers(self) -> dict[str, str]:
        return {**self.headers, **self._authorization()}

    def _authorization(self) -> dict[str, str]:
        match self.credential.get("credentialType"):
            case "PLAIN":
                pair = f"{self.credential['identifier']}:{self.credential['secret']}".encode()
                return {"authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}
            case "ACCESSTOKEN":
                return {"authorization": f"Bearer {self.credential['accessToken']}"}
        return {}


def push_of(given: Mapping[str, Any], before: Push | None = None) -> Push:
    """How to send, from the JSON of a subscription. `before` is how it was until now, for what is HIDDEN."""
    if given.get("protocol") != "HTTP":
        raise InputError(f'protocol must be "HTTP", found {shown(given.get("protocol"))}')
    settings = _object(given, "protocolsettings", ("method", "headers"))
    config = _object(given, "config", ("mode", "rate", "attempts", "giveup_s", "timeout_s"))
    method = settings.get("method", "POST")
    if method not in ("POST", "PUT"):
        raise InputError(f"protocolsettings.method must be POST or PUT, found {shown(method)}")
    mode = config.get("mode", "binary")
    if mode not in ("binary", "structured"):
        raise InputError(f"config.mode must be binary or structured, found {shown(mode)}")
    rate = config.get("rate")
    return Push(
        given["sink"],
        method,
        _headers(settings.get("headers", {}), {} if before is None else before.headers),
        _credential(given.get("sinkCredential"), {} if before is None else before.credential),
        mode,
        None if rate is None else _whole(rate, "config.rate", RATE_MAX),
        _whole(config.get("attempts", ATTEMPTS_DEFAULT), "config.attempts", ATTEMPTS_MAX),
        _whole(config.get("giveup_s", GIVEUP_S_DEFAULT), "config.giveup_s", GIVEUP_S_MAX),
        _whole(config.get("timeout_s", TIMEOUT_S_DEFAULT), "config.timeout_s", TIMEOUT_S_MAX),
    )


def _object(given: Mapping[str, Any], name: str, members: tuple[str, ...]) -> Mapping[str, Any]:
    value = given.get(name, {})
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be an object, found {shown(value)}")
    for member in value:
        if member not in members:
            raise InputError(f"{name} has the members {', '.join(members)}, found {shown(member)}")
    return value


def _whole(value: object, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError(f"{name} must be a whole number from 1 to {most:,}, found {shown(value)}")
    return value


def _headers(given: object, before: Mapping[str, str]) -> dict[str, str]:
    """Custom headers, with names in lower case."""
    if not isinstance(given, Mapping):
        raise InputError(f"protocolsettings.headers must be an object of texts, found {shown(given)}")
    if len(given) > SINK_HEADERS_MAX:
        raise LimitError("SINK_HEADERS_MAX", SINK_HEADERS_MAX, f"{len(given):,} headers")
    headers: dict[str, str] = {}
    for name, text in given.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name) or lower in headers:
            raise InputError(f"protocolsettings.headers: {shown(name)} is no name of a header, or is given twice")
        if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
            raise InputError(f"protocolsettings.headers: the broker itself sets {shown(name)}")
        value = before.get(lower, text) if text == HIDDEN else text
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise InputError(f"protocolsettings.headers: the value of {shown(name)} must be printable ASCII text")
        headers[lower] = value
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > SINK_HEADERS_BYTES_MAX:
        raise LimitError("SINK_HEADERS_BYTES_MAX", SINK_HEADERS_BYTES_MAX, f"{size:,} bytes")
    return headers


def _credential(given: object, before: Mapping[str, str]) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or given.get("credentialType") not in _CREDENTIALS:
        raise InputError(
            f"sinkCredential.credentialType must be one of {', '.join(_CREDENTIALS)}, found {shown(given)}"
        )
    needed = _CREDENTIALS[given["credentialType"]]
    credential = {"credentialType": given["credentialType"]}
    for name in needed:
        value = before.get(name) if given.get(name) == HIDDEN else given.get(name)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise InputError(f"sinkCredential needs {name} as text")
        if len(value) > CREDENTIAL_CHARACTERS_MAX:
            raise LimitError("CREDENTIAL_CHARACTERS_MAX", CREDENTIAL_CHARACTERS_MAX, f"{name} of {len(value):,}")
        credential[name] = value
    if unknown := set(given) - set(needed) - {"credentialType"}:
        raise InputError(f"sinkCredential of type {credential['credentialType']} has no {shown(min(unknown))}")
    _check_meaning(credential)
    return credential


def _check_meaning(credential: Mapping[str, str]) -> None:
    if credential["credentialType"] == "PLAIN":
        if ":" in credential["identifier"]:
            raise InputError("sinkCredential.identifier must have no colon")
        return
    if credential["accessTokenType"].lower() != "bearer":
        raise InputError(f"sinkCredential.accessTokenType must be bearer, found {shown(credential['accessTokenType'])}")
    if not _VALUE.fullmatch(credential["accessToken"]) or " " in credential["accessToken"]:
        raise InputError("sinkCredential.accessToken must be printable ASCII without spaces")
    try:
        parse_time(credential["accessTokenExpiresUtc"])
    except CatchmentError as problem:
        raise InputError(f"sinkCredential.accessTokenExpiresUtc: {problem}") from None
