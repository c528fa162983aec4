"""Where webhooks may go."""

import pytest

from catchment.broker.targets import ForbiddenTargetError, TargetRules, target_of
from catchment.broker.webhook_settings import WebhookSettings
from catchment.errors import InputError

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "fe80::1%eth0", "not an address",
]  # fmt: skip
PUBLIC = ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address):
    with pytest.raises(ForbiddenTargetError):
        TargetRules().checked("sink.example", [address])


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_fine(address):
    assert TargetRules().checked("sink.example", [*PRIVATE, address]) == [address]


@pytest.mark.parametrize("allow", ["127.0.0.0/8", "127.0.0.1", "sink.example", "SINK.example."])
def test_what_the_operator_lists_is_fine(allow):
    assert TargetRules((allow,)).checked("sink.example", ["127.0.0.1"]) == ["127.0.0.1"]


def test_a_listed_network_holds_for_addresses_in_disguise():
    rules = TargetRules(("10.0.0.0/8",))
    assert rules.checked("sink.example", ["::ffff:10.0.0.1", "::ffff:127.0.0.1"]) == ["::ffff:10.0.0.1"]


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://sink.example/hook", True),
        ("http://sink.example/hook", False),
        ("https://127.0.0.1/hook", False),
        ("https://[::1]:8443/hook", False),
        ("https://1.1.1.1/", True),
        ("http://1.1.1.1/", False),
        ("http://inside.example:8080/a?b=c", True),
        ("http://10.0.0.7/", True),
    ],
)
def test_what_is_known_at_once(url, is_fine):
    rules = TargetRules(("inside.example", "10.0.0.0/8"))
    if is_fine:
        rules.check_target(target_of(url))
    else:
        with pytest.raises(ForbiddenTargetError):
            rules.check_target(target_of(url))


@pytest.mark.parametrize(
    "url",
    [
        None, 7, "", "sink.example", "ftp://sink.example/", "https://", "https:///path", "https://a b/", "https://é.example/",
        "https://user:pass@sink.example/", "https://sink.example/#part", "https://sink.example:99999/", "https://[::1/",
        "https://sink.example/\r\nX: y", "https://" + "a" * 3_000 + ".example/", "file:///etc/passwd", "https://a_b!.example/",
    ],
)  # fmt: skip
def test_what_is_no_url(url):
    with pytest.raises(InputError):
        target_of(url)


def test_the_parts_of_a_url():
    target = target_of("https://Sink.example:8443/hook?a=b")
    assert (target.host, target.port, target.path, target.authority) == (
        "sink.example", 8443, "/hook?a=b", "sink.example:8443"
    )  # fmt: skip
    assert target_of("https://[2606:4700::1111]").authority == "[2606:4700::1111]"


@pytest.mark.parametrize(
    "settings",
    [
        {"allow": ("10.0.0.1/8",)},
        {"allow": ("a b",)},
        {"trusted": ("https://x",)},
        {"origin": "a b"},
        {"callback": "sink.example"},
    ],
)
def test_bad_settings(settings):
    with pytest.raises(InputError):
        WebhookSettings(**settings)
