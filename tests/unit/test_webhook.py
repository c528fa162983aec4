"""One webhook: what it sends when, what it acknowledges when, and what becomes a dead letter."""

import json
from itertools import pairwise

import pytest

from catchment.broker.http.interest import Revisions
from catchment.broker.http.webhooks import webhook as webhook_module
from catchment.broker.http.webhooks.pacing import BACKOFF_S_MOST
from catchment.broker.http.webhooks.permission import REVALIDATE_S, Permission
from catchment.store.http_tables import DeadTotal, MemoryHttpTables
from catchment.store.interface import StoreFullError
from tests.unit.webhook_world import SINK, World, an_entry, run

AGREED = {"webhook-allowed-origin": "broker.example"}


def test_entries_are_sent_in_order_and_acknowledged_after_the_answer():
    async def scene():
        world = World()
        # What was acknowledged at the time of each request.
        seen = []
        world.sinks.before_answer = lambda: seen.append(list(world.taken))
        for epoch in (1, 2, 3):
            world.webhook.enqueue(an_entry(epoch))
        await world.work()
        assert world.sinks.posted == ["1", "2", "3"]
        assert seen == [[], [1], [1, 2]]
        assert world.taken == [1, 2, 3]
        assert world.webhook.status["delivered"] == 3

    run(scene())


def test_a_request_is_a_cloudevent_with_the_origin_and_the_users_headers():
    async def scene():
        world = World(given={"protocolsettings": {"headers": {"X-Team": "shop"}}})
        world.webhook.enqueue(an_entry(1, subject="naïve %"))
        await world.work()
        _, method, url, headers, body = world.sinks.asked[0]
        assert (method, url, body) == ("POST", SINK, b"hello")
        assert headers["ce-subject"] == "na%C3%AFve%20%25"
        assert headers["webhook-request-origin"] == "broker.example"
        assert (headers["x-team"], headers["content-type"]) == ("shop", "text/plain")

    run(scene())


@pytest.mark.parametrize("failure", [500, 404, 403, 302, 503, "connection refused"])
def test_a_failed_attempt_is_made_again_and_nothing_overtakes_it(failure):
    async def scene():
        world = World()
        world.sinks.answers = [failure, failure, 200]
        for epoch in (1, 2):
            world.webhook.enqueue(an_entry(epoch))
        await world.work()
        assert world.sinks.posted == ["1", "1", "1", "2"]
        times = [asked[0] for asked in world.sinks.asked]
        # Full jitter with chance ½: half of 1 s, half of 2 s.
        assert times == [0.0, 0.5, 1.5, 1.5]
        assert (world.taken, world.dead()) == ([1, 2], [])

    run(scene())


def test_pauses_grow_up_to_a_bound_and_then_the_entry_becomes_a_dead_letter():
    async def scene():
        world = World(given={"config": {"attempts": 12}})
        world.chances = 0.999
        world.sinks.answers = [500] * 12 + [200]
        world.webhook.enqueue(an_entry(1))
        world.webhook.enqueue(an_entry(2))
        await world.work()
        times = [asked[0] for asked in world.sinks.asked]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert len(times) == 13
        assert max(pauses) <= BACKOFF_S_MOST
        assert pauses[:10] == sorted(pauses[:10])
        (letter,) = world.dead()
        assert (letter.epoch, letter.attempts) == (1, 12)
        assert "500" in letter.reason
        assert json.loads(letter.body)["id"] == "1"
        assert world.taken == [1, 2]

    run(scene())


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_what_will_never_be_accepted_is_a_dead_letter_at_once(status):
    async def scene():
        world = World()
        world.sinks.answers = [status, 200]
        world.webhook.enqueue(an_entry(1))
        world.webhook.enqueue(an_entry(2))
        await world.work()
        assert world.sinks.posted == ["1", "2"]
        assert [letter.epoch for letter in world.dead()] == [1]

    run(scene())


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        ((429, {"retry-after": "7"}), 7),
        ((503, {"retry-after": "7"}), 7),
        ((429, {"retry-after": "Wed, 18 Nov 2026 12:00:09 GMT"}), 9),
        ((429, {}), 60),
        ((429, {"retry-after": "soon"}), 60),
        ((429, {"retry-after": "9" * 30}), 86_400),
    ],
)
def test_a_sink_that_asks_for_patience_gets_it(answer, wait_s):
    async def scene():
        world = World(given={"config": {"attempts": 1, "giveup_s": 90_000}})
        world.sinks.answers = [answer, 200]
        world.webhook.enqueue(an_entry(1))
        await world.work()
        assert [asked[0] for asked in world.sinks.asked] == [0.0, wait_s]
        assert (world.taken, world.dead()) == ([1], [])

    run(scene())


def test_patience_ends_with_giveup_s():
    async def scene():
        world = World(given={"config": {"giveup_s": 100}})
        world.sinks.answers = [(429, {"retry-after": "30"})]
        world.webhook.enqueue(an_entry(1))
        await world.work()
        assert len(world.sinks.asked) == 5
        assert "100 s" in world.dead()[0].reason

    run(scene())


def test_the_allowed_rate_is_kept_for_everything_that_is_sent():
    async def scene():
        world = World(permission=Permission("callback", 60, 0.0))
        for epoch in range(1, 101):
            world.webhook.enqueue(an_entry(epoch))
        await world.work()
        times = [asked[0] for asked in world.sinks.asked]
        assert len(times) == 100
        assert all(sum(start <= time < start + 60 for time in times) <= 60 for start in times)
        assert times[-1] == pytest.approx(99.0)

    run(scene())


def test_the_first_attempts_of_failing_entries_keep_the_rate_too():
    async def scene():
        world = World(given={"config": {"attempts": 2}}, permission=Permission("callback", 6, 0.0))
        world.chances = 0.0
        world.sinks.answers = [500]
        for epoch in (1, 2):
            world.webhook.enqueue(an_entry(epoch))
        await world.work()
        assert [asked[0] for asked in world.sinks.asked] == [0.0, 10.0, 20.0, 30.0]

    run(scene())


def test_gone_ends_the_webhook():
    async def scene():
        world = World()
        world.sinks.answers = [410]
        world.webhook.enqueue(an_entry(1))
        world.webhook.enqueue(an_entry(2))
        await world.work()
        assert world.sinks.posted == ["1"]
        assert world.gone == [1]
        assert world.webhook.status["state"] == "gone"
        assert [letter.epoch for letter in world.dead()] == [1]
        assert world.taken == [1]
        (kept,) = world.tables.resources()
        assert b"410" in kept.body

    run(scene())


def test_what_the_filters_do_not_want_is_acknowledged_in_turn_without_a_request():
    async def scene():
        revisions = Revisions({"filters": [{"not": {"exact": {"level": "5"}}}]})
        world = World(revisions=revisions)
        for epoch, level in ((1, 4), (2, 5), (3, 6)):
            world.webhook.enqueue(an_entry(epoch, level=level))
        await world.work()
        assert world.sinks.posted == ["1", "3"]
        assert world.taken == [1, 2, 3]

    run(scene())


def test_an_earlier_revision_decides_about_what_came_by_it():
    async def scene():
        before = Revisions({"filters": [{"exact": {"level": "5"}}]})
        world = World(revisions=before.edited({"filters": [{"exact": {"level": "6"}}]}))
        world.webhook.enqueue(an_entry(1, level=5))  # came by r1
        world.webhook.enqueue(an_entry(2, level=6))
        await world.work()
        assert world.sinks.posted == ["1"]
        assert world.taken == [1, 2]

    run(scene())


def test_what_was_lost_is_counted():
    async def scene():
        world = World()
        world.webhook.enqueue(an_entry(9, lost=7))
        await world.work()
        assert world.webhook.status["lost"] == 7

    run(scene())


# --- permission ---------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_sink_agrees():
    async def scene():
        world = World(permission=Permission(), given={"config": {"rate": 600}})
        world.webhook.enqueue(an_entry(1))
        another = {"webhook-allowed-origin": "other.example"}
        world.sinks.answers = ["refused", (200, {}), (200, another), (405, AGREED), 200]
        await world.work(until_s=1_000)
        methods = [asked[1] for asked in world.sinks.asked]
        assert methods == ["OPTIONS"] * 4 + ["POST"]
        _, _, url, headers, body = world.sinks.asked[0]
        assert (url, body) == (SINK, b"")
        assert headers["webhook-request-origin"] == "broker.example"
        assert headers["webhook-request-rate"] == "600"
        assert headers["webhook-request-callback"] == "https://b.example/subscriptions/audit/confirm?key=the-key"
        times = [asked[0] for asked in world.sinks.asked]
        assert times == sorted(times)
        assert times[1] > 0
        assert world.webhook.status["allowed_by"] == "handshake"
        assert world.taken == [1]

    run(scene())


@pytest.mark.parametrize(
    ("said", "asked", "rate"),
    [("120", None, 120), ("*", None, None), ("120", 60, 60), ("30", 60, 30), ("0", 60, 60), ("x", None, None)],
)
def test_the_allowed_rate_of_the_handshake(said, asked, rate):
    async def scene():
        world = World(permission=Permission(), given={"config": {"rate": asked}})
        world.sinks.answers = [(200, {"webhook-allowed-origin": "*", "webhook-allowed-rate": said})]
        await world.work(until_s=10)
        assert world.webhook.kept.permission.rate == rate
        (kept,) = world.tables.resources()
        assert b'"by":"handshake"' in kept.body

    run(scene())


def test_the_callback_needs_the_key():
    async def scene():
        world = World(permission=Permission())
        world.sinks.answers = [(200, {})]
        world.webhook.enqueue(an_entry(1))
        await world.work(until_s=1)
        assert world.webhook.confirm("another-key", {}) is None
        assert world.webhook.confirm("", {}) is None
        await world.work(until_s=1)
        assert world.sinks.posted == []
        world.webhook.confirm("the-key", {"webhook-allowed-rate": "60"})
        await world.work()
        assert world.sinks.posted == ["1"]
        assert world.webhook.status["allowed_rate"] == 60

    run(scene())


def test_consent_is_asked_for_again_and_may_be_withdrawn():
    async def scene():
        world = World(permission=Permission())
        world.sinks.answers = [(200, AGREED), "no answer", (200, {})]
        await world.work(until_s=1)
        world.webhook.enqueue(an_entry(1))
        world.sinks.answers = [200]
        await world.work(until_s=1)
        assert world.sinks.posted == ["1"]
        # It cannot be reached: consent stays. Then it answers without consent: nothing more is sent.
        world.sinks.answers = ["no answer", 200]
        await world.work(until_s=REVALIDATE_S + 0.5)
        assert world.webhook.status["allowed_by"] == "handshake"
        world.sinks.answers = [(200, {})]
        await world.work(until_s=REVALIDATE_S + 100)
        assert world.webhook.status["allowed_by"] is None
        world.webhook.enqueue(an_entry(2))
        await world.work(until_s=REVALIDATE_S + 200)
        assert world.sinks.posted == ["1"]

    run(scene())


def test_a_trusted_sink_is_not_asked():
    async def scene():
        world = World(permission=Permission(), trusted=frozenset({"sink.example"}))
        world.webhook.enqueue(an_entry(1))
        await world.work()
        assert [asked[1] for asked in world.sinks.asked] == ["POST"]

    run(scene())


def test_an_access_token_that_has_expired_is_not_sent():
    async def scene():
        credential = {
            "credentialType": "ACCESSTOKEN",
            "accessToken": "abc",
            "accessTokenType": "bearer",
            "accessTokenExpiresUtc": "2026-11-18T12:00:10Z",
        }
        world = World(given={"sinkCredential": credential})
        world.webhook.enqueue(an_entry(1))
        await world.work()
        assert world.sinks.asked[0][3]["authorization"] == "Bearer abc"
        world.clock = 10.0
        world.webhook.enqueue(an_entry(2))
        await world.work()
        assert (world.sinks.posted, world.taken) == (["1"], [1])
        assert "expired" in world.webhook.problem

    run(scene())


# --- dead letters -------------------------------------------------------------------------------


class FullTables(MemoryHttpTables):
    is_full = True

    def bury(self, letter):
        if self.is_full:
            raise StoreFullError("no room")
        return super().bury(letter)


def test_an_entry_that_cannot_be_buried_is_not_acknowledged_nor_sent_again():
    async def scene():
        world = World(FullTables())
        world.sinks.answers = [400]
        world.webhook.enqueue(an_entry(1))
        await world.work(until_s=60)
        assert world.taken == []
        assert "no room" in world.webhook.problem
        world.tables.is_full = False
        await world.work()
        assert (world.taken, world.sinks.posted) == ([1], ["1"])

    run(scene())


def test_a_webhook_full_of_dead_letters_stops_until_some_are_dropped(monkeypatch):
    monkeypatch.setattr(webhook_module, "DEAD_LETTERS_MAX", 2)

    async def scene():
        world = World()
        world.sinks.answers = [400]
        for epoch in (1, 2, 3, 4):
            world.webhook.enqueue(an_entry(epoch))
        await world.work()
        assert (world.taken, world.sinks.posted) == ([1, 2], ["1", "2", "3"])
        world.tables.unbury("audit", None)
        world.webhook.dead_changed(DeadTotal())
        await world.work()
        assert world.taken == [1, 2, 3, 4]

    run(scene())


def test_dead_letters_are_sent_again():
    async def scene():
        world = World()
        world.sinks.answers = [400, 400, 400, 200]
        for epoch in (1, 2, 3):
            world.webhook.enqueue(an_entry(epoch))
        await world.work()
        numbers = [letter.number for letter in world.dead()]
        for number in numbers:
            world.webhook.resend(number, None)
        world.sinks.answers = [200, 500, 200]
        await world.work()
        # The second is not accepted, so the third is not tried.
        assert world.sinks.posted[3:] == ["1", "2"]
        assert [letter.epoch for letter in world.dead()] == [2, 3]
        assert world.webhook.status["dead"] == 2

    run(scene())


def test_an_entry_buried_before_the_broker_was_killed_is_one_dead_letter():
    async def scene():
        tables = MemoryHttpTables()
        for _ in range(2):
            # The second world is the broker after its restart: the entry comes again.
            world = World(tables)
            world.sinks.answers = [400]
            world.webhook.enqueue(an_entry(1))
            await world.work()
        assert len(world.dead()) == 1

    run(scene())
