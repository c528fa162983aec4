"""What goes over a connection, without input or output: messages, frames, and one session protocol for both ends.

messages.py          the messages
frames.py            messages to bytes and back
plain.py             messages with notifications, as msgspec alone reads them
states.py            the table: what may be said in which state of a connection
greetings.py         names, versions and routing systems: which `Hello` and which `Welcome` is refused
session.py           the protocol of either end: bytes in, events out; messages in, bytes out
client_session.py    what only a client's end does

`docs/protocol.md` describes all of it for people who write a client in another language.
"""
