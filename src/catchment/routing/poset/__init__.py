"""Filters ordered by covering: the poset (`poset.py`), and the structures that keep its searches short.

graph    the edges between filters that cover one another immediately
index    which filters could cover a given one, and which could it cover, by columns of integers
codes    sets of values as spans of integers, for the index
cells    lists of rows, for the index
"""

from catchment.routing.poset.poset import Case, K, Placement, Poset

__all__ = ["Case", "K", "Placement", "Poset"]
