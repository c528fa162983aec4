"""uv is told what pip is configured with."""

from pathlib import Path

from tools.run_uv import arguments, environment, options

LISTING = """\
:env:.find-links='/nowhere/wheels'
:env:.timeout='7.6'
download.index-url='https://other.example/simple'
global.cert='/etc/certificates.pem'
global.extra-index-url='\\nfile:///one/simple\\nhttps://two.example/simple?a=b'
global.index-url='https://global.example/simple'
global.no-index='no'
global.proxy='user:word@proxy.example:3128'
global.timeout='60'
install.index-url='https://install.example/simple'
install.trusted-host='a.example b.example'
"""


def test_options_of_install_and_of_the_environment_go_before_global_ones() -> None:
    listed = options(LISTING)
    assert listed["index-url"] == "https://install.example/simple"
    assert listed["timeout"] == "7.6"
    assert listed["cert"] == "/etc/certificates.pem"
    assert options("") == {}


def test_each_option_becomes_the_variable_that_means_the_same() -> None:
    assert environment(options(LISTING), {"HOME": "/somewhere"}) == {
        "HOME": "/somewhere",
        "UV_DEFAULT_INDEX": "https://install.example/simple",
        "UV_INDEX": "file:///one/simple https://two.example/simple?a=b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "a.example b.example",
        "SSL_CERT_FILE": "/etc/certificates.pem",
        "ALL_PROXY": "http://user:word@proxy.example:3128",
        "UV_HTTP_TIMEOUT": "8",
    }


def test_a_directory_of_packages_is_named_if_it_is_there(tmp_path: Path) -> None:
    configured = {"find-links": f"{tmp_path} {tmp_path}/missing https://links.example/"}
    assert environment(configured, {}) == {"UV_FIND_LINKS": f"{tmp_path},https://links.example/"}


def test_without_configuration_nothing_is_set() -> None:
    assert environment({}, {"A": "1"}) == {"A": "1"}


def test_what_uv_is_told_already_stays() -> None:
    own = {"UV_INDEX_URL": "https://own.example/simple", "UV_HTTP_TIMEOUT": "5"}
    told = environment(options(LISTING), own)
    assert told["UV_HTTP_TIMEOUT"] == "5"
    assert "UV_DEFAULT_INDEX" not in told
    assert "UV_INDEX" not in told
    assert told["SSL_CERT_FILE"] == "/etc/certificates.pem"


def test_no_index_is_an_option_of_uv() -> None:
    assert arguments({"no-index": "True"}, ["pip", "install", "x"]) == ["pip", "install", "x", "--no-index"]
    assert arguments({"no-index": "0"}, ["pip", "install", "x"]) == ["pip", "install", "x"]
    assert arguments({}, ["pip"]) == ["pip"]
