"""A small world of durable delivery, in which every step can be taken in every order.

Two storages, A and B, have a link. A publisher publishes three notifications to be stored. A reader has a durable
subscription, and may go to either storage. The cores are the real ones (`DurableCore`); the core inside routes nothing,
so all that moves is durable delivery. Another identity has a durable subscription and never comes: in a *silent* world
it alone is due the second notification, so that there is silence in what the reader is due.

link      Messages arrive in order, each once, as the seam promises. Messages of durable delivery that go to one broker
          (`Directed`) may also be lost, doubled, or arrive late: over several links any of that happens to them.
disk      Writes are synced in a step of their own (`Stored`): all that wait, or now and then only the first of them.
          At a crash, any end of the unsynced writes is lost: nothing if the process was killed, some or all of it if
          the power failed.
reader    It takes deliveries in steps of their own. It may leave and come, or appear elsewhere while its old process
          lives on and goes on taking (a session twice). What it has not taken when its connection ends, it never had.
publisher As the client's library does: keeps what is not confirmed, publishes it again when it connects or is refused,
          and says which storage its unsettled publications are at.
timers    Fire when nothing else is under way; a few may fire at any time.
clock     Moves only when a broker is started. Nothing here compares times: all intervals are zero.

Paths are settled at once: a record of links (`Reach`) that is first in line, or a row of the table that changes
nothing, arrives before anything else happens.
"""

from __future__ import annotations

from typing import Final, get_args

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.messages import (
    Confirm,
    Directed,
    Durable,
    Place,
    Reach,
    SubscribeDurable,
    TakeEffect,
    Taken,
    session_after,
)
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.messages import (
    HOST,
    Action,
    BrokerMessage,
    Client,
    ClientDown,
    ClientUp,
    Deliver,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Send,
    SetTimer,
    TimerFired,
)
from catchment.routing.stored import Fetch, Persist, PlaceRow, Stored
from catchment.sim.explore.checks import (
    check_confirm_matches,
    check_confirmed,
    check_delivered,
    check_order,
    check_sent,
    check_written,
)
from catchment.sim.explore.copying import copied
from catchment.sim.explore.disk import Disk, ExplorationError
from catchment.sim.explore.parts import (
    BROKERS,
    FOLDING,
    OTHER,
    PUBLICATIONS,
    PUBLISHER,
    READER,
    Bounds,
    Broker,
    NoRouting,
    Process,
    Publisher,
)

# The clock moves so far with each start of a broker: further than sessions and versions grow.
START_US: Final = 1_000_000
# One entry under way to each reader shows more than many: a window that is not opened again stops everything.
SETTINGS: Final = DurableSettings(window_entries=1, retry_us=0, retry_us_max=0, acknowledge_us=0)
# Timers that only forget what nobody has heard of for minutes.
UNTIMELY: Final = "link states"
DIRECTED: Final = get_args(Directed)


class World:
    """A state. Whoever wants to keep it changes a copy."""

    def __init__(self, bounds: Bounds, is_silent: bool) -> None:
        self.now = START_US
        self.brokers = {name: Broker(None, Disk(f"log-{name}")) for name in BROKERS}
        # By sender.
        self.channels: dict[str, tuple[BrokerMessage, ...]] = dict.fromkeys(BROKERS, ())
        self.is_linked = self.is_cut = self.is_set_up = False
        self.reader = Process()
        # An older process of the reader that still runs.
        self.stale: Process | None = None
        self.publisher = Publisher()
        self.bounds = self.most = bounds
        # Numbers of publications that a process of the reader has taken, and that it is due.
        self.taken: frozenset[int] = frozenset()
        self.due = frozenset(number for number in range(1, PUBLICATIONS + 1) if not is_silent or number != 2)

    def copied(self) -> World:
        """A copy that shares brokers: who changes one calls `touched` first."""
        world = object.__new__(World)
        world.__dict__.update(self.__dict__)
        world.brokers, world.channels = dict(self.brokers), dict(self.channels)
        world.reader, world.stale, world.publisher = copied(self.reader), copied(self.stale), copied(self.publisher)
        return world

    def touched(self, broker: str) -> Broker:
        """A broker, to be changed."""
        if self.brokers[broker].digest is not None:
            self.brokers[broker] = copied(self.brokers[broker])
            self.brokers[broker].digest = None
        return self.brokers[broker]

    def digest(self) -> int:
        """Two worlds with the same digest behave alike. `bounds` are not part of it."""
        brokers = [self.brokers[name].digested() for name in BROKERS]
        clients = [FOLDING.digest(each) for each in (self.reader, self.stale, self.publisher)]
        channels = [FOLDING.digest(self.channels[name]) for name in BROKERS]
        return hash((*brokers, *channels, *clients, self.is_linked, self.is_cut, self.taken, self.has_failed))

    @property
    def has_failed(self) -> bool:
        return self.bounds != self.most

    # --- brokers ---

    def core(self, broker: str) -> DurableCore:
        core = self.brokers[broker].core
        assert core is not None, "it is up"
        return core

    def is_up(self, broker: str) -> bool:
        return self.brokers[broker].core is not None

    def tell(self, broker: str, message: object, source: Interface) -> None:
        """Gives a message to a core, and performs what it wants."""
        core = self.touched(broker).core
        assert core is not None, "it is up"
        self.perform(broker, core.on_message(message, source, self.now))  # type: ignore[arg-type]

    def start(self, broker: str) -> None:
        self.now += START_US
        storage = self.touched(broker)
        storage.core = DurableCore(broker, NoRouting(), storage.disk.opened(), SETTINGS)
        self.refresh_link()

    def crash(self, broker: str, kept: int) -> None:
        storage = self.touched(broker)
        storage.core = None
        storage.disk.crash(kept)
        storage.fetches.clear()
        storage.timers.clear()
        for process in (self.reader, self.stale):
            if process is not None and process.broker == broker:
                process.broker = None
                process.inbox.clear()
        if self.stale is not None and self.stale.broker is None:
            self.stale = None
        if self.publisher.broker == broker:
            self.publisher.broker = None
        self.refresh_link()

    def refresh_link(self) -> None:
        """Tells both ends if the link has become usable, or is usable no longer."""
        is_linked = all(map(self.is_up, BROKERS)) and not self.is_cut
        if is_linked == self.is_linked:
            return
        self.is_linked = is_linked
        self.channels = dict.fromkeys(BROKERS, ())
        for broker, other in (BROKERS, BROKERS[::-1]):
            if self.is_up(broker):
                self.tell(broker, LinkUp() if is_linked else LinkDown(), Neighbor(other))
        self.settle_paths()

    def settle_paths(self) -> None:
        """What only says what is known about links and subscriptions arrives at once, if it is first in line."""
        while any(self._says_nothing_new(sender) for sender in BROKERS):
            for sender in BROKERS:
                if self._says_nothing_new(sender):
                    self.deliver(sender, is_settling=True)

    def _says_nothing_new(self, sender: str) -> bool:
        if not self.channels[sender]:
            return False
        first, table = self.channels[sender][0], self.core(other_of(sender)).table
        match first:
            case Reach():
                return True
            case Durable():
                row = table.row(first.identity, first.id)
                is_known = row is not None and row.version >= first.version
                if self.is_set_up and not is_known:
                    # Copies of a core share its matcher, which is right as long as the table does not change.
                    raise ExplorationError(f"{other_of(sender)} has stored {first!r}, and does not know it")
                return is_known
            case Place():
                return table.place(first.identity) == PlaceRow(first.identity, first.session, first.broker)
            case _:
                return False

    def deliver(self, sender: str, *, keeps: bool = False, is_settling: bool = False) -> None:
        message, *rest = self.channels[sender]
        if not keeps:
            self.channels[sender] = tuple(rest)
        self.tell(other_of(sender), message, Neighbor(sender))
        if not is_settling:
            self.settle_paths()

    # --- actions ---

    def perform(self, broker: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    check_sent(self, broker, action.message)
                    if self.is_linked:
                        self.channels[broker] += (action.message,)
                case Deliver():
                    self._delivered(broker, action)
                case Persist():
                    check_written(self, broker, action)
                    self.brokers[broker].disk.write(action)
                case Fetch():
                    self.brokers[broker].fetches.append(action)
                case SetTimer():
                    if not action.name.endswith(UNTIMELY):
                        self.brokers[broker].timers.add(action.name)
                case Confirm():
                    self._confirmed(action)
                case Refuse() if action.source == PUBLISHER:
                    self.publisher.must_resend = True
                case TakeEffect():
                    pass
                case _:
                    raise ExplorationError(f"{broker} wants {action!r}")
        if alarms := self.core(broker).alarms:
            raise ExplorationError(f"{broker} is alarmed: {alarms}")

    def _delivered(self, broker: str, delivery: Deliver) -> None:
        for process in (self.reader, self.stale):
            if process is not None and process.broker == broker and delivery.client == READER:
                check_delivered(self, broker, process, delivery)
                process.given[delivery.log] = delivery.epoch
                process.inbox.append(delivery)
                return

    # --- the reader ---

    def connect_reader(self, broker: str) -> None:
        reader = self.reader
        reader.broker = broker
        reader.session = session_after(reader.session, self.now)
        reader.given = dict(reader.positions)
        self.tell(broker, ClientUp(READER.name, {}, reader.session, dict(reader.positions)), READER)

    def disconnect_reader(self, process: Process) -> None:
        assert process.broker is not None, "it is connected"
        process.inbox.clear()
        broker, process.broker = process.broker, None
        self.tell(broker, ClientDown(), READER)

    def take(self, process: Process) -> None:
        delivery = process.inbox.pop(0)
        number = delivery.notification.seq
        assert number is not None, "all publications are numbered"
        check_order(process, number)
        process.last = number
        process.positions[delivery.log] = delivery.epoch
        self.taken |= {number}
        assert process.broker is not None, "a process that is away has an empty inbox"
        self.tell(process.broker, Taken(READER.name, delivery.log, delivery.epoch), READER)

    # --- the publisher ---

    def publish(self) -> None:
        publisher = self.publisher
        publisher.published += 1
        number = publisher.published
        notification = Notification({"x": number}, source=PUBLISHER.name, seq=number)
        after = publisher.unkept[-1].seq if publisher.unkept else publisher.kept
        publisher.unkept.append(notification)
        publisher.is_settled = False
        self._publish([notification], after)

    def _publish(self, notifications: list[Notification], after: int | None) -> None:
        assert self.publisher.broker is not None, "it is connected"
        core = self.touched(self.publisher.broker).core
        assert core is not None, "it is up"
        self.perform(self.publisher.broker, core.on_publication(notifications, after, PUBLISHER, self.now))

    def resend(self) -> None:
        publisher = self.publisher
        publisher.must_resend = False
        if publisher.unkept:
            self._publish(list(publisher.unkept), publisher.kept)

    def connect_publisher(self, broker: str) -> None:
        publisher = self.publisher
        if publisher.broker is not None:
            self.tell(publisher.broker, ClientDown(), PUBLISHER)
        publisher.broker = publisher.at = broker
        storage = "" if publisher.is_settled else publisher.home
        self.tell(broker, ClientUp(PUBLISHER.name, storage=storage), PUBLISHER)
        home = self.core(broker).home(PUBLISHER)
        if home != publisher.home:
            publisher.home, publisher.kept = home, None
        self.resend()

    def _confirmed(self, confirm: Confirm) -> None:
        check_confirmed(self, confirm.seq, confirm.settled)
        check_confirm_matches(confirm, self.publisher.published)
        publisher = self.publisher
        if confirm.storage != publisher.home:
            publisher.home, publisher.kept = confirm.storage, None
        publisher.unkept = [each for each in publisher.unkept if (each.seq or 0) > confirm.seq]
        publisher.kept = max(publisher.kept or 0, confirm.seq) or None
        publisher.confirmed = max(publisher.confirmed, confirm.seq)
        publisher.is_settled = confirm.settled and not publisher.unkept

    # --- disks and timers ---

    def sync(self, broker: str, count: int = 1) -> None:
        """The next writes are safe."""
        disk = self.touched(broker).disk
        for _ in range(count):
            serial = disk.sync()
        self.tell(broker, Stored(serial), HOST)

    def answer(self, broker: str) -> None:
        """The disk answers the oldest question."""
        storage = self.touched(broker)
        fetch = storage.fetches.pop(0)
        self.tell(broker, storage.disk.fetched(fetch), HOST)

    def fire(self, broker: str, timer: str) -> None:
        self.touched(broker).timers.discard(timer)
        self.tell(broker, TimerFired(timer), HOST)


def other_of(broker: str) -> str:
    return BROKERS[1 - BROKERS.index(broker)]


def beginning(bounds: Bounds, is_silent: bool) -> World:
    """The world when everything is set up: both storages know both subscriptions, the publisher is at A, the
    reader at B."""
    world = World(bounds, is_silent)
    for broker in BROKERS:
        world.start(broker)
    _settle(world)
    filters = {READER: "x != 2" if is_silent else "x > 0", OTHER: "x = 2" if is_silent else "x < 0"}
    for client, text in filters.items():
        _subscribe(world, client, text)
    _settle(world)
    world.connect_reader("B")
    world.connect_publisher("A")
    _settle(world)
    world.is_set_up = True
    return world


def _subscribe(world: World, client: Client, text: str) -> None:
    # Under a name that is not the one the reader comes by later: nothing is to be delivered yet.
    world.tell("A", ClientUp(client.name), client)
    world.tell("A", SubscribeDurable(client.name, "s", Filter(text)), client)
    _settle(world)
    world.tell("A", ClientDown(), client)


def _settle(world: World) -> None:
    while any(world.channels.values()) or any(each.disk.written for each in world.brokers.values()):
        for broker in BROKERS:
            if world.channels[broker]:
                world.deliver(broker)
            elif world.brokers[broker].disk.written:
                world.sync(broker)
