"""SIENA §5.2.1: a poset of simple subscriptions, the cases of insertion, what removal links again."""

import pytest

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.routing.poset import Case, Poset

# In the shape of the paper's Figure 12: several roots, chains of different length, a filter below two others.
ANY_AIRLINE = Filter("airline any")
ANY_PRICE = Filter("price any")
UA = Filter('airline = "UA"')
CHEAP = Filter("price < 500")
UA_DENVER = Filter('airline = "UA" and dest = "DEN"')
UA_CHEAP = Filter('airline = "UA" and price < 500')
UA_DENVER_CHEAP = Filter('airline = "UA" and dest = "DEN" and price < 300')
TO_D = Filter('dest >* "D"')
STOCK = Filter('stock = "DIS" and price > 10')
STOCK_BAND = Filter('stock = "DIS" and price > 10 and price < 20')

FLIGHTS = [UA_DENVER_CHEAP, ANY_AIRLINE, UA, CHEAP, UA_DENVER, ANY_PRICE, STOCK_BAND, UA_CHEAP, TO_D, STOCK]


@pytest.fixture
def poset():
    return Poset(FLIGHTS)


def test_it_holds_immediate_relations_only(poset):
    assert poset.successors(ANY_AIRLINE) == (UA,)
    assert poset.successors(ANY_PRICE) == (CHEAP, STOCK)
    assert poset.predecessors(UA_CHEAP) == (UA, CHEAP)
    assert poset.predecessors(UA_DENVER_CHEAP) == (UA_DENVER, UA_CHEAP)
    assert poset.predecessors(UA_DENVER) == (UA, TO_D)
    assert poset.predecessors(STOCK_BAND) == (CHEAP, STOCK)
    assert poset.successors(UA_DENVER_CHEAP) == ()


def test_roots_are_what_no_other_covers(poset):
    assert poset.roots == (ANY_AIRLINE, ANY_PRICE, TO_D)
    assert all(poset.predecessors(root) == () for root in poset.roots)


def test_the_order_of_insertion_does_not_change_the_relations():
    forward, backward = Poset(FLIGHTS), Poset(reversed(FLIGHTS))
    for filter in FLIGHTS:
        assert set(forward.predecessors(filter)) == set(backward.predecessors(filter))
        assert set(forward.successors(filter)) == set(backward.successors(filter))


def test_it_iterates_in_order_of_insertion(poset):
    assert list(poset) == FLIGHTS
    assert len(poset) == len(FLIGHTS)
    assert UA in poset
    assert Filter('airline = "AA"') not in poset


# --- the three cases of insertion ---------------------------------------------------------------


def test_case_root(poset):
    placement = poset.insert(Filter('airline any or dest >* "D"'))
    assert placement.case is Case.ROOT
    assert placement.predecessors == ()
    assert placement.successors == (ANY_AIRLINE, TO_D)
    assert poset.roots == (ANY_PRICE, placement.filter)


def test_case_existing(poset):
    written_otherwise = Filter('dest = "DEN" and not (airline != "UA") and airline any')
    placement = poset.insert(written_otherwise)
    assert placement.case is Case.EXISTING
    assert placement.filter is UA_DENVER
    assert placement.predecessors == (UA, TO_D)
    assert placement.successors == (UA_DENVER_CHEAP,)
    assert list(poset) == FLIGHTS


def test_case_below_and_in_between(poset):
    to_de = Filter('dest >* "DE"')
    placement = poset.insert(to_de)
    assert placement.case is Case.BELOW
    assert placement.predecessors == (TO_D,)
    assert placement.successors == (UA_DENVER,)
    assert poset.successors(TO_D) == (to_de,)
    assert poset.predecessors(UA_DENVER) == (UA, to_de)


def test_case_below_as_a_leaf(poset):
    placement = poset.insert(Filter('airline = "AA"'))
    assert (placement.case, placement.predecessors, placement.successors) == (Case.BELOW, (ANY_AIRLINE,), ())


# --- removal ------------------------------------------------------------------------------------


def test_a_removed_root_uncovers_its_successors(poset):
    poset.remove(ANY_PRICE)
    assert poset.roots == (ANY_AIRLINE, CHEAP, TO_D, STOCK)


def test_removal_links_predecessors_to_successors(poset):
    poset.remove(UA)
    assert poset.successors(ANY_AIRLINE) == (UA_DENVER, UA_CHEAP)
    assert poset.predecessors(UA_CHEAP) == (ANY_AIRLINE, CHEAP)


def test_removal_adds_no_edge_where_another_way_leads(poset):
    poset.remove(UA_DENVER)
    assert poset.predecessors(UA_DENVER_CHEAP) == (UA_CHEAP, TO_D), "UA is still above by way of UA_CHEAP"
    assert poset.successors(UA) == (UA_CHEAP,)


def test_unsubscribing_cancels_all_that_a_filter_covers(poset):
    """§3.8: what the poset is asked then, with a filter that nobody may have subscribed to."""
    cancelled = poset.covered(Filter("airline any and price any"))
    assert cancelled == (UA_DENVER_CHEAP, UA_CHEAP)
    for filter in cancelled:
        poset.remove(filter)
    assert poset.covered(Filter("airline any and price any")) == ()
    assert poset.roots == (ANY_AIRLINE, ANY_PRICE, TO_D)
    assert poset.successors(UA) == (UA_DENVER,)


def test_a_narrower_unsubscription_cancels_nothing(poset):
    assert poset.covered(Filter('airline = "UA" and dest = "DEN" and price < 100')) == ()


def test_all_can_go_and_come_again(poset):
    relations = {filter: set(poset.predecessors(filter)) for filter in FLIGHTS}
    for filter in FLIGHTS:
        poset.remove(filter)
    assert (len(poset), list(poset), poset.roots) == (0, [], ())
    for filter in reversed(FLIGHTS):
        poset.insert(filter)
    assert {filter: set(poset.predecessors(filter)) for filter in FLIGHTS} == relations
    assert list(poset) == FLIGHTS[::-1]


def test_what_is_not_there_is_a_key_error(poset):
    stranger = Filter("x = 1")
    for ask in (poset.remove, poset.predecessors, poset.successors):
        with pytest.raises(KeyError):
            ask(stranger)


# --- searching ----------------------------------------------------------------------------------


def test_covering_and_covered_of_a_filter_that_is_there(poset):
    assert poset.covering(UA_CHEAP) == (ANY_AIRLINE, UA, CHEAP, ANY_PRICE, UA_CHEAP)
    assert poset.covered(UA) == (UA_DENVER_CHEAP, UA, UA_DENVER, UA_CHEAP)


def test_covering_and_covered_of_a_filter_that_is_not(poset):
    assert poset.covering(Filter('dest = "DFW" and price = 1')) == (CHEAP, ANY_PRICE, TO_D)
    assert poset.covered(Filter('airline >* "U"')) == (UA_DENVER_CHEAP, UA, UA_DENVER, UA_CHEAP)
    assert poset.covering(Filter("other = 1")) == poset.covered(Filter("other = 1")) == ()


def test_asking_leaves_no_trace(poset):
    names = [f"n{i}" for i in range(200)]
    for name in names:
        poset.covering(Filter.of((name, "=", 1)))
        assert Filter.of((name, "=", 1)) not in poset
    assert len(poset._index._vocabulary._tokens) == 8  # airline, dest, price and stock, each with a kind and without


# --- the ends of the order ----------------------------------------------------------------------


def test_everything_is_above_and_nothing_below_all(poset):
    assert poset.insert(Filter.everything()).case is Case.ROOT
    assert poset.insert(Filter.nothing()).case is Case.BELOW
    assert poset.roots == (Filter.everything(),)
    assert poset.covered(Filter.everything()) == tuple(poset)
    assert poset.covering(Filter.nothing()) == tuple(poset)
    assert poset.successors(UA_DENVER_CHEAP) == poset.successors(STOCK_BAND) == (Filter.nothing(),)
    poset.remove(Filter.nothing())
    poset.remove(Filter.everything())
    assert poset.roots == (ANY_AIRLINE, ANY_PRICE, TO_D)


def test_alternatives_that_together_allow_everything_on_a_name_do_not_constrain_it():
    split = Filter("not exists(x) and y > 0 or x any and y < 10")
    poset = Poset([Filter("y > 1 and y < 5"), split])
    assert poset.successors(split) == (Filter("y > 1 and y < 5"),)
    assert poset.covering(Filter("y = 2")) == (Filter("y > 1 and y < 5"), split)


# --- past what the index keeps apart ------------------------------------------------------------


def test_a_filter_with_many_immediate_predecessors():
    names = [f"n{i}" for i in range(30)]
    singles, bottom = [Filter.of((name, "=", 1)) for name in names], Filter.of(*((name, "=", 1) for name in names))
    crowd = [Filter.of((name, "=", 1), ("x", "=", value)) for name in names for value in range(15)]
    poset = Poset([*singles, bottom, *crowd])
    assert poset.predecessors(bottom) == tuple(singles)
    for i, (name, single) in enumerate(zip(names, singles, strict=True)):
        assert poset.insert(Filter.of((name, ">", 0))).successors == (single,)
        assert poset.successors(single) == (bottom, *crowd[15 * i : 15 * i + 15])
    assert poset.insert(bottom & Filter("z = 1")).predecessors == (bottom,)
    for single in singles:
        poset.remove(single)
    assert poset.predecessors(bottom) == tuple(Filter.of((name, ">", 0)) for name in names)


def test_names_that_share_mask_bits_are_told_apart():
    names = [f"n{i}" for i in range(300)]
    poset = Poset([Filter.of((name, "=", -1)) for name in names])
    for value in range(2, 32):  # so that n0, the rarest, is where the wide ones are looked for
        for name in names[1::20]:
            poset.insert(Filter.of((name, "=", -value)))
    wide = [Filter.of(("n0", ">", 0), (name, ">", 0)) for name in names[1::20]]
    narrow = [Filter.of(("n0", "=", 1), *((name, "=", 1) for name in names[i : i + 4])) for i in range(1, 290)]
    for filter in [*wide, *narrow]:
        poset.insert(filter)
    for wider in wide:
        assert poset.successors(wider) == tuple(narrower for narrower in narrow if wider.covers(narrower))


# --- advertisements -----------------------------------------------------------------------------


def test_advertisements_are_ordered_by_the_same_code():
    wide = Advertisement('what = "alarm", what = "login", username any')
    alarm, login = Advertisement('what = "alarm"'), Advertisement('what = "login", username any')
    ann = Advertisement('what = "login", username = "ann"')
    poset = Poset([ann, alarm, wide, login])
    assert poset.roots == (wide,)
    assert poset.successors(wide) == (alarm, login)
    assert poset.predecessors(ann) == (login,)
    assert poset.insert(Advertisement('username = "ann"')).predecessors == (ann,)
    poset.remove(login)
    assert poset.predecessors(ann) == (wide,)
