"""From a scene file to what the engine takes, with the initial state assembled."""

import os
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax._src import xla_bridge

from ._compiled import on_device, seldom_called
from ._typing import Array, Float
from .constraints import axes, bounded, contact_rows, frames
from .constraints.assemble import axis_motion, joint_rows, velocity
from .scene import Scene, SceneError, read_scene
from .scene.explain import Finding, Loc
from .scene.joint_types import free_axes
from .scene.located import Located, dotted, load_located
from .scene.row_types import row_findings
from .stepping import state_from_joints
from .stepping.start import assembly_error, closed_from
from .system import Params, State, System, build

_TRIES = 16  # to close a loop from other positions than those given
_OVERLAP = 0.05  # of the smallest length of two surfaces: more at t = 0 is a mistake
_TOLERANCE = {8: 1e-6, 4: 1e-3}  # of a closed loop, by the size of a float [m or rad]


def enable_x64() -> None:
    """Let JAX compute with 64-bit floats, which identification needs. Call it before any array is made."""
    jax.config.update("jax_enable_x64", True)


def enable_inline_calls() -> None:
    """Let programs on the CPU run in the thread that calls them, instead of handing each to another: a single step of
    `Simulator` takes half the time. Call it before any array is made.

    **Raises:** `RuntimeError` if it is too late for that.
    """
    if xla_bridge.backends_are_initialized():
        raise RuntimeError("spookax.enable_inline_calls() comes before the first array: JAX has started already")
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def load(scene: str | os.PathLike[str] | Scene, constraints: tuple[Any, ...] = ()) -> tuple[System, Params, State]:
    """Read a scene and assemble its initial state.

    **Arguments:**

    - `scene`: a scene file, or a scene that was read from one.
    - `constraints`: the user's own rows, see `spookax.constraints`.

    **Returns:** the static system; its parameters; the state at t = 0 under the scene's `initial`, with
    closed loops solved, for `rollout`. Numbers are 32-bit floats unless `enable_x64` was called.

    **Raises:** `SceneError` for whatever is wrong with the file, and for a loop that cannot be assembled: it
    names the joints of the loop and the gap that remains. Also for a joint that starts beyond its limits.
    """
    scene, located, system, params, state, position = _assembled(scene, constraints)
    found = list(_beyond_limits(scene, position))
    if found:
        raise SceneError(located.problem(finding) for finding in found)
    return system, params, state


def assemble(scene: str | os.PathLike[str]) -> State:
    """The initial state of a scene with closed loops solved, wherever its limits are: to look at it, or as the scene of
    a study, whose states come from its recordings.

    **Raises:** `SceneError` as `load`, but for the limits.
    """
    return _assembled(scene, ())[4]


def _assembled(
    scene: str | os.PathLike[str] | Scene, constraints: tuple[Any, ...]
) -> tuple[Scene, Located, System, Params, State, np.ndarray]:
    """Also the positions of the axes."""
    if isinstance(scene, Scene):
        located = Located(f"scene '{scene.name}'", {})
    else:
        scene, located = read_scene(scene), load_located(scene, error=SceneError)
    wrong = row_findings(scene, constraints)
    if wrong:
        raise SceneError(located.problem(finding) for finding in wrong)
    system, params = build(scene, constraints)
    given = {name: {"position": on_device(x.position), "rate": on_device(x.rate)} for name, x in scene.initial.items()}
    free = start_of_bodies(scene)
    state, (gaps, coupled), rows_gap, rates, position, overlap, gaps_of_own = _assemble(system, params, given, free)
    tolerance = _TOLERANCE[params.mass.dtype.itemsize]
    missed = [*_open_loops(system, [np.abs(np.asarray(gap)) for gap in gaps], tolerance)]
    missed += _missed_couplings(system, [np.asarray(gap) for gap in coupled], tolerance)
    found = [finding for finding, _ in missed]
    if found:
        found = list(_unreachable(system, params, scene, tolerance, missed)) or found
    if not found and float(rows_gap) > tolerance:
        found = [Finding(("rows",), None, f"a row of your own is violated by {float(rows_gap):.3g}", _CURE)]
    if not found:
        found = list(_cut_short(system, scene, np.asarray(gaps_of_own), tolerance))
    if not found:
        found = list(_rates_that_clash(system, scene, np.asarray(rates), tolerance))
    if not found:
        found = list(_inside_each_other(system, np.asarray(overlap), np.asarray(params.surface_size)))
    if found:
        raise SceneError(located.problem(finding) for finding in found)
    return scene, located, system, params, state, np.asarray(position)


def start_of_bodies(scene: Scene) -> dict[str, dict[str, Array]]:
    """Of bodies that no joint ties to the world, as `state_from_joints` takes it."""
    given = {name: body.initial for name, body in scene.bodies.items() if body.initial is not None}
    return {name: {k: on_device(np.array(v)) for k, v in start.model_dump().items()} for name, start in given.items()}


_CURE = (
    "Check the lengths (`at`, `child_at`) and axes of these joints; if they are right, give one joint of the "
    "loop a position under `initial` that it can reach, or all of them positions close to the closed loop."
)


@seldom_called
def _assemble(system: System, params: Params, given: dict[str, dict[str, Array]], bodies: dict[str, dict[str, Array]]):
    """State; violation of every joint and coupling, the largest of anything [m or rad]; rates and positions."""
    state = state_from_joints(system, params, given, bodies)
    kin = frames.kinematics(system, state.r, state.e, frames.geometry(system, params))
    gaps, _ = joint_rows(system, kin)
    b_A, b_B, rates, position = axis_motion(system, kin, state.near, velocity(state))
    coupled, _ = axes.coupling_rows(system, params, b_A, b_B, position)
    overlap = contact_rows.gaps(system, params, state.r, state.e)
    own = bounded.gaps(system, params, state.r, state.e)
    return state, (gaps, coupled), assembly_error(system, params, state), rates, position, overlap, own


@seldom_called
def _closed_from(system: System, params: Params, starts: Float[Array, "tries axes"]):
    def one(start: Array):
        return closed_from(system, params, dict(zip(system.axis_names(), start, strict=True)))

    return jax.vmap(one)(starts)


def _unreachable(
    system: System, params: Params, scene: Scene, tolerance: float, missed: list[tuple[Finding, list[int]]]
) -> Iterator[Finding]:
    """The position under `initial` that is farthest from where all closes, if all does close near the given ones."""
    names = system.axis_names()
    concerned = sorted({axis for _, its_axes in missed for axis in its_axes})
    given = [i for i in concerned if names[i] in scene.initial]
    if not given:
        return
    start = np.array([scene.initial[name].position if name in scene.initial else 0.0 for name in names])
    starts = np.tile(start, (_TRIES, 1))  # the first as given; of others, zero may be where a loop is stretched
    starts[1:, concerned] += np.random.default_rng(0).uniform(-1, 1, (_TRIES - 1, len(concerned)))
    closed, error = map(np.asarray, _closed_from(system, params, on_device(starts)))
    away = np.abs(closed - start)[:, given]
    best = int(np.argmin(np.where(error <= tolerance, np.max(away, axis=1), np.inf)))
    if not error[best] <= tolerance:
        return
    worst, why = given[int(np.argmax(away[best]))], missed[0][0]
    message = f"{start[worst]:g} is not met; {dotted(why.loc)}: {why.message}"
    units = {i: "rad" if system.axes[i].rotational else "m" for i in given}
    near = " and ".join(f"{names[i]} at {closed[best, i]:.4g} {units[i]}" for i in given)
    cure = f"It closes with {near}: write that, or give one joint alone a position that it can reach."
    yield Finding(("initial", names[worst], "position"), float(start[worst]), message, cure)


def _missed_couplings(system: System, gaps: list[np.ndarray], tolerance: float) -> Iterator[tuple[Finding, list[int]]]:
    """One finding per coupling (or screw) whose axes do not stand as it says, and the axes."""
    for coupling, gap in zip(system.couplings, gaps, strict=True):
        if not float(np.max(np.abs(gap))) <= tolerance:
            section, name, _ = coupling.path.split(".")
            unit = "rad" if system.axes[coupling.driven].rotational else "m"
            message = f"cannot be met at t = 0: {float(gap):.3g} {unit} remain"
            cure = "Give one of the coupled joints a position under `initial`, or positions that fit together."
            yield Finding((section, name), None, message, cure), [coupling.driver, coupling.driven]


def _open_loops(system: System, gaps: list[np.ndarray], tolerance: float) -> Iterator[tuple[Finding, list[int]]]:
    """One finding per loop with a joint that does not close, under the joint that closes the loop, and its axes."""
    for closing, joint in enumerate(system.joints):
        if closing in system.tree:
            continue
        loop = _loop(system, closing)
        apart = {"m": 0.0, "rad": 0.0}
        for j in loop:
            is_length = np.array(system.joints[j].kind.lengths, dtype=bool)
            gap = gaps[j][: is_length.size]
            for unit, part in (("m", gap[is_length]), ("rad", gap[~is_length])):
                # a NaN counts as open
                apart[unit] = max(apart[unit], float(np.max(np.nan_to_num(part, nan=np.inf), initial=0.0)))
        if max(apart.values()) > tolerance:
            names = ", ".join(system.joints[j].name for j in loop)
            left = " and ".join(f"{most:.3g} {unit}" for unit, most in apart.items() if most > tolerance)
            message = f"the loop of the joints {names} cannot be assembled: a gap of {left} remains"
            cure = _CURE
            if -1 not in _held_together(system, joint.child):
                message += "; no joint holds its bodies to the world"
                cure = f"If one of these joints is meant to, give it `parent: world`. {_CURE}"
            its_axes = [i for i, axis in enumerate(system.axes) if axis.joint in loop]
            yield Finding(("joints", joint.name), None, message, cure), its_axes


def _held_together(system: System, body: int) -> set[int]:
    """The bodies that joints connect to a body, and -1 for the world."""
    found, ends = {body}, [{joint.parent, joint.child} for joint in system.joints]
    for _ in ends:
        found = found.union(*(pair for pair in ends if pair & found))
    return found


def _loop(system: System, closing: int) -> list[int]:
    """The joints of the tree between both sides of a joint, and the joint itself."""
    carrier: dict[int, tuple[int, int]] = {}  # body -> the joint of the tree that carries it, and the body before
    reached = {-1}
    for j in system.tree:
        ends = (system.joints[j].parent, system.joints[j].child)
        before, body = ends[::-1] if ends[1] in reached else ends
        carrier[body] = (j, before)
        reached.update(ends)

    def to_root(body: int) -> list[int]:
        path = []
        while body in carrier:
            j, body = carrier[body]
            path.append(j)
        return path

    first, second = to_root(system.joints[closing].parent), to_root(system.joints[closing].child)
    return [
        *[j for j in first if j not in second],
        *reversed([j for j in second if j not in first]),
        closing,
    ]


def _rates_that_clash(system: System, scene: Scene, rates: np.ndarray, tolerance: float) -> Iterator[Finding]:
    """Initial rates that a loop does not allow together."""
    for name, found in zip(system.axis_names(), rates, strict=True):
        if name in scene.initial and abs(found - scene.initial[name].rate) > tolerance * (1 + abs(found)):
            loc: Loc = ("initial", name)
            message = (
                f"the rates of its loop do not fit together: {scene.initial[name].rate:g} here, "
                f"{found:.6g} in the compromise"
            )
            yield Finding(loc, None, message, "Give the rate of one joint alone, or rates that fit together.")


def _cut_short(system: System, scene: Scene, gaps: np.ndarray, tolerance: float) -> Iterator[Finding]:
    """The user's unilateral rows that are violated at the start."""
    for (b, _), gap in zip(system.own_lines, gaps, strict=True):
        if gap < -tolerance:
            name = system.bounded[b].name
            loc = ("rows", name) if name in scene.rows else ("bodies",)
            message = f"the row '{name}' says gap >= 0, and starts at {gap:.3g}"
            yield Finding(loc, None, message, "Start the bodies where it holds, or give the row other numbers.")


def _inside_each_other(system: System, gaps: np.ndarray, sizes: np.ndarray) -> Iterator[Finding]:
    """Surfaces that overlap at t = 0 by more than a part of their size, which would throw them apart."""
    of = system.contacts
    least = np.full(len(of.pairs), np.inf)
    np.minimum.at(least, np.array(of.pair_of_point, dtype=int), gaps)
    for pair, gap in zip(of.pairs, least.tolist(), strict=True):
        first, second = of.surfaces[pair.first], of.surfaces[pair.second]
        lengths = sizes[[pair.first, pair.second]]
        depth = -gap
        if depth > _OVERLAP * np.min(lengths[lengths > 0]):
            bodies = [system.bodies[s.body] for s in (first, second) if s.body >= 0]
            message = f"starts {depth:.3g} m inside `{second.name}`"
            cure = f"Move `{bodies[0]}` at t = 0 (`initial`), or name the pairs that touch in `contacts.pairs`."
            yield Finding(("contacts", "surfaces", first.name), None, message, cure)


def _beyond_limits(scene: Scene, positions: np.ndarray) -> Iterator[Finding]:
    """Joints that start beyond a stop, which would throw them back in the first step."""
    paths = free_axes({name: joint.kind for name, joint in scene.joints.items()})
    for (path, name, axis), position in zip(paths, positions.tolist(), strict=True):
        limits, tolerance = scene.joints[name].along(axis.name).limits, _TOLERANCE[positions.dtype.itemsize]
        unit, where = "rad" if axis.rotational else "m", ("axes", axis.name) if axis.name else ()
        for key, beyond in (("lower", -1), ("upper", 1)):
            limit = getattr(limits, key)
            if limit is None or beyond * (position - limit) <= tolerance:
                continue
            given = path in scene.initial
            loc: Loc = ("initial", path, "position") if given else ("joints", name, *where, "limits", key)
            message = f"{path} starts at {position:.6g} {unit}, beyond its {key} limit {limit:g} {unit}"
            cure = "Change this position" if given else f"Give `{path}` a position under `initial`"
            yield Finding(loc, position, message, f"{cure}, or move the limit{f' of `{name}`' if given else ''}.")
