"""Scenarios: a network, a routing system, clients and how they behave, faults; read from files, played and measured."""
