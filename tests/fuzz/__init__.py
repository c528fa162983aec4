"""No tests: what a broker is fuzzed with. `tests/unit/test_fuzz.py` does it for a moment, `./dev soak` at length.

A run is made from its seed alone, and makes many frames, filters or requests. What it finds names the seed and the
number of the frame, filter or request, and `./dev soak` makes the same again from these.
"""
