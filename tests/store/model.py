"""A store as slow and obvious as can be: it keeps what happened, and answers by going through all of it."""

from catchment.routing.stored import Acknowledged, Entry, Fetched, Forgotten, Record


class Model:
    def __init__(self, retention):
        self.retention = retention
        self.serial = 0
        # Everything that was ever written, in order.
        self.records: list[Record] = []
        self.kept: set[int] = set()
        # (identity, epoch): it is due this, and has not passed it since it was lost or collected.
        self.due: set[tuple[str, int]] = set()
        self.positions: dict[str, int] = {}
        self.known: set[str] = set()
        self.last: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.small: dict[tuple[str, ...], object] = {}
        self.anchor = 0

    @property
    def head(self):
        return len(self.records)

    def write(self, batch):
        for persist in batch:
            self.serial = persist.serial
            for write in persist.writes:
                self._enter(write)

    def _enter(self, write):
        if isinstance(write, Record):
            self.records.append(write)
            self.kept.add(write.epoch)
            for identity, _ in write.due:
                self.due.add((identity, write.epoch))
                self.known.add(identity)
                self.last[identity] = write.epoch
        elif isinstance(write, Acknowledged):
            self.positions[write.identity] = write.epoch
            self.known.add(write.identity)
        elif isinstance(write, Forgotten):
            self.due = {(identity, epoch) for identity, epoch in self.due if identity != write.identity}
            self.known.discard(write.identity)
            for table in (self.positions, self.last, self.lost):
                table.pop(write.identity, None)
            self.small = {
                key: row for key, row in self.small.items() if getattr(row, "identity", None) != write.identity
            }
        else:
            name = type(write).__name__
            keys = [getattr(write, field, "") for field in ("identity", "id", "source", "log")]
            self.small[(name, *keys)] = write

    def read(self, fetch):
        entries: list[Entry] = []
        lost = size = 0
        for epoch in range(fetch.after + 1, min(fetch.upto, self.head) + 1):
            if (fetch.identity, epoch) not in self.due:
                continue
            record = self.records[epoch - 1]
            if epoch not in self.kept:
                lost += 1
                continue
            size += len(record.notification.packed)
            if entries and (len(entries) == fetch.entries_max or size > fetch.bytes_max):
                # All of what is due before this one is in the answer.
                upto = max(each for identity, each in self.due if identity == fetch.identity and each < epoch)
                return Fetched(fetch.identity, fetch.after, upto, tuple(entries), lost)
            entries.append(Entry(epoch, record.notification, dict(record.due)[fetch.identity]))
        upto = max(fetch.after, min(fetch.upto, self.head))
        return Fetched(fetch.identity, fetch.after, upto, tuple(entries), lost)

    def waiting(self, epoch):
        due = dict(self.records[epoch - 1].due)
        return [each for each in due if (each, epoch) in self.due and self.positions.get(each, 0) < epoch]

    def lose(self, epoch):
        """Returns who has lost it."""
        waiting = self.waiting(epoch)
        self.kept.discard(epoch)
        for identity in waiting:
            self.lost[identity] = self.lost.get(identity, 0) + 1
        return waiting

    def collect(self, now):
        """Returns how many records went, and what was lost by whom."""
        before = len(self.kept)
        lost: dict[str, int] = {}
        for epoch in sorted(self.kept):
            age, size = self.retention.age_us_max, self.retention.bytes_max
            is_old = age is not None and self.records[epoch - 1].at < now - age
            if not is_old and (size is None or self.bytes <= size):
                break
            for identity in self.lose(epoch):
                lost[identity] = lost.get(identity, 0) + 1
        for epoch in sorted(self.kept):
            if not self.waiting(epoch) and self.records[epoch - 1].at <= now - self.retention.retain_us:
                self.kept.discard(epoch)
        self.due = {
            (identity, epoch)
            for identity, epoch in self.due
            if epoch in self.kept or epoch > self.positions.get(identity, 0)
        }
        self.anchor = min(self.kept, default=self.head + 1) - 1
        return before - len(self.kept), lost

    @property
    def bytes(self):
        return sum(len(self.records[epoch - 1].notification.packed) for epoch in self.kept)

    def rows(self, name):
        return {key[1:]: row for key, row in self.small.items() if key[0] == name}
