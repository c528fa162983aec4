"""The Grid Event Service: units of brokers within units, each broker with an abbreviated view of the network.

units       contexts: which unit a broker is in, how a unit is seen from elsewhere, how many there may be
messages    what brokers say, the header of notifications, settings
graph       the connectivity graph of one broker: edges with counts and costs, best hops, routing cache
gateways    the gateway propagation protocol: what brokers say about connections
believing   which of these statements a broker believes
profiles    the profile propagation protocol: what each unit wants, counted
core        the core: all of these together, and the event routing protocol
"""
