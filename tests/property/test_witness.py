"""Witnesses against `covers`: among skeletons one decides, spans decide the rest, and corners are members."""

from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.conjunction import Conjunction
from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.model.witness import (
    JUNK,
    Shape,
    corners,
    hull_of,
    junk_in,
    shape_corners,
    shape_of,
    skeleton_constraints,
    skeleton_witness,
)
from tests.strategies import numbers, routed_filters, small_scalar_filters, small_string_filters, times

_texts = st.text("ab" + JUNK[0], min_size=1, max_size=2)
_constraints = st.one_of(
    st.builds(constraint, st.sampled_from("st"), st.sampled_from(("=", "prefix", "suffix", "substring")), _texts),
    st.builds(constraint, st.sampled_from("xs"), st.sampled_from(("=", "<", "<=", ">", ">=")), st.integers(-2, 3)),
    st.builds(constraint, st.just("x"), st.sampled_from(("<", ">=")), numbers | times),
    st.builds(constraint, st.sampled_from("stx"), st.just("any"), st.none(), st.sampled_from((None, "number", "time"))),
    st.builds(constraint, st.sampled_from("sx"), st.just("="), st.booleans()),
)
_conjunctions = st.lists(_constraints, max_size=4).map(lambda found: Filter.of(*found)).filter(lambda one: one.boxes)


def shape(filter: Filter) -> Shape | None:
    alternatives = filter.alternatives
    return shape_of(alternatives[0].constraints) if len(alternatives) == 1 else None


def skeleton_filter(found: Shape) -> Filter:
    return Filter.of_boxes([Conjunction(skeleton_constraints(found.skeleton)).box])


def contain(wider: Shape, spans) -> bool:
    """Whether each span of a shape contains the one of the same name and kind."""
    ends = {(name, kind): (low, high) for name, kind, low, high in spans}
    return all(
        (name, kind) in ends and low <= ends[name, kind][0] and ends[name, kind][1] <= high
        for name, kind, low, high in wider.spans
    )


@given(_conjunctions, _conjunctions)
@settings(max_examples=400)
def test_one_witness_decides_between_skeletons(wider, narrower):
    a, b = shape(wider), shape(narrower)
    if a is None or b is None:
        return
    junk = next(one for one in JUNK if one not in junk_in(a.skeleton) | junk_in(b.skeleton))
    witness = skeleton_witness(b.skeleton, junk)
    assert skeleton_filter(b).matches(witness)
    decided = skeleton_filter(a).matches(witness)
    assert decided == skeleton_filter(a).covers(skeleton_filter(b))
    assert (decided and contain(a, b.spans)) == wider.covers(narrower)


@given(_conjunctions, routed_filters | small_scalar_filters | small_string_filters | _conjunctions)
@settings(max_examples=300)
def test_skeleton_and_hull_decide_for_any_filter(wider, narrower):
    a = shape(wider)
    if a is not None and not narrower.is_empty:
        by_parts = skeleton_filter(a).covers(narrower) and contain(a, hull_of(narrower.boxes))
        assert by_parts == wider.covers(narrower)


@given(routed_filters | small_scalar_filters | small_string_filters)
def test_corners_are_members(found):
    for one in corners(found.boxes):
        assert found.matches(one)


@given(_conjunctions)
def test_corners_of_shapes_are_members(found):
    if (one := shape(found)) is not None:
        for corner in shape_corners(one, JUNK[1]):
            assert found.matches(corner)


def test_what_has_no_shape():
    texts = (
        "x != 1", "x in (1, 2)", "int x > 1", "not exists(x)", "s glob 'a*b'", "s > 'a'", "x > 9007199254740992",
        "string s any", "x = 9007199254740993",
    )  # fmt: skip
    assert [text for text in texts if shape(Filter(text)) is not None] == []


def test_shape_of_the_readme_kind():
    found = shape(Filter("symbol >* 'D' and price >= 1 and price < 2 and open = true and volume any"))
    assert found is not None
    assert [part[:2] for part in found.skeleton] == [
        ("open", "="), ("price", "number"), ("symbol", "prefix"), ("volume", "any"),
    ]  # fmt: skip
    assert [span[:2] for span in found.spans] == [("price", "number")]
