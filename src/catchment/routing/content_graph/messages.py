"""What brokers say to each other about content graphs, and the header of notifications.

between an edge and the rendezvous point, relayed over the tree   NodesWanted up, NodesGiven down
between a router and the one above it in the tree                 SubscribeNodes, UnsubscribeNodes, Resubscribed up;
                                                                  GraphSetup, UnsubscribedAck, ResubscribedAck,
                                                                  NodesRefused, GraphChange down
loss detection, relayed                                           NumbersWanted, Recover up; Numbers, Recovered down

Every message names its namespace. A *session* is the time during which a router has the same router above it. The lower
router numbers its sessions. An answer with the number of an earlier session is ignored.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import BrokerMessage, Header

# Nodes with the number of the last notification for each.
NodeNumbers = tuple[tuple[int, int], ...]


class ContentHeader(Header, frozen=True, gc=False):
    """While a notification `is_rising`, it is on its way to the rendezvous point, which gave its nodes if `version` is
    not the current version of the graph. Afterwards it goes down: to the neighbors that the nodes say, or, with `to`,
    to one broker. `numbers` are for loss detection, from end to end: routers do not read them. The first is of no node:
    it counts all notifications of the namespace."""

    namespace: str
    is_rising: bool
    # The version of the graph that `nodes` were found with; 0 if nobody has looked yet.
    version: int
    nodes: tuple[int, ...]
    numbers: NodeNumbers
    to: str
    # Whether `nodes` are all nodes that cover the notification, though the network does not use content lists (§6.6).
    names_all: bool


# --- nodes for filters --------------------------------------------------------------------------


class NodesWanted(BrokerMessage, frozen=True):
    """The clients of `origin` want these filters, and no longer those that are withdrawn. If it `is_whole`, they want
    nothing else. Otherwise it changes what `origin` said before with the same `links_seq` and a `seq` that is one less.
    `links_seq` is the number of the origin's last record of links."""

    namespace: str
    origin: str
    links_seq: int
    seq: int
    is_whole: bool
    withdrawn: tuple[Filter, ...]
    wanted: tuple[Filter, ...]


class NodesGiven(BrokerMessage, frozen=True):
    """The answer to the `NodesWanted` with the same `links_seq` and `seq`: a node for each filter, and for each of
    these nodes the numbers of it and of all nodes below it. A filter that a static graph does not have is left out."""

    namespace: str
    to: str
    links_seq: int
    seq: int
    given: tuple[tuple[Filter, int], ...]
    numbers: tuple[tuple[int, NodeNumbers], ...]


# --- subscriptions, from router to router -------------------------------------------------------


class SubscribeNodes(BrokerMessage, frozen=True):
    """The sender wants notifications for these nodes. With `wants_graph` it also wants to know their edges. If it
    `begins` a session, it wants nothing else; `version` is then the version of the graph that its preprocessor has."""

    namespace: str
    session: int
    begins: bool
    wants_graph: bool
    nodes: tuple[int, ...]
    version: int = 0


class Setup(Struct, frozen=True, array_like=True, gc=False):
    """The edges of a node: the lowest nodes above it and the highest nodes below it that the receiver subscribed to."""

    node: int
    parents: tuple[int, ...]
    children: tuple[int, ...]


class GraphSetup(BrokerMessage, frozen=True):
    """The answer to `SubscribeNodes` that wanted the graph."""

    namespace: str
    session: int
    setups: tuple[Setup, ...]


class NodesRefused(BrokerMessage, frozen=True):
    """The rendezvous point does not have these nodes: the receiver is subscribed to them no longer."""

    namespace: str
    session: int
    nodes: tuple[int, ...]


class UnsubscribeNodes(BrokerMessage, frozen=True):
    """The sender no longer wants these nodes."""

    namespace: str
    session: int
    nodes: tuple[int, ...]


class UnsubscribedAck(BrokerMessage, frozen=True):
    """The answer to `UnsubscribeNodes`: the sender will not name these nodes again."""

    namespace: str
    session: int
    nodes: tuple[int, ...]


class Left(BrokerMessage, frozen=True):
    """The sender has another router above it now: its session ends, and it wants nothing from the receiver."""

    namespace: str


class Resubscribed(BrokerMessage, frozen=True):
    """The sender still wants these nodes (§3.4.7). A long list goes in several messages."""

    namespace: str
    session: int
    nodes: tuple[int, ...]


class ResubscribedAck(BrokerMessage, frozen=True):
    """The nodes that the receiver is subscribed to, in several messages if the list is long. Also the answer to a
    session's first `SubscribeNodes`."""

    namespace: str
    session: int
    nodes: tuple[int, ...]


# --- the graph, to preprocessors ----------------------------------------------------------------


class Named(Struct, frozen=True, array_like=True):
    """A node of the graph with the filter that it stands for, and its edges when it came."""

    node: int
    filter: Filter
    parents: tuple[int, ...]
    children: tuple[int, ...]


class GraphChange(BrokerMessage, frozen=True):
    """A version of the graph, as a change of the version `after`; 0 means the empty graph. Nodes are removed first. If
    it `is_partial`, further parts follow, and the version is complete with the last one."""

    namespace: str
    session: int
    version: int
    after: int
    is_partial: bool
    removed: tuple[int, ...]
    added: tuple[Named, ...]


# --- loss detection -----------------------------------------------------------------------------


class NumbersWanted(BrokerMessage, frozen=True):
    """`origin` wants to know the numbers of these nodes and of all nodes below them."""

    namespace: str
    origin: str
    nodes: tuple[int, ...]


class Numbers(BrokerMessage, frozen=True):
    """The answer to `NumbersWanted`: for each node that was asked for, the numbers of it and of all nodes below it."""

    namespace: str
    to: str
    numbers: tuple[tuple[int, NodeNumbers], ...]


class Recover(BrokerMessage, frozen=True):
    """`origin`, which wants `nodes`, has not got notifications: each part of `missing` is a node, the first number and
    the last number."""

    namespace: str
    origin: str
    nodes: tuple[int, ...]
    missing: tuple[tuple[int, int, int], ...]


class Again(Struct, frozen=True, array_like=True):
    """A notification that the rendezvous point has sent before, with its numbers. `nodes` are those of the asker's that
    it belongs to."""

    notification: Notification
    nodes: tuple[int, ...]
    numbers: NodeNumbers


class Recovered(BrokerMessage, frozen=True):
    """The answer to `Recover` with the same `missing`: what the rendezvous point still has and the asker wants, in the
    order in which it was sent; what it no longer has, as nodes and numbers; and nodes that are not the asker's."""

    carries_notifications: ClassVar[bool] = True

    namespace: str
    to: str
    missing: tuple[tuple[int, int, int], ...]
    again: tuple[Again, ...]
    lost: NodeNumbers
    foreign: tuple[int, ...]
