"""Filters ordered by covering: the poset, and the structures that keep its searches short."""

from catchment.routing.poset.poset import K, Poset

__all__ = ["K", "Poset"]
