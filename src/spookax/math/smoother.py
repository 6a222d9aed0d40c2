"""Smoothing: what a filter left behind of its steps, and what all readings say of its states.

A state is known as m + S xi with xi ~ N(0, 1) before later readings are. What these say of it can be kept as rows on
the state, `InformationRows`, whose own noise is N(0, 1); to pass a step they have to get rid of its process noise. Or
as adjoint rows G (x - m) + v = g that are white together with what is not known of x, G P G' + cov(v) = 1 (Bryson and
Frazier): process noise is in them already, a step multiplies them and a reading adds its innovation. Given them

    mean = m + S Y' g,   covariance = S (1 - Y' Y) S',   Y = G S,

with fewer operations. The difference has digits as long as later readings leave a share of every variance; where they
leave less than a thousandth (at the start of a recording of which nothing is known), rows on the state take over.

Triangles of rows that say nothing have no derivative, so derivatives are those of the same numbers by information
matrices R' R, which have one whatever their rank.

**Source:** Bryson and Frazier (1963); Bierman, *Fixed interval smoothing with discrete measurements* (1973), there with
matrices G' G; information matrices: Fraser and Potter (1969).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Bool, Float
from . import small
from .sqrt_gaussian import (
    Affine,
    InformationRows,
    backward,
    combine,
    divided,
    fast_alone,
    lower,
    nothing,
    upper_beside,
)


class ReadingGains(NamedTuple):
    """What the readings of a step did to a Gaussian m, S, some readings (a group) after the other.

    With V = `said` of a group, its readings as rows in their own standard deviations given those before, and
    e = `innovation`: m becomes m + K e and an error x - m (1 - K V) (x - m).
    """

    gain: Float[Array, "groups n r"]
    said: Float[Array, "groups r n"]
    innovation: Float[Array, "groups r"]


class ForwardPass(NamedTuple):
    """What a filter leaves behind of its steps: moments, the linear models, and what the readings did.

    With `learned` the moments are the filtered ones, which asks for readings that do not see the noise of their step
    (J = 0); without they are the predicted ones. A smoother with it is faster above some four unknowns.
    """

    mean: Float[Array, "steps n"]
    factor: Float[Array, "steps n n"]
    affine: Affine
    learned: ReadingGains | None


def smoothed(
    path: ForwardPass, mean: Float[Array, " n"], factor: Float[Array, "n n"]
) -> tuple[Float[Array, "steps_1 n"], Float[Array, "steps_1 n n"]]:
    """Means and factors of all states given all readings. `mean`, `factor`: of the state where the path ends."""
    return (_from_predicted if path.learned is None else _from_filtered)(path, mean, factor)


# --- rows on the states


def _by_rows(path: ForwardPass, mean: Array, factor: Array) -> tuple[Array, Array]:
    """By rows on the states throughout."""

    def back(rows: InformationRows, now: ForwardPass) -> tuple[InformationRows, tuple[Array, Array]]:
        if now.learned is None:
            rows = backward(now.affine, rows)
            return rows, combine(now.mean, now.factor, rows)
        before = _before_the_step(now.affine, rows)
        return _with_readings(now.affine, before), _combined(now.mean, now.factor, before)

    _, found = jax.lax.scan(back, nothing(len(mean), mean.dtype), path, reverse=True)
    return _with_the_end(found, (mean, factor))


def _with_the_end(found: tuple[Array, Array], end: tuple[Array, Array]) -> tuple[Array, Array]:
    d, S = jax.tree.map(lambda a, last: jnp.concatenate([a, last[None]]), found, end)
    return d, S


def _unread(step: Affine) -> Affine:
    return step._replace(H=step.H[:0], J=step.J[:0], y=step.y[:0])


def _before_the_step(step: Affine, rows: InformationRows) -> InformationRows:
    """Rows on the state that a step leads to as rows on the state that it leaves."""
    return backward(_unread(step), rows)


def _with_readings(step: Affine, rows: InformationRows) -> InformationRows:
    """Rows on a state, and its readings."""
    both = upper_beside(jnp.column_stack(rows), jnp.column_stack([step.H, step.y]))
    return InformationRows(both[:, :-1], both[:, -1])


def _combined(mean: Array, factor: Array, rows: InformationRows) -> tuple[Array, Array]:
    """`combine`, with the factor that adjoint rows give: the old one times a lower triangle."""
    k = factor.shape[1]
    seen = jnp.column_stack([rows.R @ factor, rows.y - rows.R @ mean])
    U = upper_beside(jnp.eye(k, k + 1, dtype=mean.dtype), seen)
    T = divided(jnp.eye(k, dtype=mean.dtype), U[:, :k])
    return mean + factor @ (T @ U[:, k]), factor @ lower(T)


# --- information matrices


class _Information(NamedTuple):
    """exp(-x' matrix x / 2 + vector' x), but for a constant."""

    matrix: Float[Array, "n n"]
    vector: Float[Array, " n"]


def _by_information(path: ForwardPass, mean: Array, factor: Array) -> tuple[Array, Array]:
    """By information matrices: with the derivatives of all other ways, but half of their digits."""

    def back(later: _Information, now: ForwardPass) -> tuple[_Information, tuple[Array, Array]]:
        step = now.affine
        known = _uninformed(_unread(step) if now.learned is not None else step, later)
        S = now.factor
        unit = jnp.eye(S.shape[1], dtype=S.dtype)
        L = small.cholesky(unit + S.T @ known.matrix @ S)
        T = small.solve_lower(L, unit).T
        d = now.mean + S @ (T @ (T.T @ (S.T @ (known.vector - known.matrix @ now.mean))))
        if now.learned is None:
            return known, (d, S @ T)
        read = known.matrix + step.H.T @ step.H, known.vector + step.H.T @ step.y
        return _Information(*read), (d, S @ lower(T))

    n = len(mean)
    start = _Information(jnp.zeros((n, n), dtype=mean.dtype), jnp.zeros_like(mean))
    _, found = jax.lax.scan(back, start, path, reverse=True)
    return _with_the_end(found, (mean, factor))


def _uninformed(step: Affine, later: _Information) -> _Information:
    """What the readings of a step and everything after it say of its state: w = k - K x is the likeliest noise, and a
    sum of squares is left.
    """
    A, B, c, H, J, y = step
    now = later.vector - later.matrix @ c
    inside = jnp.eye(B.shape[1], dtype=B.dtype) + B.T @ later.matrix @ B + J.T @ J
    sides = jnp.column_stack([B.T @ later.matrix @ A + J.T @ H, B.T @ now + J.T @ y])
    found = small.solve(inside, sides, pivot=False)
    K, k = found[:, :-1], found[:, -1]
    A, H, y, now = A - B @ K, H - J @ K, y - J @ k, now - later.matrix @ (B @ k)
    return _Information(A.T @ later.matrix @ A + K.T @ K + H.T @ H, A.T @ now + K.T @ k + H.T @ y)


# --- adjoint rows


class _Adjoint(NamedTuple):
    G: Float[Array, "n n"]
    g: Float[Array, " n"]


class _Later(NamedTuple):
    """What is known from later readings: adjoint rows about the prediction at the start of a step, and about what was
    filtered there; or, instead of the latter, rows on that state.
    """

    predicted: _Adjoint
    filtered: _Adjoint
    on_state: Bool[Array, ""]


def _by_adjoints(path: ForwardPass, mean: Array, factor: Array) -> tuple[Array, Array]:
    """By adjoint rows where they have digits."""
    assert path.learned is not None
    count, n = path.mean.shape
    unit = jnp.eye(n, dtype=path.mean.dtype)
    digits = jnp.finfo(path.mean.dtype).eps ** (3 / 16)  # a power of a quarter leaves 1e-8 where ways change, this 1e-9

    def back(
        carry: tuple[_Later, tuple[Array, Array]], now: tuple[Array, Array, Array, Array, ReadingGains]
    ) -> tuple[tuple[_Later, tuple[Array, Array]], None]:
        (later, (means, factors)), (k, mean, factor, A, learned) = carry, now
        there = _Adjoint(later.predicted.G @ A, later.predicted.g)
        Y = there.G @ factor
        D = jax.lax.linalg.cholesky(unit - Y.T @ Y, symmetrize_input=False)  # NaN where a pivot is not positive

        def quick() -> tuple[_Later, Array, Array]:
            known = _Later(_with_innovations(there, learned), there, jnp.array(False))
            return known, mean + factor @ (Y.T @ there.g), factor @ D

        def slow() -> tuple[_Later, Array, Array]:
            affine, after = jax.tree.map(lambda a: a[k], path.affine), jax.tree.map(lambda a: a[k + 1], path)
            rows = jax.lax.cond(
                later.on_state,
                lambda: InformationRows(*later.filtered),
                lambda: _with_readings(after.affine, _of_state(later.filtered, after.mean, after.factor)),
            )
            before = _before_the_step(affine, rows)
            Z = before.R @ factor
            L = jax.lax.linalg.cholesky(unit + Z @ Z.T, symmetrize_input=False)
            here = _Adjoint(*_divided_by(L, before.R, before.y - before.R @ mean))
            known = jax.lax.cond(
                jnp.all(small.diagonal(L) ** 2 * digits < 1),
                lambda: _Later(_with_innovations(here, learned), here, jnp.array(False)),
                lambda: _Later(here, _Adjoint(*_with_readings(affine, before)), jnp.array(True)),
            )
            return known, *_combined(mean, factor, before)

        enough = ~later.on_state & jnp.all(small.diagonal(D) ** 2 > digits)
        later, d, S = jax.lax.cond(enough, quick, slow)
        return (later, (means.at[k].set(d), factors.at[k].set(S))), None

    none = _Adjoint(*nothing(n, mean.dtype))
    start = _Later(none, none, jnp.array(True))
    means = jnp.zeros((count + 1, n), dtype=mean.dtype).at[count].set(mean)
    factors = jnp.zeros((count + 1, n, n), dtype=mean.dtype).at[count].set(factor)
    steps = jnp.arange(count), path.mean, path.factor, path.affine.A, path.learned
    (_, (d, S)), _ = jax.lax.scan(back, (start, (means, factors)), steps, reverse=True)
    return d, S


def _with_innovations(later: _Adjoint, learned: ReadingGains) -> _Adjoint:
    """Adjoint rows about the prediction, from those about what was filtered."""
    blocks = [later]
    for gain, said, innovation in reversed(list(zip(*learned, strict=True))):
        blocks = [_Adjoint(G - (G @ gain) @ said, g) for G, g in blocks] + [_Adjoint(said, innovation)]
    both = upper_beside(*(jnp.column_stack(block) for block in blocks))
    return _Adjoint(both[:, :-1], both[:, -1])


def _of_state(later: _Adjoint, mean: Array, factor: Array) -> InformationRows:
    """Adjoint rows as rows on the state."""
    Y = later.G @ factor
    left = jnp.eye(len(Y), dtype=Y.dtype) - Y @ Y.T
    R, y = _divided_by(jax.lax.linalg.cholesky(left, symmetrize_input=False), *later)
    return InformationRows(R, y + R @ mean)


def _divided_by(L: Float[Array, "n n"], R: Float[Array, "n n"], y: Float[Array, " n"]) -> tuple[Array, Array]:
    """L^-1 R and L^-1 y for a lower triangular L, turned so that LAPACK's order of entries is ours."""
    found = jax.lax.linalg.triangular_solve(L.T, jnp.column_stack([R, y]).T).T
    return found[:, :-1], found[:, -1]


_from_predicted = fast_alone(_by_rows, _by_rows, _by_information)
_from_filtered = fast_alone(_by_rows, _by_adjoints, _by_information)
