"""How large summaries are and how much work they make, as the text computes it (§5.1, §5.2.4, Tables 1 and 2).

These are the text's formulas, with the names of its Table 1 beside each parameter. What real summaries take is counted
elsewhere: `Summary.size_bytes` by the same equations from actual rows, `ReceivedSummary.looked_up` while matching. The
bytes of a summary on the wire are the length of its frame.

Equation (2) is printed with a sum up to n_sr; it is a sum over string attributes, up to n_ss.
"""

from __future__ import annotations

from dataclasses import dataclass


def aacs_bytes(ranges: float, equalities: float, ids: float, value_bytes: int, id_bytes: int) -> float:
    """Equation (1) for one attribute: n_sr ranges of two values, n_e equalities, L_a ids; sst and sid bytes."""
    return (2 * ranges + equalities) * value_bytes + ids * id_bytes


def sacs_bytes(rows: float, ids: float, string_bytes: float, id_bytes: int) -> float:
    """Equation (2) for one attribute: n_r rows of ssv bytes, L_s ids of sid bytes."""
    return rows * string_bytes + ids * id_bytes


def matching_steps(
    *,
    arithmetic_attributes: int,
    string_attributes: int,
    ranges: float,
    equalities: float,
    rows: float,
    arithmetic_ids: float,
    string_ids: float,
) -> float:
    """T1: the steps of step 1 of Algorithm 1, for a notification with n_ae arithmetic and n_se string attributes.
    T2, the steps of step 2, is the number of ids that step 1 has collected."""
    arithmetic = max(ranges * arithmetic_ids, equalities + arithmetic_ids)
    return arithmetic_attributes * arithmetic + string_attributes * (rows + string_ids)


@dataclass(frozen=True, slots=True)
class TextParameters:
    """Table 2. A subscription names half of the attributes of the system, 2 of 5 of them arithmetic. All attributes
    are in use."""

    attributes: int = 10  # n_t
    ranges: int = 2  # n_sr, for each arithmetic attribute
    value_bytes: int = 4  # sst
    id_bytes: int = 4  # sid
    string_bytes: int = 10  # ssv
    subscription_bytes: int = 50
    arithmetic_share: float = 0.4

    def summary_bytes(self, subscriptions: float, subsumed_share: float) -> float:
        """The bytes of the summary of so many subscriptions (σ) of one broker, or of several brokers together. The
        given share of values is subsumed: in a range, or in a row that covers it. Each other value is an equality or a
        row of its own."""
        arithmetic = round(self.attributes * self.arithmetic_share)
        strings = self.attributes - arithmetic
        # Each attribute is in half of the subscriptions.
        ids = subscriptions / 2
        own = ids * (1 - subsumed_share)
        aacs = aacs_bytes(self.ranges, own, ids, self.value_bytes, self.id_bytes)
        sacs = sacs_bytes(own, ids, self.string_bytes, self.id_bytes)
        return arithmetic * aacs + strings * sacs

    def broadcast_bytes(self, subscriptions: float) -> float:
        """The bytes of the same subscriptions as they are."""
        return subscriptions * self.subscription_bytes
