"""SIENA: hierarchical, acyclic and general networks of brokers, which forward subscriptions and advertisements."""
