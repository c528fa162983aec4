"""`./dev bench broker --routing`: every system of the registry can be started, but those that need units."""

import pytest

from benchmarks.broker_routing import REFERENCE, options, systems_of
from catchment.routing.systems import SYSTEMS, system_named
from catchment.sim.conformance.entries import entry_of


def test_all_systems_but_those_of_units():
    assert systems_of("all") == [REFERENCE, *(name for name in SYSTEMS if name not in (REFERENCE, "siena hybrid"))]
    assert systems_of("flooding, unicast") == [REFERENCE, "flooding", "unicast"]
    with pytest.raises(SystemExit, match="needs a network of units"):
        systems_of("siena hybrid")


@pytest.mark.parametrize("name", [name for name in SYSTEMS if not entry_of(name).needs_units])
def test_options_are_settings_of_the_system(name: str):
    for broker in options(name, 2):
        assert broker[:2] == ["--routing", name]
        given = [word.partition("=")[0] for word in broker[3::2]]
        assert set(given) <= set(system_named(name).settings.__struct_fields__)


def test_places_are_filled_in():
    assert options("centralized", 2) == [["--routing", "centralized", "--set", "center=0"]] * 2
    assert options("siena hierarchical", 2)[1] == ["--routing", "siena hierarchical", "--set", "master=0"]
