"""What routing cores are made of. A core uses the parts that it needs; no part knows which core uses it.

dispatch       a method for each message; what is refused
clients        the client side: which clients are connected, what they want, what is to be delivered to them
watching       the monitors of clients' patterns
remote         the filters of other brokers, with one matcher for all of them
link_states    the links of all brokers, which every broker floods through the network
records        tables of all brokers, which every broker floods through the network
paths          shortest paths that all brokers agree on
newest         the last number of each publisher, to tell new notifications from old ones
recall         a matcher that remembers its answers for notifications with the same content
wanted         what may be subscribed to: filters, patterns and CESQL expressions, treated alike
"""
