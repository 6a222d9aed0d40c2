"""Gradients of the package and of its peers: the same loss, each as a ratio to the rollout of its own simulator."""

import copy
from typing import Any

import jax.numpy as jnp
import numpy as np

from . import peer
from .gradients import MODES, Case, directional_errors, of_last, rows_of
from .measure import Row, compile_now, row, timed
from .mechanisms import furuta, swinging

DIFFERENCE = 1e-6  # step of the central differences
ONE_ITERATION = {"iterations": 1, "ls_iterations": 4}  # with more MJX refuses reverse mode


def cases() -> list[tuple[Case, tuple[str, ...], bool]]:
    """The cases, the modes of the package and whether MJX takes part."""
    links = 64
    bent = {f"j{i}": (0.02, 0.0) for i in range(links)} | {"j0": (0.3, 1.0)}
    return [
        (Case(furuta(), {"shoulder": (0.3, 0.0), "elbow": (1.0, 0.0)}, "pendulum"), ("forward", "reverse"), True),
        (Case(swinging(links), bent, f"b{links - 1}"), ("reverse",), False),
    ]


def run() -> list[Row]:
    """Rows of all cases."""
    rows: list[Row] = []
    for case, modes, with_mjx in cases():
        rows += rows_of(case, modes)
        if peer.mujoco():
            rows += _differences(case)
        if peer.mjx() and with_mjx:
            rows += _mjx(case)
    return rows


class _Losses:
    """The loss of many points at once in MuJoCo, which copies the model for every mass."""

    def __init__(self, case: Case):
        self.case, self.mujoco = case, peer.Mujoco.of(case.mechanism)
        self.controls = case.controls()[None]

    def prepared(self, points: np.ndarray) -> tuple[np.ndarray, list[Any]]:
        """Packed states and models of points of shape (points, inputs)."""
        names, states, models = list(self.case.start), [], {}
        for x in points:
            if x[-1] not in models:
                model = models[x[-1]] = copy.copy(self.mujoco.model)
                model.body(self.case.body).mass = x[-1]
                peer.mujoco().mj_setConst(model, peer.mujoco().MjData(model))
            n = len(names)
            there = {name: (x[i], x[n + i]) for i, name in enumerate(names)}
            states.append(self.mujoco.packed(self.mujoco.data(there)))
        return np.array(states), [models[x[-1]] for x in points]

    def of(self, states: np.ndarray, models: list[Any]) -> np.ndarray:
        """The losses, shape (points,)."""
        controls = np.repeat(self.controls, len(states), axis=0)
        position, rate = self.mujoco.rollout(controls, starts=states, models=models)
        return of_last(position[:, -1], rate[:, -1])

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return self.of(*self.prepared(points))


def _differences(case: Case) -> list[Row]:
    """Central differences of MuJoCo: two rollouts for each input, on one thread."""
    losses, x = _Losses(case), case.inputs()
    name, label = f"{case.mechanism.name}, gradient", losses.mujoco.label
    ends = np.concatenate([x + DIFFERENCE * np.eye(len(x)), x - DIFFERENCE * np.eye(len(x))])
    one, all_of_them = losses.prepared(x[None]), losses.prepared(ends)
    base = timed(lambda: losses.of(*one), 1.0)
    times = timed(lambda: losses.of(*all_of_them), 1.0)
    values = losses(ends)
    gradient = (values[: len(x)] - values[len(x) :]) / (2 * DIFFERENCE)
    (error,) = directional_errors({"": gradient}, losses, x).values()
    what = f"{label}: central differences"
    return [
        row(name, f"{label}: rollout", base.best * 1e3, "ms"),
        row(name, f"{what}, {2 * len(x)} rollouts", times.best * 1e3, "ms", over=base.best * 1e3, to="its rollout"),
        row(name, f"{what}, error", error, "relative"),
    ]


def _mjx(case: Case) -> list[Row]:
    """Both modes of MJX with one iteration of its solver."""
    mjx = peer.Mjx.of(peer.Mujoco.of(case.mechanism, **ONE_ITERATION))
    order, controls = peer.Mujoco.of(case.mechanism), jnp.asarray(case.controls())
    n, places = len(case.start), np.array([order.joints().index(joint) for joint in case.start])
    body = order.model.body(case.body).id

    def loss(x: Any) -> Any:
        data = mjx.data.replace(
            qpos=mjx.data.qpos.at[places].set(x[:n]), qvel=mjx.data.qvel.at[places].set(x[n : 2 * n])
        )
        model = mjx.model.replace(body_mass=mjx.model.body_mass.at[body].set(x[-1]))
        position, rate = mjx.rollout(model, data, controls)
        return of_last(position[-1], rate[-1])

    x, name = jnp.asarray(case.inputs()), f"{case.mechanism.name}, gradient"
    label = f"{mjx.label}, one iteration"
    value = compile_now(loss, x)
    base = timed(lambda: value.call(x), 1.0)
    rows = [
        row(name, f"{label}: rollout", base.best * 1e3, "ms"),
        row(name, f"{label}: compile rollout", value.seconds, "s"),
    ]
    gradients: dict[str, np.ndarray] = {}
    for mode, derivative in MODES.items():
        compiled = compile_now(derivative(loss), x)
        times = timed(lambda compiled=compiled: compiled.call(x), 1.0)
        gradients[mode] = np.asarray(compiled.call(x))
        rows += [
            row(name, f"{label}: {mode} mode", times.best * 1e3, "ms", over=base.best * 1e3, to="its rollout"),
            row(name, f"{label}: compile {mode} mode", compiled.seconds, "s", over=value.seconds, to="its rollout"),
        ]
    errors = directional_errors(
        gradients, lambda points: np.array([value.call(jnp.asarray(point)) for point in points]), np.asarray(x)
    )
    return [*rows, *(row(name, f"{label}: {mode} mode, error", error, "relative") for mode, error in errors.items())]
