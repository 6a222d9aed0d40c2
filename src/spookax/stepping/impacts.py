"""Impacts on stops with restitution: Newton's law on the rate of the axis, with every joint held.

A stop is hit when its axis is beyond it and still goes on, faster than weight alone makes it in two steps (else a body
at rest would bounce for ever). All that are hit in a step are one problem: impulses x that push off only, with
rate+ >= -restitution rate- at each, complementary to them, and joints, couplings and user rows that keep their rates.
Dry friction and motors have no part in it: their impulses are finite forces times no time.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Bool
from ..constraints import Prepared, Rows, axes
from ..constraints.assemble import mass_matrix, velocity
from ..constraints.boxes import elastic, reached
from ..math.blocks import take
from ..system import State, System
from . import saddle


class Impacts(NamedTuple):
    """The problem of the impacts of one step, in the form of a step's rows, and the stops that are hit."""

    rows: Rows
    hit: Bool[Array, " boxes"]


def rows(system: System, prepared: Prepared, state: State, smooth: Rows) -> Impacts:
    """`smooth`: the rows of a step from this state at rest, whose geometry and compliance are used."""
    params, v = prepared.params, velocity(state)
    at, is_stop = system.box_axes, np.array([row.kind in ("lower", "upper") for row in system.boxes])
    rate = axes.rates(system, smooth.b_A, smooth.b_B, v)
    beyond = reached(system, params, smooth.position) & is_stop
    hit = beyond & elastic(system, prepared.slow, rate)
    here = take(rate, at)
    box, zero = smooth.box, jnp.zeros_like(here)
    still = eqx.tree_at(
        lambda r: (
            *(r.D, r.kappa, r.p, r.a),
            *(r.box.force, r.box.rate, r.box.offset, r.box.lower, r.box.upper, r.box.bearing),
        ),
        smooth,
        (
            mass_matrix(params, prepared.J),
            params.armature,
            jnp.zeros_like(v),
            jnp.zeros_like(smooth.a),
            zero + 1,
            zero + 1,
            jnp.where(hit, take(params.restitution, at) * here, 0.0),
            jnp.where(beyond, box.lower, 0.0),
            jnp.where(beyond, box.upper, 0.0),
            jnp.zeros_like(box.bearing),
        ),
    )
    # of the velocity before the impact nothing changes without an impulse
    p = -saddle.balance(system, still, v, jnp.zeros_like(still.a), zero)
    a = -saddle.gaps(system, still, v)
    return Impacts(eqx.tree_at(lambda r: (r.p, r.a), still, (p, a)), hit)
