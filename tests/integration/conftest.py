"""Fixtures: live brokers, a broker, and an HTTP client of that broker."""

import httpx
import pytest

from tests.integration.live import WAIT_S, Live, url_of


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
