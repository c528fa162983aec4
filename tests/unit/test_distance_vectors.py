"""Distance vectors: routes, children, poisoned reverse, counting to infinity, and what neighbors may not say."""

import pytest

from catchment.errors import CatchmentError, InputError
from catchment.routing.messages import Neighbor, Send
from catchment.routing.parts import distance_vectors
from catchment.routing.parts.distance_vectors import INFINITY, Distances, DistanceVectors

A, B, C = Neighbor("a"), Neighbor("b"), Neighbor("c")


def told(vectors: DistanceVectors) -> dict[str, dict[str, int]]:
    """What each neighbor is told now."""
    heard: dict[str, dict[str, int]] = {}
    for action in vectors.flush():
        assert isinstance(action, Send)
        assert isinstance(action.message, Distances)
        heard[action.interface.name] = dict(action.message.entries)
    return heard


def with_neighbors(*neighbors: Neighbor, infinity: int = INFINITY) -> DistanceVectors:
    """A broker `me` whose neighbors have said where they are themselves."""
    vectors = DistanceVectors("me", infinity)
    for neighbor in neighbors:
        vectors.up(neighbor)
        vectors.heard(Distances(((neighbor.name, 0),)), neighbor)
    vectors.flush()
    return vectors


def test_a_new_neighbor_is_told_everything_and_its_own_route_as_its_child():
    vectors = with_neighbors(A)
    vectors.heard(Distances((("x", 3),)), A)
    assert told(vectors) == {"a": {"x": INFINITY + 4}}
    vectors.up(B)
    assert told(vectors) == {"b": {"me": 0, "a": 1, "x": 4}}
    assert vectors.reached == ("a", "me", "x")


def test_routes_are_short_and_of_equal_ones_the_first_by_name():
    vectors = with_neighbors(A, B, C)
    vectors.heard(Distances((("x", 2),)), C)
    assert (vectors.parent("x"), vectors.distance("x")) == (C, 3)
    vectors.heard(Distances((("x", 2),)), B)
    assert (vectors.parent("x"), vectors.distance("x")) == (B, 3)
    vectors.heard(Distances((("x", 5),)), A)
    assert vectors.parent("x") == B
    change = vectors.down(B)
    assert change.parents == {"b", "x"}
    assert (vectors.parent("x"), vectors.distance("x")) == (C, 3)


def test_a_child_is_a_neighbor_whose_route_leads_through_here():
    vectors = with_neighbors(A, B)
    change = vectors.heard(Distances((("me", INFINITY + 1), ("a", INFINITY + 2), ("x", INFINITY))), B)
    assert change.gained == {("me", B), ("a", B)}
    assert vectors.children("me") == vectors.children("a") == (B,)
    assert vectors.children("x") == ()
    change = vectors.heard(Distances((("a", 1),)), B)
    assert change.lost == {("a", B)}
    assert vectors.children("a") == ()


def test_nobody_takes_a_route_that_leads_back():
    vectors = with_neighbors(A, B)
    vectors.heard(Distances((("x", 1),)), A)
    vectors.heard(Distances((("x", INFINITY + 3),)), B)
    vectors.flush()
    vectors.heard(Distances((("x", INFINITY),)), A)
    assert vectors.parent("x") is None
    assert told(vectors) == {"a": {"x": INFINITY}, "b": {"x": INFINITY}}


def test_only_what_has_changed_is_told_and_nothing_twice():
    vectors = with_neighbors(A, B)
    vectors.heard(Distances((("x", 1), ("y", 1))), A)
    assert told(vectors) == {"a": {"x": INFINITY + 2, "y": INFINITY + 2}, "b": {"x": 2, "y": 2}}
    vectors.heard(Distances((("x", 1), ("y", 2))), A)
    assert told(vectors) == {"a": {"y": INFINITY + 3}, "b": {"y": 3}}
    vectors.heard(Distances((("y", 2),)), A)
    assert told(vectors) == {}


@pytest.mark.parametrize("infinity", [4, INFINITY])
def test_counting_ends_at_infinity(infinity: int):
    """A neighbor whose distance grows step by step: the route goes along, and is given up at infinity."""
    vectors = with_neighbors(A, B, infinity=infinity)
    said = []
    for distance in range(1, infinity):
        vectors.heard(Distances((("x", distance),)), A)
        said.append(told(vectors)["b"]["x"])
    assert said == list(range(2, infinity + 1))
    assert not vectors.is_reached("x")
    # Nothing is left of it, and others are as they were.
    vectors.heard(Distances((("x", infinity),)), A)
    assert told(vectors) == {}
    assert vectors.reached == ("a", "b", "me")


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (("x", -1), "told the number -1 for 'x': with infinity = 16 it is from 0 to 31; all brokers"),
        (("x", 2 * INFINITY), "told the number 32 for 'x'"),
        (("x", 2**62), "told the number 4611686018427387904"),
        (("x", 0), "told the number 0 for 'x': only itself is 0"),
        (("a", 1), "told the number 1 for 'a': only itself is 0"),
        (("", 1), "a broker's name of 0 characters"),
        (("x" * 2_000, 1), "a broker's name of 2,000 characters"),
    ],
)
def test_what_cannot_be_true_is_refused_and_changes_nothing(entry: tuple[str, int], what: str):
    vectors = with_neighbors(A, B)
    with pytest.raises(CatchmentError, match=what):
        vectors.heard(Distances((("y", 1), entry)), A)
    assert vectors.reached == ("a", "b", "me")
    assert told(vectors) == {}


def test_a_neighbor_names_so_many_brokers_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(distance_vectors, "DESTINATIONS_MAX", 3)
    vectors = with_neighbors(A, B)
    vectors.heard(Distances((("x", 1), ("y", 1))), A)
    with pytest.raises(CatchmentError, match="DESTINATIONS_MAX is 3, found 4"):
        vectors.heard(Distances((("z", 1),)), A)
    # What it says of those that it has named is heard still, and so is its neighbor.
    vectors.heard(Distances((("x", 2),)), A)
    vectors.heard(Distances((("z", 1),)), B)
    assert vectors.distance("z") == 2


@pytest.mark.parametrize("infinity", [1, 257])
def test_infinity_is_a_number_of_links(infinity: int):
    with pytest.raises(InputError, match=f"infinity is {infinity}: use a number of links from 2 to 256"):
        DistanceVectors("me", infinity)
