"""Unknown parameters: chosen by path, mapped to unconstrained coordinates z in which an estimator moves.

| transform | value(z) | for |
|---|---|---|
| log | start-signed exp(z) | positive quantities |
| sinh | start sinh(z), z > 0 | quantities that may be zero: linear below their start, exponential above it |
| identity | scale z | offsets, angles, biases |
| box | lower + (upper - lower) / (1 + exp(-z)) | quantities with two hard ends |
| network | z | weights of learned friction, all of one network |
| inertia | J = tr(S) 1 - S, S = L L^T, z = (log diag L, rest of L) | six numbers of one body, physically consistent |
| moments | see `moments` | two or three principal moments of one body, physically consistent |
"""

import dataclasses
import itertools
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiled import compiled
from .._typing import AnyArray, Array, Float
from ..math.blocks import joined, unstacked
from ..scene.expression import Expression
from ..system import Params, System, locate, put
from . import moments

_NOTHING = 1e-6  # of the start of a `sinh` parameter: where it ends, small but with a sign
INERTIA_NAMES = ("xx", "yy", "zz", "xy", "xz", "yz")


@dataclasses.dataclass(frozen=True)
class Free:
    """One unknown: `path` as in the scene; of several numbers with transform `inertia` (`bodies.NAME.inertia`),
    `network` (`joints.NAME.friction.learned.weights`) or `moments` (`parts` of `bodies.NAME.inertia`, among xx, yy and
    zz; its start is all three).
    """

    path: str
    start: float | tuple[float, ...]
    lower: float = -np.inf
    upper: float = np.inf
    transform: str = "log"
    prior_sd: float | None = None  # in units of z: relative for `log` and `sinh`, the parameter's own for `identity`
    parts: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.parts or self.start) if isinstance(self.start, tuple) else 1

    @property
    def size_of_start(self) -> int:
        return len(self.start) if isinstance(self.start, tuple) else 1

    @property
    def paths(self) -> tuple[str, ...]:
        """Of every number."""
        if not isinstance(self.start, tuple):
            return (self.path,)
        names = self.parts or (INERTIA_NAMES if self.transform == "inertia" else range(self.size))
        return tuple(f"{self.path}.{name}" for name in names)


@dataclasses.dataclass(frozen=True)
class Tie:
    """A number that follows from unknowns and earlier ties; `known`: what else its expression names, with values."""

    path: str
    expression: Expression
    known: tuple[tuple[str, float], ...] = ()


class ParameterMap(eqx.Module):
    """The unknowns of an identification, in order, and the map z -> Params. Their numbers (starts, bounds, priors) are
    an array: a program that maps z serves others as well. Without a system its values belong to no scene.

    `ties`: what follows from the unknowns, each after those that it needs.
    """

    system: System | None = eqx.field(static=True)
    kinds: tuple[Free, ...] = eqx.field(static=True)  # the unknowns without their numbers
    expressions: tuple[tuple[str, Expression, tuple[str, ...]], ...] = eqx.field(static=True)  # and what they know
    numbers: Float[AnyArray, " n"]  # of every unknown, see `_numbers`; then what is known of every tie

    def __init__(self, system: System | None, free: tuple[Free, ...], ties: tuple[Tie, ...] = ()):
        self.system, self.kinds = system, tuple(map(_without_numbers, free))
        self.expressions = tuple((t.path, t.expression, tuple(name for name, _ in t.known)) for t in ties)
        known = [value for t in ties for _, value in t.known]
        self.numbers = np.array([x for f in free for x in _numbers(f)] + known, dtype=float)

    @property
    def free(self) -> tuple[Free, ...]:
        """The unknowns with their numbers; not in traced code."""
        return tuple(_with_numbers(kind, x) for kind, x in self._each())

    @property
    def ties(self) -> tuple[Tie, ...]:
        """What follows from them; not in traced code."""
        known = iter(self._known())
        return tuple(Tie(p, e, tuple((name, float(next(known))) for name in names)) for p, e, names in self.expressions)

    def _each(self) -> Iterator[tuple[Free, AnyArray]]:
        """Every unknown without and its numbers."""
        i = 0
        for kind in self.kinds:
            yield kind, self.numbers[i : i + _EACH + kind.size_of_start]
            i += _EACH + kind.size_of_start

    def _known(self) -> AnyArray:
        return self.numbers[sum(_EACH + kind.size_of_start for kind in self.kinds) :]

    @property
    def size(self) -> int:
        return sum(kind.size for kind in self.kinds)

    @property
    def unknown_paths(self) -> tuple[str, ...]:
        """One path per natural value of an unknown."""
        return tuple(path for kind in self.kinds for path in kind.paths)

    @property
    def paths(self) -> tuple[str, ...]:
        """One path per natural value, in the order of `values`: unknowns, then what is tied to them."""
        return (*self.unknown_paths, *(path for path, _, _ in self.expressions))

    def start(self) -> np.ndarray:
        """z of the start values."""
        return self.encode([f.start for f in self.free])

    def encode(self, values: list) -> np.ndarray:
        """z of natural values, one entry (six numbers of an inertia, three of moments) per unknown."""
        z: list[float] = []
        for f, value in zip(self.free, values, strict=True):
            if f.transform == "inertia":
                z += _inertia_to_z(np.asarray(value, dtype=float))
                continue
            if f.transform == "network":
                z += [float(weight) for weight in value]
                continue
            if f.transform == "moments":
                z += moments.encode(f.parts, f.start, value)  # type: ignore[arg-type]
                continue
            v = float(value)
            if f.transform == "log":
                if v * float(f.start) <= 0:  # type: ignore[arg-type]
                    raise ValueError(f"{f.path}: a log parameter keeps the sign of its start and is not zero, got {v}")
                z.append(float(np.log(abs(v))))
            elif f.transform == "sinh":
                if not v >= 0 < float(f.start):  # type: ignore[arg-type]
                    raise ValueError(f"{f.path}: a sinh parameter starts above zero and is not negative, got {v}")
                z.append(float(np.arcsinh(v / _scale(f))))
            elif f.transform == "box":
                t = (v - f.lower) / (f.upper - f.lower)
                z.append(float(np.log(t / (1 - t))))
            else:
                z.append(v / _scale(f))
        return np.array(z)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of z."""
        lower, upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        i = 0
        for f in self.free:
            if f.transform == "log":
                ends = sorted(abs(b) for b in (f.lower, f.upper) if np.isfinite(b) and b * float(f.start) > 0)  # type: ignore[arg-type]
                if float(f.start) > 0:  # type: ignore[arg-type]
                    lower[i] = np.log(f.lower) if f.lower > 0 else -np.inf
                    upper[i] = np.log(f.upper) if np.isfinite(f.upper) else np.inf
                elif ends:
                    lower[i] = np.log(-f.upper) if f.upper < 0 else -np.inf
                    upper[i] = np.log(-f.lower) if np.isfinite(f.lower) else np.inf
            elif f.transform == "sinh":
                ends = np.array([f.lower, f.upper]) / _scale(f)
                lower[i], upper[i] = np.arcsinh(np.maximum(ends, _NOTHING))
            elif f.transform == "moments":
                lower[i : i + f.size], upper[i : i + f.size] = moments.bounds(f.parts)
            elif f.transform == "identity":
                lower[i], upper[i] = f.lower / _scale(f), f.upper / _scale(f)
            i += f.size
        return lower, upper

    def prior_weight(self, weakest: float = 1e-3) -> np.ndarray:
        """1 / sd of the prior of every z; a weak default keeps the reduced matrix regular."""
        sd = [f.prior_sd for f in self.free for _ in range(f.size)]
        return np.array([unit / s if s else weakest for unit, s in zip(self.prior_units(), sd, strict=True)])

    def prior_units(self) -> np.ndarray:
        """What one step of every z is in the units of a `prior_sd`."""
        # a step of `sinh` is one of the logarithm times sqrt(2) where it starts
        unit = {"sinh": np.sqrt(2.0)}
        return np.array(
            [
                _scale(f) if f.transform == "identity" else unit.get(f.transform, 1.0)
                for f in self.free
                for _ in range(f.size)
            ]
        )

    def relative_steps(self, z: AnyArray) -> np.ndarray:
        """What a step of the logarithm of a value is in each z; one for what has no logarithm."""
        curved = np.array([f.transform == "sinh" for f in self.free for _ in range(f.size)], dtype=bool)
        return np.where(curved, np.tanh(z), 1.0)

    def values(self, z: Float[Array, " p"]) -> Float[Array, " values"]:
        """Natural values (SI) of z, in the order of `paths`."""
        out: list[Array] = []
        i = k = 0  # in z, in `numbers`
        for several, group in itertools.groupby(self.kinds, lambda f: isinstance(f.start, tuple)):
            kinds = list(group)
            if not several:  # a run of single numbers at once
                n = len(kinds)
                numbers = jnp.reshape(jnp.asarray(self.numbers[k : k + n * (_EACH + 1)]), (n, _EACH + 1))
                out.append(_single_numbers([f.transform for f in kinds], numbers, z[i : i + n]))
                i, k = i + n, k + n * (_EACH + 1)
                continue
            for f in kinds:
                start, part = self.numbers[k + _EACH : k + _EACH + f.size_of_start], z[i : i + f.size]
                if f.transform == "inertia":
                    out.append(_z_to_inertia(part))
                elif f.transform == "network":
                    out.append(part)
                else:
                    out.append(moments.values(f.parts, jnp.asarray(start), part))
                i, k = i + f.size, k + _EACH + f.size_of_start
        unknown = joined(out) if out else jnp.zeros(0, dtype=z.dtype)
        if not self.expressions:
            return unknown
        found = dict(zip(self.unknown_paths, unstacked(unknown), strict=True))
        known, tied = iter(self._known()), []
        for path, expression, names in self.expressions:
            given = {name: next(known) for name in names}
            found[path] = jnp.asarray(expression.value(found | given), dtype=z.dtype)
            tied.append(found[path])
        return jnp.concatenate([unknown, jnp.stack(tied)])

    def apply(self, params: Params, z: Float[Array, " p"]) -> Params:
        """`params` with the unknowns replaced."""
        assert self.system is not None
        return put(params, [locate(self.system, path) for path in self.paths], self.values(z))


def _single_numbers(transforms: list[str], numbers: Float[Array, "n 5"], z: Float[Array, " n"]) -> Float[Array, " n"]:
    """Values of unknowns that are one number each, by one expression for each transform."""
    scale, lower, upper, start = (numbers[:, k] for k in (0, 1, 2, _EACH))
    laws = {
        "identity": lambda z: scale * z,
        "log": lambda z: jnp.sign(start) * jnp.exp(z),
        "sinh": lambda z: scale * jnp.sinh(z),
        "box": lambda z: lower + (upper - lower) * jax.nn.sigmoid(z),
    }
    out = z
    for name in dict.fromkeys(transforms):
        mine = np.array([transform == name for transform in transforms])
        out = laws[name](z) if mine.all() else jnp.where(mine, laws[name](jnp.where(mine, z, 0.0)), out)
    return out


_EACH = 4  # numbers of an unknown, and its starts


def _numbers(f: Free) -> list[float]:
    """Scale, bounds, sd of the prior, starts."""
    starts = f.start if isinstance(f.start, tuple) else (f.start,)
    scale = 1.0 if isinstance(f.start, tuple) else _scale(f)
    return [scale, f.lower, f.upper, np.nan if f.prior_sd is None else f.prior_sd, *starts]


def _scale(f: Free) -> float:
    """Step unit of an identity coordinate: the start value; where that is zero the prior's width, or one."""
    assert isinstance(f.start, float | int)
    return abs(f.start) or f.prior_sd or 1.0


def _without_numbers(f: Free) -> Free:
    start = (0.0,) * len(f.start) if isinstance(f.start, tuple) else float(np.sign(f.start))
    return Free(f.path, start, 0.0, 0.0, f.transform, None, f.parts)


def _with_numbers(kind: Free, numbers: AnyArray) -> Free:
    _, lower, upper, sd, *starts = np.asarray(numbers).tolist()
    start = tuple(starts) if isinstance(kind.start, tuple) else starts[0]
    return Free(kind.path, start, lower, upper, kind.transform, None if np.isnan(sd) else sd, kind.parts)


@compiled
def natural_values(shared: ParameterMap, z: Float[Array, " p"]) -> tuple[Float[Array, " values"], Array]:
    """Natural values of z and their Jacobian."""
    return shared.values(z), jax.jacfwd(shared.values)(z)


def values_and_sd(shared: ParameterMap, z: AnyArray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural values of z and their standard deviations, from the covariance of z."""
    if not shared.size:
        return np.zeros(0), np.zeros(0)
    value, jac = map(np.asarray, natural_values(shared, z))
    unknown = np.isinf(np.diag(covariance))  # of these nothing is known
    known = np.where(unknown[:, None] | unknown, 0.0, covariance)
    with np.errstate(over="ignore", invalid="ignore"):  # hardly more is known of some
        variance = np.diag(jac @ known @ jac.T)
    beyond = np.isnan(variance) & np.all(np.isfinite(known))  # the difference of two such squares
    sd = np.sqrt(np.where(beyond, np.inf, np.maximum(variance, 0.0)))
    return value, np.where(np.any(jac[:, unknown] != 0, axis=1), np.inf, sd)


def _inertia_to_z(i6: np.ndarray) -> list[float]:
    """log-Cholesky coordinates of the second-moment matrix S = tr(J)/2 - J."""
    xx, yy, zz, xy, xz, yz = i6
    J = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    L = np.linalg.cholesky(np.trace(J) / 2 * np.eye(3) - J)
    d = np.diag(L)
    return [*np.log(d), L[1, 0] / d[0], L[2, 0] / d[0], L[2, 1] / d[1]]


def _z_to_inertia(z: Float[Array, " 6"]) -> Float[Array, " 6"]:
    a, b, c = jnp.exp(z[0]), jnp.exp(z[1]), jnp.exp(z[2])
    L = jnp.stack(
        [
            jnp.stack([a, 0 * a, 0 * a]),
            jnp.stack([z[3] * a, b, 0 * a]),
            jnp.stack([z[4] * a, z[5] * b, c]),
        ]
    )
    S = L @ L.T
    J = jnp.trace(S) * jnp.eye(3, dtype=z.dtype) - S
    return jnp.stack([J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]])
