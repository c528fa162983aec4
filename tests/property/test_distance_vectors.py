"""Distance vectors on any network, with links that come and go and messages in any order: in the end routes are the
shortest, and children are those who say so."""

from collections import deque
from collections.abc import Iterator
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from catchment.routing.messages import Neighbor, Send
from catchment.routing.parts.distance_vectors import Distances, DistanceVectors

BROKERS = "abcdef"
PAIRS = list(combinations(BROKERS, 2))
# Each step turns a link on or off, or lets the oldest message of one direction arrive.
steps = st.lists(st.tuples(st.sampled_from(("turn", "turn", "arrive", "arrive", "arrive")), st.integers(0, 1_000)))
# More messages than any of these networks takes to settle.
MESSAGES_MAX = 20_000


class Wires:
    """Brokers, and the messages on their way: each direction of a link is a queue."""

    def __init__(self, infinity: int) -> None:
        self.vectors = {name: DistanceVectors(name, infinity) for name in BROKERS}
        self.links: set[tuple[str, str]] = set()
        self.queues: dict[tuple[str, str], deque[Distances]] = {}
        self.arrived = 0

    def turn(self, pair: tuple[str, str]) -> None:
        is_up = pair not in self.links
        (self.links.add if is_up else self.links.remove)(pair)
        for here, there in (pair, pair[::-1]):
            # What is under way belongs to the link before.
            self.queues[here, there] = deque()
        for here, there in (pair, pair[::-1]):
            if is_up:
                self.vectors[here].up(Neighbor(there))
            else:
                self.vectors[here].down(Neighbor(there))
        for here in pair:
            self.flush(here)

    def flush(self, here: str) -> None:
        for send in self.vectors[here].flush():
            assert isinstance(send, Send)
            assert isinstance(send.message, Distances)
            self.queues[here, send.interface.name].append(send.message)

    def waiting(self) -> list[tuple[str, str]]:
        return sorted(way for way, queue in self.queues.items() if queue)

    def arrive(self, way: tuple[str, str]) -> None:
        self.arrived += 1
        assert self.arrived < MESSAGES_MAX
        sender, receiver = way
        self.vectors[receiver].heard(self.queues[way].popleft(), Neighbor(sender))
        self.flush(receiver)

    def neighbors(self, here: str) -> Iterator[str]:
        yield from sorted(other for pair in self.links if here in pair for other in pair if other != here)

    def distances(self, origin: str) -> dict[str, int]:
        """By going round, link by link."""
        found, level = {origin: 0}, [origin]
        while level:
            level = sorted({other for here in level for other in self.neighbors(here)} - found.keys())
            found |= dict.fromkeys(level, max(found.values()) + 1)
        return found


@given(st.sets(st.sampled_from(PAIRS), max_size=9), steps, st.integers(3, 16))
def test_routes_become_the_shortest(links, script, infinity):
    wires = Wires(infinity)
    for pair in sorted(links):
        wires.turn(pair)
    for kind, number in script:
        if kind == "turn":
            wires.turn(PAIRS[number % len(PAIRS)])
        elif ways := wires.waiting():
            wires.arrive(ways[number % len(ways)])
    while ways := wires.waiting():
        wires.arrive(ways[wires.arrived % len(ways)])
    for origin in BROKERS:
        near = {name: distance for name, distance in wires.distances(origin).items() if distance < infinity}
        for name, vectors in wires.vectors.items():
            assert vectors.distance(origin) == near.get(name)
            closer = [other for other in wires.neighbors(name) if near.get(other, infinity) == near.get(name, 0) - 1]
            parent = min(closer) if name in near and name != origin else None
            assert vectors.parent(origin) == (None if parent is None else Neighbor(parent))
            for child in vectors.children(origin):
                assert wires.vectors[child.name].parent(origin) == Neighbor(name)
            if parent is not None:
                assert Neighbor(name) in wires.vectors[parent].children(origin)
