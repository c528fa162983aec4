"""Subscription summaries. `core.py` has the theory of operation.

aacs, sacs     the rows of one attribute: ranges of values, patterns of strings
ids            ids of three parts, and schemas
summary        a summary that is built at once, and Algorithm 1
sizes          the text's equations
model          the text's model of what propagation costs in a network

rows           rows and ids as pairs: what the files below work with
maintained     rows that stay right while demands come and go
merged         the merged summary, and what has changed in it
received       a neighbor's summary as it was sent, and Algorithm 1 on it
stream         between names and the numbers of a link; checks of what a neighbor says
own            the subscriptions of our own clients
degrees        degrees, and what follows from them
propagation    Algorithm 2
core           Algorithm 3, and the whole
messages       messages, header, settings
"""
