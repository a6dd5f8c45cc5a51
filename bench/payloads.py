"""A size comes in, JSON-like records of exactly that size go out, the same ones in every run."""

from __future__ import annotations

import json
import random

WORDS = (
    "order",
    "payment",
    "invoice",
    "customer",
    "shipment",
    "returned",
    "pending",
    "accepted",
    "declined",
    "warehouse",
    "basket",
    "refund",
    "voucher",
    "discount",
    "courier",
    "address",
    "street",
    "country",
    "currency",
    "partner",
    "account",
    "session",
)
DISTINCT = 10_000


def json_line(number: int, size: int, rng: random.Random) -> bytes:
    """A JSON object of exactly `size` bytes: part random, part words, as real events are."""
    event: dict[str, object] = {"id": f"{rng.getrandbits(64):016x}", "n": number}
    if size >= 200:
        event |= {
            "user": rng.randrange(1_000_000),
            "ts": 1_700_000_000_000 + rng.randrange(10**9),
            "amount": round(rng.random() * 1000, 2),
            "kind": rng.choice(WORDS),
            "trace": f"{rng.getrandbits(128):032x}",
        }
    event["text"] = ""
    room = size - len(json.dumps(event, separators=(",", ":")))
    words: list[str] = []
    length = 0
    while length <= room:
        words.append(f"{rng.getrandbits(24):06x}" if rng.random() < 0.2 else rng.choice(WORDS))
        length += len(words[-1]) + 1
    event["text"] = " ".join(words)[:room]
    return json.dumps(event, separators=(",", ":")).encode()


def payloads(size: int, distinct: int = DISTINCT) -> list[bytes]:
    rng = random.Random(size)
    return [json_line(number, size, rng) for number in range(distinct)]
