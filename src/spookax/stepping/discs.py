"""Dry friction of the two slides of a joint as one disc (`System.discs`), not a box that is turned with the axes.

The rows of both say x = z / max(1, |z|), z = (F / F_max) y with y = -(b v) / v_creep: the impulse (F_1 x_1, F_2 x_2)
lies in an ellipse with the half axes F and is the one of these that takes most energy, beyond the creep. Where both
levels are one it is a disc and its axes do not matter. That is the cone of a contact at a given normal impulse.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool, Float
from ..constraints import Rows
from ..math.blocks import sums, take
from ..math.product import matvec
from ..system import System
from . import saddle


class Bounded(NamedTuple):
    """x of the rows with bounds, which of them are free, and of discs how fast x grows with y."""

    x: Float[Array, " boxes"]
    free: Bool[Array, " boxes"]  # no row of a disc is
    slope: Float[Array, "discs 2 2"]


def at_bounds(system: System, rows: Rows, force: Float[Array, " boxes"], y: Float[Array, " boxes"]) -> Bounded:
    """What the rows answer where x = `y` would fulfil each by itself; `force`: their impulses per x."""
    box = rows.box
    x, free = jnp.clip(y, box.lower, box.upper), (y > box.lower) & (y < box.upper)
    if not system.discs:
        return Bounded(x, free, jnp.zeros((0, 2, 2), dtype=y.dtype))
    pairs = np.array(system.discs)
    part = _parts(system, force)
    z = part * y[pairs]
    square = jnp.sum(z * z, axis=1, keepdims=True)
    slides = square > 1
    size = jnp.sqrt(jnp.where(slides, square, 1.0))
    held, one = z / size, jnp.eye(2, dtype=y.dtype)[None]
    across = (one - held[:, :, None] * held[:, None, :]) / size[:, :, None]
    slope = jnp.where(slides[:, :, None], across, one) * part[:, None, :]
    return Bounded(x.at[pairs].set(held, unique_indices=True), free.at[pairs].set(False, unique_indices=True), slope)


def near(system: System, rows: Rows, force: Float[Array, " boxes"], v: Float[Array, "bodies 6"]) -> Bounded:
    """What the rows answer to the new velocity `v`."""
    return at_bounds(system, rows, force, -saddle.box_rates(system, rows, v) / rows.box.slack)


def along(system: System, slope: Float[Array, "discs 2 2"], change: Float[Array, " boxes"]) -> Float[Array, " boxes"]:
    """Changes of y with those of discs replaced by the changes of their x."""
    if not system.discs:
        return change
    pairs = np.array(system.discs)
    return change.at[pairs].set(matvec(slope, change[pairs]), unique_indices=True)


def shapes(
    system: System, rows: Rows, force: Float[Array, " boxes"], v: Float[Array, "bodies 6"]
) -> Float[Array, "discs 2 2"]:
    """How x of the rows of every disc changes with their F: with the shape of the ellipse."""
    pairs = np.array(system.discs, dtype=int).reshape(-1, 2)
    columns = []
    for one in pairs.T:
        way = jnp.zeros_like(force).at[one].set(1.0, unique_indices=True)
        columns.append(jax.jvp(lambda force: near(system, rows, force, v).x, (force,), (way,))[1][pairs])
    return jnp.stack(columns, axis=2)


def reshaped(system: System, shape: Float[Array, "discs 2 2"], force: Float[Array, " boxes"]) -> Float[Array, " boxes"]:
    """Changes of x by those of F, zero but in discs; `shape`: of `shapes`."""
    places = [box for pair in system.discs for box in pair]
    change = matvec(shape, take(force, places).reshape(-1, 2)).reshape(-1)
    return sums(change, [[n for n, at in enumerate(places) if at == box] for box in range(len(system.boxes))])


def of_discs(system: System) -> Bool[np.ndarray, " boxes"]:
    """Which rows with bounds are of discs."""
    return np.isin(np.arange(len(system.boxes)), np.array(system.discs, dtype=int))


def _parts(system: System, force: Float[Array, " boxes"]) -> Float[Array, "discs 2"]:
    """F / F_max of both rows; zero where there is no friction."""
    both = force[np.array(system.discs)]
    most = jnp.max(both, axis=1, keepdims=True)
    return both / jnp.where(most > 0, most, 1.0)
