"""Baselines: what routing systems are compared with, behind the same seam.

flooding       every notification goes everywhere
centralized    one broker has all subscriptions
informed       what unicast and multicast share: every broker knows all subscriptions
unicast        one copy for each client that wants it
topics         what both kinds of multicast share: topics with numbers
overlapping    one copy for each topic that matches
disjunctive    one copy, on a channel for the combination of topics that match
"""
