"""Attacks on a server that verifies tokens."""

import itertools

from tests.attacks.attacker import Attacker, encoded, modern, post

HONEST = {"authorization": "Bearer honest"}


def _call(token: str) -> bytes:
    body, headers = modern("tools/call", {"name": "echo", "arguments": {"text": "x"}}, name="echo")
    return post(encoded(body), {**headers, "authorization": f"Bearer {token}", "connection": "close"})


async def slow(attacker: Attacker) -> None:
    """Send many tokens, for each of which the verifier takes ten seconds."""
    numbers = itertools.count()
    await attacker.repeat(500, lambda: attacker.exchange(_call(f"slow-{next(numbers)}"), wait=20))


async def one_slow(attacker: Attacker) -> None:
    """Send one such token on many connections."""
    await attacker.each(1000, _call("slow"))


async def unknown(attacker: Attacker) -> None:
    """Send tokens that are all different, and no good."""
    numbers = itertools.count()
    await attacker.repeat(20, lambda: attacker.exchange(_call(f"{next(numbers)}"), wait=2))


async def known(attacker: Attacker) -> None:
    """Send tokens that are all different, and good: each has a principal of its own."""
    numbers = itertools.count()
    await attacker.repeat(20, lambda: attacker.exchange(_call(f"good-{next(numbers)}"), wait=2))


async def long(attacker: Attacker) -> None:
    """Send tokens that are as long as a head may be."""
    numbers = itertools.count()
    await attacker.repeat(20, lambda: attacker.exchange(_call(f"{next(numbers)}" + "x" * 30_000), wait=2))


async def dots(attacker: Attacker) -> None:
    """Send what could be a JWT, of dots alone."""
    await attacker.flood(_call("." * 30_000), tasks=20)


ATTACKS = {
    "500 tokens that are slow to verify": slow,
    "1,000 connections with one token that is slow to verify": one_slow,
    "unknown tokens": unknown,
    "good tokens, each of another principal": known,
    "tokens of 30 KB": long,
    "tokens of 30,000 dots": dots,
}
