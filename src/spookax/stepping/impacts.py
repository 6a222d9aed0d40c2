"""Impacts on stops with restitution: Newton's law on the rate of the axis, with every joint held.

A stop is hit when its axis is beyond it and still goes on, faster than weight alone makes it in two steps (else a body
at rest would bounce for ever). All that are hit in a step are one problem: impulses x that push off only, with
rate+ >= -restitution rate- at each, complementary to them, and joints, couplings and user rows that keep their rates.
Dry friction, motors and the user's rows whose force is bounded have no part in it: their impulses are finite forces
times no time. Those of the user's rows without a bound push on whatever is closed, and nothing bounces off them.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._typing import Array, Bool
from ..constraints import Prepared, Rows, axes, bounded
from ..constraints.assemble import velocity
from ..constraints.boxes import elastic, reached
from ..constraints.prepared import mass_matrix
from ..math.blocks import take
from ..system import BoxKind, State, System
from . import saddle


class Impacts(NamedTuple):
    """The problem of the impacts of one step, in the form of a step's rows, and the stops that are hit."""

    rows: Rows
    hit: Bool[Array, " boxes"]


def rows(system: System, prepared: Prepared, state: State, smooth: Rows) -> Impacts:
    """`smooth`: the rows of a step from this state at rest, whose geometry and compliance are used."""
    params, v = prepared.params, velocity(state)
    rate, box, zero = axes.rates(system, smooth.b_A, smooth.b_B, v), smooth.box, jnp.zeros_like(smooth.box.offset)
    stops, own = system.boxes_of(BoxKind.lower, BoxKind.upper), system.boxes_of(BoxKind.own)
    at = [system.box_lines[i] for i in stops]
    beyond = reached(system, params, smooth.position)
    bouncing = beyond & elastic(system, prepared.slow, rate)
    acts = jnp.zeros(len(system.boxes), dtype=bool).at[stops].set(beyond)
    offset = zero.at[stops].set(jnp.where(bouncing, take(params.restitution, at) * take(rate, at), 0.0))
    if len(own):
        gap = bounded.unilateral(system)
        acts = acts.at[own].set((box.offset[own] <= 0) | ~gap)  # at rest the offset of a gap has its sign
        offset = offset.at[own].set(jnp.where(gap, 0.0, box.offset[own]))
    lower, upper = (jnp.where(acts & jnp.isinf(bound), bound, 0.0) for bound in (box.lower, box.upper))
    still = eqx.tree_at(
        lambda r: (
            *(r.D, r.kappa, r.p, r.a),
            *(r.box.force, r.box.rate, r.box.offset, r.box.lower, r.box.upper, r.box.growth),
        ),
        smooth,
        (
            mass_matrix(params, prepared.J),
            jnp.zeros_like(smooth.kappa).at[: len(system.axes)].set(params.armature),
            jnp.zeros_like(v),
            jnp.zeros_like(smooth.a),
            zero + 1,
            zero + 1,
            offset,
            lower,
            upper,
            jnp.zeros_like(box.growth),
        ),
    )
    # of the velocity before the impact nothing changes without an impulse
    p = -saddle.balance(system, still, v, jnp.zeros_like(still.a), zero)
    a = -saddle.gaps(system, still, v)
    hit = jnp.zeros(len(system.boxes), dtype=bool).at[stops].set(bouncing)
    return Impacts(eqx.tree_at(lambda r: (r.p, r.a), still, (p, a)), hit)
