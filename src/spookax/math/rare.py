"""What is seldom needed, left out of a batch that does not need it.

Under `jax.vmap` a `jax.lax.cond` whose condition differs from entry to entry becomes a selection: both sides are
computed for all, always. Here the condition of the batch is whether any entry needs the work, so that it stays a
branch, and every entry keeps what it would have by itself.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from .._typing import Array, Bool


def where_needed(needed: Bool[Array, ""], work: Callable[..., Any], otherwise: Callable[..., Any], *args: Any) -> Any:
    """`work(*args)` where `needed`, else `otherwise(*args)`, both of the same form."""

    def for_some(*args: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(needed, a, b), work(*args), otherwise(*args))

    return jax.lax.cond(_anywhere.bind(jnp.asarray(needed)), for_some, otherwise, *args)


def _batched(args: tuple[Array], axes: tuple[int]) -> tuple[Array, None]:
    return _anywhere.bind(jnp.any(args[0], axis=axes[0])), None


_anywhere = Primitive("spookax_anywhere")
_anywhere.def_impl(lambda needed: needed)
_anywhere.def_abstract_eval(lambda needed: needed)
batching.primitive_batchers[_anywhere] = _batched
mlir.register_lowering(_anywhere, lambda _, needed: [needed])
