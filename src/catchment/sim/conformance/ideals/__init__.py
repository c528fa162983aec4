"""The tables that the brokers of a settled network should have: one ideal for each routing system.

An ideal knows what no broker knows, what all clients want, and computes from that what each broker should hold. It
shares no code with what it checks: it compares filters pair by pair, by `covers`, `overlaps` and `matches` of the model
alone, and reads the tables of cores by their public names. `tests/conformance/test_independence.py` checks that.

tables         what all ideals share, and the check of what a core says of itself
hop_by_hop     siena acyclic, siena hierarchical, siena advertising
delegating     siena delegating
merging        siena merging
general        siena general
hybrid         siena hybrid
summary        summary
multicast      propagation, dvmrp
content_graph  content graph
grid           grid
baselines      flooding, centralized, unicast, overlapping multicast, disjunctive multicast, perfect
"""
