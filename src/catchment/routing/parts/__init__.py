"""What routing cores are made of. A core composes the parts it needs; no part knows which core uses it.

clients        the client side: who is connected, what they want, what they are due
watching       the monitors of clients' patterns
remote         the filters of other brokers, with one matcher for all of them
link_states    the links of all brokers, flooded
paths          shortest paths that all brokers agree on
newest         the last number of each publisher
recall         a matcher that recalls what it has matched before
wanted         filters, patterns and CESQL expressions, alike
"""
