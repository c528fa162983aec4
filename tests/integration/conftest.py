"""Fixtures: live brokers, a broker, and an HTTP client of that broker."""

from pathlib import Path

import httpx
import pytest

from tests.integration.live import WAIT_S, Live, url_of

JS = Path(__file__).parent / "js"


@pytest.fixture
def live():
    with Live() as network:
        yield network


@pytest.fixture
def broker(live):
    return live.broker()


@pytest.fixture
def http(broker):
    with httpx.Client(base_url=url_of(broker), timeout=WAIT_S) as client:
        yield client


@pytest.fixture(scope="session")
def javascript():
    """The folder of the programs in JavaScript, with the packages that they need."""
    from tests.integration.npm import installed

    directory, reason = installed(JS)
    if directory is None:
        pytest.skip(reason)
    return directory
