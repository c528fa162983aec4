"""Plays scripts with durable clients, and says what must hold when the network has settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.durable.messages import CancelDurable, SubscribeDurable
from catchment.routing.messages import SECOND, Deliver, Time
from catchment.sim.conformance.checkers import ViolationError, reachable
from catchment.sim.conformance.durable.checker import DurableChecker
from catchment.sim.conformance.durable.network import CheckedSimulation, Flaws
from catchment.sim.conformance.durable.scripts import (
    PUBLISHERS,
    READERS,
    WATCHER,
    CancelsDurably,
    DiskFails,
    DiskMends,
    Doing,
    ForgetsAll,
    GetsStore,
    Notices,
    PublishesStored,
    Script,
    StopsTaking,
    SubscribesDurably,
    TakesAgain,
    Vanishes,
    Waits,
)
from catchment.sim.conformance.scripts import Connect, Crashes, Cuts, Disconnect, Heals, Publishes, Restarts, Settles

# What publishers advertise: all that scripts publish.
ADVERTISED: Final = Advertisement("place any, kind any, level any")
WATCHED: Final = Filter("place any")
# Longer than the longest retry of the suite, twice.
WAIT_US: Final = 2 * SECOND
SLOWNESS: Final = 40
CLOCK_BACK_US: Final = -3_600 * SECOND


class Player:
    """Plays a script; ViolationError for what must not be."""

    def __init__(self, network: CheckedSimulation, checker: DurableChecker) -> None:
        self.network, self.checker = network, checker
        self._vanished: list[tuple[str, str]] = []
        # By broker: what is wrong with its disk, or how long its store has been away.
        self._bad_disks: set[str] = set()
        # Who had a position in a log that was lost; and by log, which storage lost it, and when.
        self._owed_lost_logs: set[tuple[str, str]] = set()
        self._lost_by: dict[str, tuple[str, Time]] = {}
        self._doers: dict[type, Callable[..., None]] = {
            Connect: self._connect, Disconnect: self._disconnect, SubscribesDurably: self._subscribe,
            CancelsDurably: self._cancel, Publishes: self._publish, PublishesStored: self._publish_stored,
            Vanishes: self._vanish, Notices: self._notice, ForgetsAll: self._forget, StopsTaking: self._stop_taking,
            TakesAgain: self._take_again, Cuts: self._cut, Heals: self._heal, Crashes: self._crash,
            Restarts: self._restart, DiskFails: self._fail_disk, DiskMends: self._mend_disk, GetsStore: self._get_store,
            Waits: self._wait, Settles: self._settle,
        }  # fmt: skip

    def play(self, script: Script) -> None:
        for step in script:
            if step.after:
                self.network.advance(step.after)
            self._do(step.doing)
            self.checker.check_acknowledged()
            self._collect()

    def _do(self, doing: Doing) -> None:
        self._doers[type(doing)](doing)

    # --- clients ---

    def _connect(self, doing: Connect) -> None:
        self._come(doing.client, doing.broker)

    def _come(self, identity: str, broker: str) -> None:
        network = self.network
        network.connect(identity, broker)
        if identity in PUBLISHERS and ADVERTISED not in network.client(identity).advertisements:
            network.advertise(identity, ADVERTISED)
        if identity == WATCHER and "w" not in network.client(identity).wants:
            network.subscribe(identity, "w", WATCHED)
        self._ask_again(identity)

    def _ask_again(self, identity: str) -> None:
        """A library asks again for what has not taken effect."""
        for id, wanted in self.checker.wants.pending(identity).items():
            request = CancelDurable(identity, id) if wanted is None else SubscribeDurable(identity, id, wanted)
            self.network.ask(identity, request)

    def _disconnect(self, doing: Disconnect) -> None:
        self.network.disconnect(doing.client)

    def _is_connected(self, identity: str) -> bool:
        return self.network.client(identity).is_connected

    def _subscribe(self, doing: SubscribesDurably) -> None:
        if self._is_connected(doing.client):
            wanted = Filter(doing.wanted)
            self.checker.wants.requested(doing.client, doing.id, wanted, self.network.now)
            self.network.subscribe_durable(doing.client, doing.id, wanted)

    def _cancel(self, doing: CancelsDurably) -> None:
        if self._is_connected(doing.client) and doing.id in self.network.durable_client(doing.client).wants:
            self.checker.wants.requested(doing.client, doing.id, None, self.network.now)
            self.network.cancel_durable(doing.client, doing.id)

    def _publish(self, doing: Publishes) -> None:
        self.network.publish(doing.client, dict(doing.attributes))

    def _publish_stored(self, doing: PublishesStored) -> None:
        self.network.publish_stored(doing.client, dict(doing.attributes))

    def _vanish(self, doing: Vanishes) -> None:
        before = self.network.vanish(doing.client)
        if before is not None:
            self._vanished.append((doing.client, before))
        self._come(doing.client, doing.broker)

    def _notice(self, doing: Notices | None = None) -> None:
        for identity, broker in self._vanished:
            self.network.notice(identity, broker)
        self._vanished.clear()

    def _forget(self, doing: ForgetsAll) -> None:
        home = self.network.client(doing.client).home
        # It does not know any more what it had.
        self._owed_lost_logs = {(each, log) for each, log in self._owed_lost_logs if each != doing.client}
        self.network.disconnect(doing.client)
        self.network.forget(doing.client)
        durable = self.network.durable_client(doing.client)
        if doing.is_clock_back:
            durable.session, durable.clock_us = 0, CLOCK_BACK_US
        if home is not None:
            self._come(doing.client, home)

    def _stop_taking(self, doing: StopsTaking) -> None:
        self.network.durable_client(doing.client).is_taking = False

    def _take_again(self, doing: TakesAgain) -> None:
        self.network.durable_client(doing.client).is_taking = True
        self.network.take_all(doing.client)

    # --- faults ---

    def _cut(self, doing: Cuts) -> None:
        self.checker.has_failed = True
        self.network.cut(doing.first, doing.second)

    def _heal(self, doing: Heals) -> None:
        self.network.heal(doing.first, doing.second)

    def _crash(self, doing: Crashes) -> None:
        self.checker.has_failed = True
        self.network.crash(doing.broker)

    def _restart(self, doing: Restarts) -> None:
        if self.network.nodes[doing.broker] is None:
            self.network.restart(doing.broker)
            for client in list(self.network.clients.values()):
                if client.home == doing.broker:
                    self._ask_again(client.identity)

    def _fail_disk(self, doing: DiskFails) -> None:
        network, broker = self.network, doing.broker
        self.checker.has_failed = True
        store = network.stores[broker]
        match doing.what:
            case "power loss":
                network.crash(broker, is_power_loss=True)
            case "lost":
                self._lose_disk(broker)
            case "full":
                store.disk.fill()
                self._bad_disks.add(broker)
            case "fail":
                store.disk.fail()
                self._bad_disks.add(broker)
            case "slow":
                store.slowness = SLOWNESS
                self._bad_disks.add(broker)

    def _lose_disk(self, broker: str) -> None:
        if self.network.nodes[broker] is not None:
            return
        log = self.network.ledger(broker).log
        self._lost_by[log] = (broker, self.network.now)
        for identity, client in self.network.durable.items():
            if log in client.positions:
                self._owed_lost_logs.add((identity, log))
        self.network.lose_disk(broker)

    def _mend_disk(self, doing: DiskMends) -> None:
        store = self.network.stores[doing.broker]
        is_failing = store.disk.is_failing
        store.disk.free()
        store.disk.repair()
        store.slowness = 1
        self._bad_disks.discard(doing.broker)
        if is_failing and self.network.nodes[doing.broker] is not None:
            # It does not come back before the broker is started again.
            self.network.crash(doing.broker)
            self._restart(Restarts(doing.broker))

    def _get_store(self, doing: GetsStore) -> None:
        self.checker.has_failed = True
        self.network.crash(doing.broker)
        if doing.broker not in self.network.stores:
            self.network.add_store(doing.broker)
        self._restart(Restarts(doing.broker))

    # --- when it is quiet ---

    def _wait(self, doing: Waits) -> None:
        """What is left of the network does what it can."""
        self.network.advance(WAIT_US)
        for reader in READERS:
            client, durable = self.network.client(reader), self.network.durable_client(reader)
            if client.is_connected and durable.is_taking and client.home is not None:
                near = reachable(self.network, client.home)
                for storage in sorted(near & set(self.network.stores) - self._bad_disks):
                    self.checker.check_all_taken(reader, self.network.ledger(storage).log, False)

    def _settle(self, doing: Settles) -> None:
        """Everything works, and everybody is there."""
        network = self.network
        flaws, network.flaws = network.flaws, Flaws()
        self._heal_all()
        network.settle()
        if flaws != Flaws():
            # A storage that has asked in vain several times is quiet, and asks again later.
            network.advance(WAIT_US)
        for reader in READERS:
            # What was refused, because no storage was known.
            self._ask_again(reader)
            self._excuse_cancelled(reader)
        network.settle()
        self._check_whole()
        network.blank.clear()
        self.checker.wants.settled(set(network.stores), network.now)
        for storage in sorted(network.stores):
            self._check_collected(storage)
        # Disks have written what was collected.
        network.settle()
        network.flaws = flaws

    def _heal_all(self) -> None:
        network = self.network
        self._notice()
        for link in network.topology.links:
            if network.link(link.first, link.second).is_cut:
                network.heal(link.first, link.second)
        for broker in network.topology.brokers:
            if broker in self._bad_disks:
                self._mend_disk(DiskMends(broker))
            self._restart(Restarts(broker))
        for identity in (*READERS, *PUBLISHERS, WATCHER):
            if identity in network.clients and not network.client(identity).is_connected:
                self._come(identity, network.topology.brokers[0])
        for reader in READERS:
            self._take_again(TakesAgain(reader))

    def _excuse_cancelled(self, reader: str) -> None:
        """What was cancelled and never made is unknown everywhere: nothing has to take effect."""
        logs = [self.network.ledger(storage) for storage in self.network.stores]
        for id, wanted in self.checker.wants.pending(reader).items():
            if wanted is None and all((reader, id) not in ledger.durables for ledger in logs):
                self.checker.wants.took_effect(reader, id, set(self.network.stores), self.network.now)

    def _check_whole(self) -> None:
        network, checker = self.network, self.checker
        for reader in READERS:
            for storage in sorted(network.stores):
                checker.check_all_taken(reader, network.ledger(storage).log, True)
            if pending := checker.wants.pending(reader):
                raise ViolationError(f"all is quiet, and changes of {reader} have not taken effect: {pending}")
        for publisher in PUBLISHERS:
            if unkept := network.durable_client(publisher).unkept:
                raise ViolationError(f"all is quiet, and {publisher} waits for what is kept of {unkept}")
        for identity, log in sorted(self._owed_lost_logs):
            storage, lost_at = self._lost_by[log]
            home = network.client(identity).home or ""
            # A broker that was started since has never heard of the log, unless it was its own.
            is_excused = home != storage and network.started_at.get(home, -1) >= lost_at
            if all(told.log != log for told in network.durable_client(identity).lost_logs) and not is_excused:
                raise ViolationError(f"{identity} had a position in {log}, which is lost, and was not told")
        for broker, core in network.cores.items():
            if core is not None and (alarms := getattr(core, "alarms", None)):
                raise ViolationError(f"{broker} is alarmed: {alarms}")

    def _collect(self) -> None:
        """Stores delete what was taken, as brokers have them do now and then."""
        for broker, store in self.network.stores.items():
            if store.store is not None and not store.store.is_closed and broker not in self._bad_disks:
                store.store.collect(self.network.now)

    def _check_collected(self, storage: str) -> None:
        store = self.network.stores[storage].store
        assert store is not None, "everybody is up"
        store.collect(self.network.now)
        ledger, status = self.network.ledger(storage), store.status()
        if status.records:
            raise ViolationError(f"everything is taken, and {ledger.log} keeps {status.records} records: {status}")


def check_transient(network: CheckedSimulation) -> None:
    """A transient subscriber gets nothing twice, whatever publishers publish again."""
    seen: set[tuple[str | None, int | None]] = set()
    for delivery in network.client(WATCHER).received:
        assert isinstance(delivery, Deliver)
        key = (delivery.notification.source, delivery.notification.seq)
        if key in seen:
            raise ViolationError(f"{WATCHER} got {delivery.notification!r} twice")
        seen.add(key)
