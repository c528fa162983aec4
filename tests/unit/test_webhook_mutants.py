"""Mistakes planted in webhooks and in durable subscriptions over HTTP: each must be found by a test."""

import asyncio
import inspect
from tempfile import TemporaryDirectory

import httpx
import pytest

from catchment.broker.http.durable_streams import DurableReader, Places
from catchment.broker.http.interest import Interest
from catchment.broker.http.webhooks import answers
from catchment.broker.http.webhooks.answers import Accepted, SinkAnswer
from catchment.broker.http.webhooks.pacing import Pace
from catchment.broker.http.webhooks.permission import Permission
from catchment.broker.http.webhooks.sinks import Sinks
from catchment.broker.http.webhooks.webhook import Webhook
from catchment.broker.targets import TargetRules
from catchment.store.http_sql import SqliteFile
from catchment.store.http_tables import MemoryHttpTables
from tests.integration import test_webhook_sinks
from tests.store import test_http_tables
from tests.unit import test_http_durable_reader, test_webhook, test_webhook_targets


def acknowledges_before_the_answer(patch):
    attempt = Webhook._attempt

    async def attempted(webhook, courier):
        entry = webhook._entries[0]
        webhook._taken(entry.log, entry.epoch)
        return await attempt(webhook, courier)

    patch.setattr(Webhook, "_attempt", attempted)
    return test_webhook.test_entries_are_sent_in_order_and_acknowledged_after_the_answer


def ignores_the_allowed_rate(patch):
    patch.setattr(Pace, "wait_s", lambda pace, now: 0.0)
    return test_webhook.test_the_allowed_rate_is_kept_for_everything_that_is_sent


def counts_only_accepted_requests_against_the_rate(patch):
    send = Webhook._send

    async def sent(webhook, message):
        outcome = await send(webhook, message)
        if not isinstance(outcome, Accepted):
            webhook._pace._next_at = 0.0
        return outcome

    patch.setattr(Webhook, "_send", sent)
    return test_webhook.test_the_first_attempts_of_failing_entries_keep_the_rate_too


def takes_a_redirect_for_an_answer(patch):
    outcome_of = answers.outcome_of

    def outcome(answer, wall):
        return Accepted() if 300 <= answer.status < 400 else outcome_of(answer, wall)

    patch.setattr("catchment.broker.http.webhooks.webhook.outcome_of", outcome)
    return lambda: test_webhook.test_a_failed_attempt_is_made_again_and_nothing_overtakes_it(302)


def forgets_dead_letters(patch):
    patch.setattr(MemoryHttpTables, "bury", lambda tables, letter: 1)
    return lambda: test_webhook.test_what_will_never_be_accepted_is_a_dead_letter_at_once(400)


def loses_dead_letters_at_a_restart(patch):
    run = SqliteFile.run

    def forgetting(file, statements):
        rows = run(file, statements)
        if any("http_dead" in statement and statement.startswith("INSERT") for statement, _ in statements):
            run(file, [("DELETE FROM http_dead", ())])
        return rows

    patch.setattr(SqliteFile, "run", forgetting)

    def test():
        with TemporaryDirectory() as folder:
            place = test_http_tables.Sqlite(folder)
            test_http_tables.test_dead_letters_are_numbered_listed_and_deleted(place)
            place.remove()

    return test


def follows_redirects(patch):
    async def asked(sinks, method, target, headers, body, timeout_s):
        async with httpx.AsyncClient(follow_redirects=True) as client:
            answer = await client.request(method, target.url, headers=dict(headers), content=body)
            return SinkAnswer(answer.status_code, answer.headers)

    patch.setattr(Sinks, "ask", asked)
    return test_webhook_sinks.test_a_redirect_is_not_followed


def acknowledges_what_could_not_be_buried(patch):
    bury = Webhook._bury

    async def buried(webhook, reason):
        wait_s = await bury(webhook, reason)
        if wait_s:
            webhook._finish_first()
        return wait_s

    patch.setattr(Webhook, "_bury", buried)
    return test_webhook.test_an_entry_that_cannot_be_buried_is_not_acknowledged_nor_sent_again


def sends_without_permission(patch):
    patch.setattr(Permission, "is_granted", property(lambda permission: True))
    return test_webhook.test_nothing_is_sent_before_the_sink_agrees


def takes_any_answer_for_consent(patch):
    patch.setattr(
        "catchment.broker.http.webhooks.webhook.granted", lambda headers, origin, rate, at: Permission("handshake")
    )
    return test_webhook.test_nothing_is_sent_before_the_sink_agrees


def takes_any_key(patch):
    patch.setattr("hmac.compare_digest", lambda one, other: True)
    return test_webhook.test_the_callback_needs_the_key


def lets_the_next_entry_overtake(patch):
    attempt = Webhook._attempt

    async def attempted(webhook, courier):
        verdict = await attempt(webhook, courier)
        if verdict is None and len(webhook._entries) > 1:
            webhook._entries.rotate(-1)
            webhook._courier = None
        return verdict

    patch.setattr(Webhook, "_attempt", attempted)
    return lambda: test_webhook.test_a_failed_attempt_is_made_again_and_nothing_overtakes_it(500)


def obeys_no_retry_after(patch):
    patch.setattr(answers, "retry_after_s", lambda text, wall: 0.0)
    return lambda: test_webhook.test_a_sink_that_asks_for_patience_gets_it((429, {"retry-after": "7"}), 7)


def goes_on_after_gone(patch):
    async def retired(webhook, reason):
        return None

    patch.setattr(Webhook, "_retire", retired)
    return test_webhook.test_gone_ends_the_webhook


def decides_by_the_newest_revision_only(patch):
    patch.setattr(Interest, "wants", lambda interest, ids, notification: interest.selection.matches(notification))
    return test_webhook.test_an_earlier_revision_decides_about_what_came_by_it


def connects_wherever_a_name_leads(patch):
    patch.setattr(TargetRules, "checked", lambda rules, host, addresses: list(addresses))
    return lambda: test_webhook_sinks.test_an_address_that_is_not_allowed_is_not_connected_to("localhost")


def takes_a_mapped_address_for_public(patch):
    patch.setattr("catchment.broker.targets._inner", lambda address: address)
    return lambda: test_webhook_targets.test_an_address_that_is_not_public_is_refused("2002:7f00:1::")


def acknowledges_what_was_sent(patch):
    read = DurableReader._read

    def reads(reader, entry):
        reader._taken(entry.log, entry.epoch)
        return read(reader, entry)

    patch.setattr(DurableReader, "_read", reads)
    return test_http_durable_reader.test_a_place_names_the_position_in_each_log


def believes_any_place(patch):
    patch.setattr(Places, "_mac", lambda places, text: "0" * 16)
    return test_http_durable_reader.test_a_changed_place_is_none


def never_ends_a_pass(patch):
    patch.setattr(DurableReader, "_is_full", lambda reader: False)
    return lambda: test_http_durable_reader.test_a_pass_ends_when_too_much_is_not_acknowledged(10, 192)


MISTAKES = (
    acknowledges_before_the_answer,
    ignores_the_allowed_rate,
    counts_only_accepted_requests_against_the_rate,
    takes_a_redirect_for_an_answer,
    forgets_dead_letters,
    loses_dead_letters_at_a_restart,
    follows_redirects,
    acknowledges_what_could_not_be_buried,
    sends_without_permission,
    takes_any_answer_for_consent,
    takes_any_key,
    lets_the_next_entry_overtake,
    obeys_no_retry_after,
    goes_on_after_gone,
    decides_by_the_newest_revision_only,
    connects_wherever_a_name_leads,
    takes_a_mapped_address_for_public,
    acknowledges_what_was_sent,
    believes_any_place,
    never_ends_a_pass,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_planted_mistakes_are_found(mistake, monkeypatch):
    test = mistake(monkeypatch)
    assert not inspect.iscoroutinefunction(test)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
    monkeypatch.undo()
    test()
    assert not asyncio.events._get_running_loop()
