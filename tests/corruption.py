"""Ways to spoil a scene and its file, drawn from a generator, and a guard against hanging."""

from __future__ import annotations

import copy
import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import yaml

from coda_envs.factor import ContinuousFactor
from coda_envs.family import TaskFamily
from coda_envs.scene import MAX_BYTES, Scene


@contextmanager
def limited(seconds: float = 10.0) -> Iterator[None]:
    """Fail the test if the inside takes more of this process's time on the processor."""

    def hung(*_: Any) -> None:
        pytest.fail(f"it took more than {seconds} s")

    # Not the clock on the wall, which a busy machine and pytest's own time limit need.
    before = signal.signal(signal.SIGVTALRM, hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


# Values and edits ------------------------------------------------------------------------------

#: Values that no factor takes.
WRONG: tuple[Any, ...] = (
    None, True, False, math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400, 10**6000, "", "left",
    "\0", "\ud800", "x" * 5000, b"bytes", (), [], [0.1], {}, {"x": 1.0}, 1j, np.zeros(2),
    np.float32(1e30), np.int64(10**9), object(),
)  # fmt: skip
#: Paths that no family has.
UNKNOWN = (
    "", ".", "..", "spatial", "spatial.target", "spatial.target.xx", "spatial.target.x.y", "task",
    "task.", "TASK.DISTRACTORS", "__class__", "spatial.target.x ", "\ud800", "ä" * 3000,
    "spatial/target/x",
)  # fmt: skip


def pick(rng: np.random.Generator, choices: Any) -> Any:
    """One of a sequence, the very object."""
    return choices[int(rng.integers(len(choices)))]


def random_edit(rng: np.random.Generator, family: TaskFamily, at: Scene) -> tuple[str, Any]:
    """A path and a value: mostly of a factor that the scene has, mostly one it can take."""
    paths = list(family.space.by_path)
    kind = rng.random()
    if kind < 0.05:
        return pick(rng, UNKNOWN), pick(rng, (0.1, "red", 1))
    # Of all factors, a scene may have some and lack others.
    path = pick(rng, paths if kind < 0.2 else list(at.values))
    if rng.random() < 0.15:
        return path, pick(rng, WRONG)
    factor = family.space[path]
    if not isinstance(factor, ContinuousFactor):
        return path, pick(rng, (*factor.choices, *factor.choices, "crimson", 99, -1, 1.0, 0.5))
    low, high = factor.limits
    beyond = (high - low) * rng.exponential() + 1e-6
    return path, pick(
        rng, (float(rng.uniform(low, high)),) * 5 + (low, high, 0, 1, low - beyond, high + beyond)
    )


# Files -----------------------------------------------------------------------------------------

Bytes = Callable[[np.random.Generator, bytes], bytes]


def _cut(rng: np.random.Generator, content: bytes) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def _flip(rng: np.random.Generator, content: bytes) -> bytes:
    spoilt = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        spoilt[int(rng.integers(len(spoilt)))] ^= 1 << int(rng.integers(8))
    return bytes(spoilt)


def _drop(rng: np.random.Generator, content: bytes) -> bytes:
    at = int(rng.integers(len(content)))
    return content[:at] + content[at + int(rng.integers(1, 30)) :]


def _insert(rng: np.random.Generator, content: bytes) -> bytes:
    at = int(rng.integers(len(content)))
    junk = (b"\0", b"\t", b"\xff\xfe", b": ", b"- ", b"*a", b"&a ", b"!!python/none ", b"'", b"{",
            b"[" * 3000, b"\x1b[2J", b"%YAML 9", b"---\n", b"...", b"<<: ", b"? ", b"\r",
            rng.bytes(20))  # fmt: skip
    return content[:at] + pick(rng, junk) + content[at:]


def _swap_lines(rng: np.random.Generator, content: bytes) -> bytes:
    lines = content.split(b"\n")
    one, two = rng.integers(len(lines), size=2)
    lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


def _repeat_line(rng: np.random.Generator, content: bytes) -> bytes:
    lines = content.split(b"\n")
    one = int(rng.integers(len(lines)))
    return b"\n".join([*lines[: one + 1], *lines[one:]])


def _reindent(rng: np.random.Generator, content: bytes) -> bytes:
    lines = content.split(b"\n")
    one = int(rng.integers(len(lines)))
    lines[one] = pick(rng, (b" ", b"\t", b"    ")) + lines[one]
    return b"\n".join(lines)


def _recode(rng: np.random.Generator, content: bytes) -> bytes:
    text = content.decode().replace("the", "thé")
    return text.encode(pick(rng, ("utf-16", "utf-32", "latin-1", "utf-8-sig", "utf-7", "cp037")))


def _replace_all(rng: np.random.Generator, content: bytes) -> bytes:
    """Another file altogether."""
    bomb = b"a: &a [x, x]\n" + b"".join(
        b"%c: &%c [*%c, *%c]\n" % (n, n, n - 1, n - 1) for n in range(ord("b"), ord("z"))
    )
    merge = b"a: &a {x: 1}\n" + b"".join(
        b"%c: &%c {<<: [*%c, *%c]}\n" % (n, n, n - 1, n - 1) for n in range(ord("b"), ord("z"))
    )
    return pick(rng, (
        b"", b"\0" * 100, b"null", b"3", b"[]", b"{}", b"family", b"{" * 4000, b"[" * 60_000,
        b"- " * 30_000, b"a: " * 20_000, b"? " * 20_000, b"[" + b"1," * 30_000 + b"]",
        b"x" * (MAX_BYTES + 1), content + b"#" * MAX_BYTES, bomb, merge, bomb + content,
        b"family: &f pick-place\ntask: *f\nspatial: *f\nattributes: *f", b"a: &a\n  b: *a",
        b"family: 0x" + b"f" * 9000, b"family: " + b"9" * 9000, b"1:1:1:1:1", b"!!set {a, b}",
        b"!!binary x", b"!!omap [a: 1]", b"!!timestamp 2020-01-01", b"2020-01-01", b"---\n---\n",
        b"!!python/object/apply:os.system ['true']", content + b"---\n" + content, rng.bytes(500),
    ))  # fmt: skip


SPOIL_BYTES: tuple[Bytes, ...] = (
    _cut, _flip, _drop, _insert, _swap_lines, _repeat_line, _reindent, _recode, _replace_all,
)  # fmt: skip

#: What a file can hold in place of a value.
FOREIGN: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**400, 1e308, math.nan, math.inf, "", "x" * 5000, "\0", "0.1", "1e3",
    "red", [], {}, [[]], {"x": 1.0}, [0.1], {"": {"": {"": 1}}}, {1: 2}, "2020-01-01", "~", "yes",
)  # fmt: skip


def _spoil_data(rng: np.random.Generator, data: dict[Any, Any]) -> None:
    """Drop, replace, rename or add an entry somewhere, perhaps in what was put there before."""
    part: Any = data
    while part:
        key = pick(rng, list(part))
        if not isinstance(part[key], dict) or rng.random() < 0.15:
            break
        part = part[key]
    else:
        return
    how = int(rng.integers(4))
    if how == 0:
        del part[key]
    elif how == 1:
        part[key] = copy.deepcopy(pick(rng, FOREIGN))
    elif how == 2:
        part[f"{key}_"] = part.pop(key)
    else:
        name = pick(rng, ("new", "", "x" * 3000, 3, None, "\x1b[2J"))
        part[name] = copy.deepcopy(pick(rng, FOREIGN))


def corrupt_file(rng: np.random.Generator, at: Scene) -> bytes:
    """A scene file with something wrong, or rarely nothing after all."""
    data = at.to_dict()
    if rng.random() < 0.5:
        for _ in range(int(rng.integers(1, 4))):
            _spoil_data(rng, data)
        if rng.random() < 0.5:
            return yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass")
        return json.dumps(data).encode()
    content = at.to_yaml().encode() if rng.random() < 0.7 else json.dumps(data).encode()
    return pick(rng, SPOIL_BYTES)(rng, content)
