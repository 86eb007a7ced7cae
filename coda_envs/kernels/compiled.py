"""How a kernel is compiled: for one signature, cached on disk, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba import types
from numba.extending import register_jitable

from coda_envs.errors import CodaError

P = ParamSpec("P")
R = TypeVar("R")

WHOLE = types.int64
REAL = types.float64
NOTHING = types.void
TRUTH = types.boolean


def read(number: Any, ndim: int) -> types.Array:
    """An array that a kernel only reads: of any strides, writeable or not."""
    return types.Array(number, ndim, "A", readonly=True)


def write(number: Any, ndim: int) -> types.Array:
    """An array that a kernel writes into: of any strides."""
    return types.Array(number, ndim, "A")


def kernel(result: Any, *arguments: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function for these types and no others, or read it from numba's cache.

    The cache lies beside the source file, or where that cannot be written in the user's cache
    folder, or where ``NUMBA_CACHE_DIR`` says. It is stale when that one file has changed: a kernel
    may call helpers of its own file only, and gets the constants of others as arguments. In a
    kernel a division by zero gives infinity or NaN, as in NumPy.

    Raises :class:`CodaError` where no folder for the cache can be written.
    """

    def compiled(function: Callable[P, R]) -> Callable[P, R]:
        try:
            dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        except RuntimeError as error:
            raise CodaError(
                f"the compiled loops of {function.__module__} cannot be cached: {error}.",
                allowed="a folder that can be written, beside the package or for the user's caches",
                remedy="set the variable NUMBA_CACHE_DIR to a folder that can be written",
            ) from error
        dispatcher.compile(result(*arguments))
        # Arrays of other types are an error, not a reason to compile for seconds.
        dispatcher.disable_compile()
        return cast(Callable[P, R], dispatcher)

    return compiled


def helper(function: Callable[P, R]) -> Callable[P, R]:
    """A function that kernels of the same file call."""
    jitable: Callable[P, R] = register_jitable(error_model="numpy")(function)
    return jitable
