"""What waits for all connections together is bounded, and so are the logs of all subscriptions over HTTP."""

from catchment.broker.http.delivery_log import LOG_BYTES_TIGHT, PORTION_BYTES_MAX, DeliveryLog, LogsRoom
from catchment.broker.outboxes import Outboxes
from tests.unit.broker_loop import Listener, Loop


class Slow:
    def __init__(self, outboxes: Outboxes) -> None:
        self.outboxes = outboxes
        self.outbox_bytes = 0
        self.is_closed = False

    def waits(self, count: int) -> None:
        self.outbox_bytes = count
        self.outboxes.has(self, count)

    def overflow(self, reason: str) -> None:
        assert reason.startswith("OUTBOXES_BYTES_MAX is 1,000")
        self.is_closed = True


def test_the_connections_for_which_most_waits_are_closed_until_a_quarter_is_free():
    outboxes = Outboxes(bytes_max=1_000)
    slow = [Slow(outboxes) for _ in range(10)]
    for n, each in enumerate(slow):
        each.waits(20 * n)
    assert not any(each.is_closed for each in slow)
    assert outboxes.is_tight
    slow[0].waits(150)
    assert [n for n, each in enumerate(slow) if each.is_closed] == [8, 9]
    assert (outboxes.bytes, outboxes.closed_count) == (710, 2)


def test_what_was_taken_meanwhile_does_not_count():
    outboxes = Outboxes(bytes_max=1_000)
    slow = [Slow(outboxes) for _ in range(3)]
    for each in slow:
        each.waits(300)
    slow[0].outbox_bytes = slow[1].outbox_bytes = 0
    slow[2].waits(700)
    assert not any(each.is_closed for each in slow)
    assert outboxes.bytes == 700
    outboxes.gone(slow[2])
    outboxes.gone(slow[2])
    assert (outboxes.bytes, outboxes.is_tight) == (0, False)


def test_a_client_is_behind_sooner_while_all_outboxes_are_tight():
    loop = Loop()
    listener = Listener(loop)
    listener.outboxes = Outboxes(bytes_max=10_000_000)
    (slow, transport), (other, _) = listener.client("slow"), listener.client("other")
    left = [0]
    transport.get_write_buffer_size = lambda: left[0]  # type: ignore[method-assign]
    left[0] = 2_000_000
    slow.put(b"x")
    loop.run()
    assert not slow.is_behind()
    listener.outboxes.has(Slow(listener.outboxes), 4_000_000)
    assert slow.is_behind()
    assert not other.is_behind()


def test_much_that_is_put_in_one_turn_is_written_at_once():
    loop = Loop()
    connection, transport = Listener(loop).client("reader")
    for _ in range(3):
        connection.put(bytes(200_000))
    # Two of them, though the turn of the loop is not over.
    assert len(transport.written) == 400_000
    loop.run()
    assert len(transport.written) == 600_000


def test_logs_share_their_room():
    room = LogsRoom(bytes_max=10 * LOG_BYTES_TIGHT)
    logs = [DeliveryLog(f"log {n}", room=room) for n in range(20)]
    for _ in range(64):
        for log in logs:
            log.append(("1",), bytes(10_000))
    assert room.bytes == sum(log._bytes for log in logs)
    assert room.bytes <= room.bytes_max + 20 * LOG_BYTES_TIGHT
    assert all(log.last_number == 64 == log.lost + len(log._entries) for log in logs)
    for log in logs:
        log.end("over")
        log.end("over")
    assert room.bytes == 0


def test_a_portion_is_bounded_in_bytes():
    log = DeliveryLog("log")
    for _ in range(20):
        log.append(("1",), bytes(PORTION_BYTES_MAX // 4))
    sizes = [len(log.portion_after(number).entries) for number in (15, 16, 17, 18)]
    assert sizes == [4, 4, 3, 2]
    log.append(("1",), bytes(3 * PORTION_BYTES_MAX))
    assert len(log.portion_after(20).entries) == 1
