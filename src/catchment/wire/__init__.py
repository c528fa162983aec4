"""What goes over a connection, without input or output: messages, frames, and the session of either end.

`docs/protocol.md` describes all of it for those who write a client in another language.
"""
