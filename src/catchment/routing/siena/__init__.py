"""SIENA: hierarchical, acyclic and general networks of brokers, subscription and advertisement forwarding."""
