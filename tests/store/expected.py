"""What must be in a store after a crash or with damage: nothing that was acknowledged is missing without a word."""

from catchment.routing.stored import Acknowledged, DurableRow, Fetch, LastNumber, PlaceRow, Record
from tests.store.workload import CROWD, READERS, steps


class Expected:
    """Everything that the workload writes, up to a serial."""

    def __init__(self, seed, serial=None):
        self.records: list[Record] = []
        self.positions: dict[str, int] = {}
        self.small: dict[tuple[str, ...], object] = {}
        self.serial = 0
        for batch in steps(seed):
            for persist in () if isinstance(batch, int) else batch:
                if serial is None or persist.serial <= serial:
                    self.serial = persist.serial
                    for write in persist.writes:
                        self._enter(write)

    def _enter(self, write):
        if isinstance(write, Record):
            self.records.append(write)
        elif isinstance(write, Acknowledged):
            self.positions[write.identity] = write.epoch
        elif isinstance(write, DurableRow):
            self.small["durable", write.identity, write.id] = write
        elif isinstance(write, PlaceRow):
            self.small["place", write.identity] = write
        elif isinstance(write, LastNumber):
            self.small["number", write.source] = write

    def difference(self, store, may_lose=False):
        """What is wrong with a store, or nothing. With `may_lose`, what it says is lost may be."""
        opened = store.opened()
        if (opened.serial, opened.head) != (self.serial, len(self.records)):
            return f"it ends with {opened.serial}, {opened.head}, not {self.serial}, {len(self.records)}"
        if opened.acknowledged != self.positions:
            return f"positions {opened.acknowledged}, not {self.positions}"
        rows: dict[tuple[str, ...], object] = {("durable", row.identity, row.id): row for row in opened.durables}
        for place in opened.places:
            rows["place", place.identity] = place
        for number in opened.numbers.values():
            rows["number", number.source] = number
        if rows != self.small:
            return "the small tables differ"
        for identity in (*READERS, CROWD[0], CROWD[65]):
            if (problem := self._difference_of(store, identity, may_lose)) is not None:
                return f"{identity}: {problem}"
        return None

    def _difference_of(self, store, identity, may_lose):
        position = self.positions.get(identity, 0)
        due = {each.epoch: each for each in self.records if identity in dict(each.due) and each.epoch > position}
        entries, lost = [], 0
        while position < len(self.records):
            piece = store.read(Fetch(identity, position, len(self.records)))
            if piece.upto <= position:
                return f"reading stands still at {position}"
            entries += piece.entries
            lost += piece.lost
            position = piece.upto
        for entry in entries:
            if entry.epoch not in due or entry.notification.packed != due[entry.epoch].notification.packed:
                return f"epoch {entry.epoch} is not what was written"
        if lost and not may_lose:
            return f"{lost} are lost"
        if len({entry.epoch for entry in entries}) + lost != len(due):
            return f"{len(entries)} entries and {lost} lost, not {len(due)}"
        return None
