"""Benchmark data: the three workloads on which matching and covering are measured. Seeded: the same on every machine.

W1  attribute-value, after the second study of the content graph text: six attributes of five values,
    equality alone, any attribute left out with probability 0.3.
W2  stock alerts: symbols by Zipf's law over 5,000, price bands, volume thresholds, ten exchanges; a fifth
    of the symbols by prefix, a tenth of the subscriptions without symbol.
W3  many names, mixed operators: names by Zipf's law over 1,000, even-numbered ones ints from 0 to 99,
    odd-numbered ones words; one to five constraints.

Sizes are prefixes of one stream: `subscriptions(w, 10)` starts `subscriptions(w, 1000)`. A subscription's
id is its place in the stream. The streams are fixed to the last bit by the order in which random numbers
are drawn. A change of that order changes every published figure.
"""

from __future__ import annotations

import random
import string
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Final

from catchment.errors import BadValueError, shown
from catchment.model.filter import Filter

Scalar = str | int | float
Triple = tuple[str, str, Scalar]
Conjunct = list[Triple]
Attributes = dict[str, Scalar]


class Zipf:
    """Ranks from 0, the r-th drawn with a probability in proportion to 1/(r+1)^exponent."""

    def __init__(self, count: int, exponent: float) -> None:
        self._cumulative = list(accumulate((rank + 1) ** -exponent for rank in range(count)))

    def draw(self, rng: random.Random) -> int:
        return bisect_left(self._cumulative, rng.random() * self._cumulative[-1])


def _distinct_words(rng: random.Random, count: int, letters: str, length: Callable[[], int]) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(rng.choice(letters) for _ in range(length()))] = None
    return list(words)


# --- W1: attribute-value ------------------------------------------------------------------------

W1_ATTRIBUTES: Final = 6
W1_VALUES: Final = 5
W1_PRESENT_SHARE: Final = 0.7
W1_WILDCARD_SHARE: Final = 0.3


def _w1_value(rng: random.Random) -> str:
    return f"v{rng.randrange(W1_VALUES)}"


def _w1_subscription(rng: random.Random) -> Conjunct:
    while True:
        named: Conjunct = [
            (f"a{i}", "=", _w1_value(rng)) for i in range(W1_ATTRIBUTES) if rng.random() >= W1_WILDCARD_SHARE
        ]
        if named:
            return named


def _w1_notification(rng: random.Random) -> Attributes:
    return {f"a{i}": _w1_value(rng) for i in range(W1_ATTRIBUTES) if rng.random() < W1_PRESENT_SHARE}


# --- W2: stock alerts ---------------------------------------------------------------------------

W2_SYMBOLS: Final = 5_000
W2_SEED: Final = 777
EXCHANGES: Final = ("NYSE", "NASDAQ", "AMEX", "LSE", "TSE", "HKEX", "SSE", "FWB", "SIX", "ASX")
CURRENCIES: Final = ("USD", "EUR", "GBP")


@dataclass(frozen=True)
class _Market:
    """What is listed, at what price about, and how often it is asked for and traded."""

    symbols: list[str]
    prices: list[float]
    wanted: Zipf
    traded: Zipf


@cache
def _market() -> _Market:
    rng = random.Random(W2_SEED)
    symbols = _distinct_words(rng, W2_SYMBOLS, string.ascii_uppercase, lambda: rng.choice((3, 4)))
    prices = [round(min(2000.0, max(2.0, rng.lognormvariate(3.9, 0.9))), 2) for _ in symbols]
    return _Market(symbols, prices, Zipf(W2_SYMBOLS, 1.0), Zipf(W2_SYMBOLS, 0.6))


def _exchange(rng: random.Random) -> Triple:
    return "exchange", "=", rng.choice(EXCHANGES)


def _volume(rng: random.Random) -> Triple:
    return "volume", ">", int(10 ** rng.uniform(4, 7))


def _price_band(rng: random.Random, about: float) -> Conjunct:
    low, width = about * rng.uniform(0.9, 1.08), about * rng.uniform(0.01, 0.08)
    return [("price", ">=", round(low, 2)), ("price", "<=", round(low + width, 2))]


def _w2_subscription(rng: random.Random) -> Conjunct:
    market = _market()
    rank = market.wanted.draw(rng)
    if rng.random() < 0.1:
        return _without_symbol(rng, market.prices[rank])
    return _with_symbol(rng, market.symbols[rank], market.prices[rank])


def _without_symbol(rng: random.Random, about: float) -> Conjunct:
    """All four forms are drawn and one is taken: the reference does so, and the stream depends on it."""
    form = rng.randrange(4)
    forms = (
        [*_price_band(rng, about), _volume(rng)],
        [*_price_band(rng, about), _exchange(rng)],
        [_volume(rng), _exchange(rng)],
        [*_price_band(rng, about), _volume(rng), _exchange(rng)],
    )
    return forms[form]


def _with_symbol(rng: random.Random, symbol: str, about: float) -> Conjunct:
    if rng.random() < 0.8:
        wanted: Triple = ("symbol", "=", symbol)
    else:
        wanted = ("symbol", "prefix", symbol[: rng.choice((1, 2, 2, 3))])
    match rng.randrange(6):
        case 0:
            return [wanted, *_price_band(rng, about)]
        case 1:
            return [wanted, *_price_band(rng, about), _volume(rng)]
        case 2:
            return [wanted, *_price_band(rng, about), _exchange(rng)]
        case 3:
            return [wanted, _volume(rng)]
        case 4:
            return [wanted, _exchange(rng)]
        case _:
            return [wanted, _volume(rng), _exchange(rng)]


def _w2_notification(rng: random.Random) -> Attributes:
    market = _market()
    rank = market.traded.draw(rng)
    price = market.prices[rank] * rng.uniform(0.92, 1.12)
    return {
        "symbol": market.symbols[rank],
        "exchange": rng.choice(EXCHANGES),
        "price": round(price, 2),
        "volume": int(10 ** rng.uniform(2, 7)),
        "high": round(price * 1.02, 2),
        "low": round(price * 0.98, 2),
        "currency": rng.choice(CURRENCIES),
    }


# --- W3: many names, mixed operators ------------------------------------------------------------

W3_NAMES: Final = 1_000
W3_WORDS: Final = 1_000
W3_SEED: Final = 778


@dataclass(frozen=True)
class _Lexicon:
    words: list[str]
    name_ranks: Zipf
    word_ranks: Zipf


@cache
def _lexicon() -> _Lexicon:
    rng = random.Random(W3_SEED)
    words = _distinct_words(rng, W3_WORDS, string.ascii_lowercase, lambda: rng.randrange(4, 11))
    return _Lexicon(words, Zipf(W3_NAMES, 1.0), Zipf(W3_WORDS, 1.0))


def _word(rng: random.Random) -> str:
    lexicon = _lexicon()
    return lexicon.words[lexicon.word_ranks.draw(rng)]


def _name_ranks(rng: random.Random, count: int) -> list[int]:
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        chosen[_lexicon().name_ranks.draw(rng)] = None
    return list(chosen)


def _w3_subscription(rng: random.Random) -> Conjunct:
    return [_w3_constraint(rng, rank) for rank in _name_ranks(rng, rng.randrange(1, 6))]


def _w3_constraint(rng: random.Random, rank: int) -> Triple:
    name, share = f"n{rank}", rng.random()
    return _int_constraint(rng, name, share) if rank % 2 == 0 else _word_constraint(rng, name, share)


def _int_constraint(rng: random.Random, name: str, share: float) -> Triple:
    value, edge = rng.randrange(100), rng.randrange(20)
    if share < 0.6:
        return name, "=", value
    return (name, "<", edge) if share < 0.8 else (name, ">", 99 - edge)


def _word_constraint(rng: random.Random, name: str, share: float) -> Triple:
    word = _word(rng)
    length = rng.randrange(2, 5)
    start = rng.randrange(len(word) - length + 1)
    if share < 0.6:
        return name, "=", word
    if share < 0.75:
        return name, "prefix", word[:length]
    return (name, "suffix", word[-length:]) if share < 0.9 else (name, "substring", word[start : start + length])


def _w3_notification(rng: random.Random) -> Attributes:
    ranks = _name_ranks(rng, rng.randrange(5, 16))
    return {f"n{rank}": rng.randrange(100) if rank % 2 == 0 else _word(rng) for rank in ranks}


# --- streams ------------------------------------------------------------------------------------

_SUBSCRIPTION: Final = {"W1": _w1_subscription, "W2": _w2_subscription, "W3": _w3_subscription}
_NOTIFICATION: Final = {"W1": _w1_notification, "W2": _w2_notification, "W3": _w3_notification}
WORKLOADS: Final = tuple(_SUBSCRIPTION)


def _checked(workload: str) -> str:
    if workload not in WORKLOADS:
        raise BadValueError(f"unknown workload {shown(workload)}: use one of {', '.join(WORKLOADS)}")
    return workload


def subscriptions(workload: str, count: int, seed: int = 1) -> list[Conjunct]:
    """Conjunctions, each a list of (attribute, operator, value)."""
    make, rng = _SUBSCRIPTION[_checked(workload)], random.Random(f"{workload}-s-{seed}")
    return [make(rng) for _ in range(count)]


def notifications(workload: str, count: int, seed: int = 1) -> list[Attributes]:
    make, rng = _NOTIFICATION[_checked(workload)], random.Random(f"{workload}-e-{seed}")
    return [make(rng) for _ in range(count)]


def filters(workload: str, count: int, seed: int = 1) -> list[Filter]:
    """The subscriptions as filters."""
    return [Filter.of(*constraints) for constraints in subscriptions(workload, count, seed)]
