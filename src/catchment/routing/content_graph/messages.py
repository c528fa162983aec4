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
from catchment.routing.messages import BrokerMessage, BrokerName, Header, Number

# Nodes with the number of the last notification for each.
NodeNumbers = tuple[tuple[Number, Number], ...]


class ContentHeader(Header, frozen=True, gc=False):
    """While a notification `is_rising`, it is on its way to the rendezvous point, which gave its nodes if `version` is
    not the current version of the graph. Afterwards it goes down: to the neighbors that the nodes say, or, with `to`,
    to one broker. `numbers` are for loss detection, from end to end: routers do not read them. The first is of no node:
    it counts all notifications of the namespace."""

    namespace: str
    is_rising: bool
    # The version of the graph that `nodes` were found with; 0 if nobody has looked yet.
    version: Number
    nodes: tuple[Number, ...]
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
    origin: BrokerName
    links_seq: Number
    seq: Number
    is_whole: bool
    withdrawn: tuple[Filter, ...]
    wanted: tuple[Filter, ...]


class NodesGiven(BrokerMessage, frozen=True):
    """The answer to the `NodesWanted` with the same `links_seq` and `seq`: a node for each filter, and the numbers of
    these nodes and of all nodes below them. A filter that a static graph does not have is left out."""

    namespace: str
    to: BrokerName
    links_seq: Number
    seq: Number
    given: tuple[tuple[Filter, Number], ...]
    numbers: NodeNumbers


# --- subscriptions, from router to router -------------------------------------------------------


class SubscribeNodes(BrokerMessage, frozen=True):
    """The sender wants notifications for these nodes. With `wants_graph` it also wants to know their edges. If it
    `begins` a session, it wants nothing else; `version` is then the version of the graph that its preprocessor has."""

    namespace: str
    session: Number
    begins: bool
    wants_graph: bool
    nodes: tuple[Number, ...]
    version: Number = 0


class Setup(Struct, frozen=True, array_like=True, gc=False):
    """The edges of a node: the lowest nodes above it and the highest nodes below it that the receiver subscribed to."""

    node: Number
    parents: tuple[Number, ...]
    children: tuple[Number, ...]


class GraphSetup(BrokerMessage, frozen=True):
    """The answer to `SubscribeNodes` that wanted the graph."""

    namespace: str
    session: Number
    setups: tuple[Setup, ...]


class NodesRefused(BrokerMessage, frozen=True):
    """The rendezvous point does not have these nodes: the receiver is subscribed to them no longer."""

    namespace: str
    session: Number
    nodes: tuple[Number, ...]


class UnsubscribeNodes(BrokerMessage, frozen=True):
    """The sender no longer wants these nodes."""

    namespace: str
    session: Number
    nodes: tuple[Number, ...]


class UnsubscribedAck(BrokerMessage, frozen=True):
    """The answer to `UnsubscribeNodes`: the sender will not name these nodes again."""

    namespace: str
    session: Number
    nodes: tuple[Number, ...]


class Left(BrokerMessage, frozen=True):
    """The sender has another router above it now: its session ends, and it wants nothing from the receiver."""

    namespace: str


class Resubscribed(BrokerMessage, frozen=True):
    """The sender still wants these nodes (§3.4.7). A long list goes in several messages."""

    namespace: str
    session: Number
    nodes: tuple[Number, ...]


class ResubscribedAck(BrokerMessage, frozen=True):
    """The nodes that the receiver is subscribed to, in several messages if the list is long. Also the answer to a
    session's first `SubscribeNodes`."""

    namespace: str
    session: Number
    nodes: tuple[Number, ...]


# --- the graph, to preprocessors ----------------------------------------------------------------


class Named(Struct, frozen=True, array_like=True):
    """A node of the graph with the filter that it stands for, and its edges when it came."""

    node: Number
    filter: Filter
    parents: tuple[Number, ...]
    children: tuple[Number, ...]


class GraphChange(BrokerMessage, frozen=True):
    """A version of the graph, as a change of the version `after`; 0 means the empty graph. Nodes are removed first. If
    it `is_partial`, further parts follow, and the version is complete with the last one."""

    namespace: str
    session: Number
    version: Number
    after: Number
    is_partial: bool
    removed: tuple[Number, ...]
    added: tuple[Named, ...]


# --- loss detection -----------------------------------------------------------------------------


class NumbersWanted(BrokerMessage, frozen=True):
    """`origin` wants to know the numbers of these nodes and of all nodes below them."""

    namespace: str
    origin: BrokerName
    nodes: tuple[Number, ...]


class Numbers(BrokerMessage, frozen=True):
    """The answer to `NumbersWanted` with the same `nodes`. A node that is left out has number 0."""

    namespace: str
    to: BrokerName
    nodes: tuple[Number, ...]
    numbers: NodeNumbers


class Recover(BrokerMessage, frozen=True):
    """`origin`, which wants `nodes`, has not got notifications: each part of `missing` is a node, the first number and
    the last number."""

    namespace: str
    origin: BrokerName
    nodes: tuple[Number, ...]
    missing: tuple[tuple[Number, Number, Number], ...]


class Again(Struct, frozen=True, array_like=True):
    """A notification that the rendezvous point has sent before, with its numbers. `nodes` are those of the asker's that
    it belongs to."""

    notification: Notification
    nodes: tuple[Number, ...]
    numbers: NodeNumbers


class Recovered(BrokerMessage, frozen=True):
    """The answer to `Recover` with the same `missing`: what the rendezvous point still has and the asker wants, in the
    order in which it was sent; what it no longer has, as nodes and numbers; and nodes that are not the asker's."""

    carries_notifications: ClassVar[bool] = True

    namespace: str
    to: BrokerName
    missing: tuple[tuple[Number, Number, Number], ...]
    again: tuple[Again, ...]
    lost: NodeNumbers
    foreign: tuple[Number, ...]
