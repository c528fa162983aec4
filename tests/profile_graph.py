"""The profile graph of the Grid text (§3.2.1, Figure 4), literally: the twin of the profiles that a broker counts.

A profile states a value, or `*`, for each attribute of a signature in order. Two successive constraints are an edge: it
leads from an attribute with a value to the next attribute. Each edge has the units that are interested in it, with the
number of predicates. Profiles share an edge when they agree on all constraints up to it. An edge that nobody is
interested in goes, and so does a node without edges. A change has a unique id, and is counted once.
"""

from collections import Counter
from dataclasses import dataclass, field

ANY = "*"
# The constraints up to and with that of an edge: the place of the edge.
Edge = tuple[str, ...]


@dataclass
class ProfileGraph:
    length: int
    units: dict[Edge, Counter[str]] = field(default_factory=dict)
    changes: set[str] = field(default_factory=set)

    def change(self, id: str, unit: str, profile: tuple[str, ...], by: int) -> None:
        assert len(profile) == self.length
        if id in self.changes:
            return
        self.changes.add(id)
        for end in range(1, self.length + 1):
            counts = self.units.setdefault(profile[:end], Counter())
            counts[unit] += by
            assert counts[unit] >= 0
            if not counts[unit]:
                del counts[unit]
            if not counts:
                del self.units[profile[:end]]

    def destinations(self, values: tuple[str, ...]) -> set[str]:
        """Walks along all edges that the values satisfy; those of the last edges are interested."""
        places: set[Edge] = {()}
        for value in values:
            steps = {(*place, constraint) for place in places for constraint in (value, ANY)}
            places = {step for step in steps if step in self.units}
        return {unit for place in places for unit in self.units[place]}
