"""Many mechanisms at once: on a CPU some at a time, and spread over the devices on which their arrays lie."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer, eval_jaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._platform import by_platform

PIECE = 8  # environments that step together: what they need stays in the caches of a core

_AXIS = "batch"  # name of the leading axis where it is spread


def spread(tree: Any, devices: Sequence[Any] | None = None) -> Any:
    """The arrays of a tree with their leading axes spread evenly over devices, all of `jax.devices()` if left out.

    What takes such arrays (`rollouts`, `reset_many`, `step_many`, `play`) runs where they lie: every device takes its
    share in a loop of its own, which waits for no other, and what comes out lies there, too.

    **Raises:** `ValueError` for a leading axis that the number of devices does not divide.
    """
    chosen = jax.devices() if devices is None else list(devices)
    for leaf in jax.tree.leaves(tree):
        size = jnp.shape(leaf)[0] if jnp.ndim(leaf) else 0
        if not size or size % len(chosen):
            raise ValueError(
                f"`spread`: {size or 'no'} entries for {len(chosen)} devices. Take a multiple of that number"
            )
    return jax.device_put(tree, NamedSharding(Mesh(chosen, (_AXIS,)), PartitionSpec(_AXIS)))


def spread_of(tree: Any) -> Mesh | None:
    """The devices over which `spread` laid arrays of a tree; none where all lie on one."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer):
            lies = leaf.sharding
            if isinstance(lies, NamedSharding) and lies.mesh.size > 1 and _AXIS in lies.mesh.axis_names:
                return lies.mesh if isinstance(lies.mesh, Mesh) else None
    return None


def in_pieces(one: Callable[..., Any], batch: tuple[Any, ...], over: Mesh | None = None) -> Any:
    """`jax.vmap(one)(*batch)`, on a CPU of some at a time, as many as the caches of a core hold; with `over` every
    device by itself.
    """
    if over is None:
        return _in_pieces(one, batch)
    count = over.size
    share = jax.tree.map(lambda a: jax.ShapeDtypeStruct((a.shape[0] // count, *a.shape[1:]), a.dtype), batch)
    # what `one` takes along becomes an argument: derivatives of it inside would else mix both views of the devices
    program, form = jax.make_jaxpr(lambda *batch: _in_pieces(one, batch), return_shape=True)(*share)
    own, all_alike = PartitionSpec(_AXIS), PartitionSpec()
    by_each = jax.shard_map(
        lambda taken, given: eval_jaxpr(program.jaxpr, taken, *given),
        mesh=over,
        in_specs=(all_alike, own),
        out_specs=own,
        check_vma=False,  # of what the loops of a step carry
    )
    return jax.tree.unflatten(jax.tree.structure(form), by_each(program.consts, jax.tree.leaves(batch)))


def _in_pieces(one: Callable[..., Any], batch: tuple[Any, ...]) -> Any:
    many = jax.vmap(jax.jit(lambda *entry: one(*entry)))  # traced once for all sizes
    size = jax.tree.leaves(batch)[0].shape[0]
    if size <= PIECE:
        return many(*batch)
    whole = size // PIECE * PIECE

    def pieces(*batch: Any) -> Any:
        cut = jax.tree.map(lambda a: a[:whole].reshape(whole // PIECE, PIECE, *a.shape[1:]), batch)
        out = jax.lax.map(lambda piece: many(*piece), cut)
        out = jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), out)
        if whole == size:
            return out
        rest = many(*jax.tree.map(lambda a: a[whole:], batch))
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), out, rest)

    return by_platform(*batch, cpu=pieces, default=many)
