"""Mechanisms that several benchmarks simulate: the scene, its start and its input."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.scene import Scene, read_scene
from spookax.stepping import state_from_joints
from spookax.system import build

from .chain import chain
from .measure import ROOT

Start = dict[str, tuple[float, float]]  # joint -> position [rad], rate [rad/s]
Loaded = tuple[sx.System, sx.Params, sx.State]


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A scene under 1 Hz sines of this amplitude on all its motors [unit of the input]."""

    name: str
    scene: Scene
    amplitude: float = 0.0
    start: Start = dataclasses.field(default_factory=dict)
    ball: str = ""  # a hinge of a plane loop: a ball joint in its place closes the loop just as well
    steps: int = 1000  # of a rollout

    def load(self) -> Loaded:
        """System, parameters and state at the start."""
        if not self.start:
            return sx.load(self.scene)
        system, params = build(self.scene)
        given = {joint: {"position": q, "rate": v} for joint, (q, v) in self.start.items()}
        return system, params, jax.jit(state_from_joints, static_argnums=0)(system, params, given)

    def starts(self) -> Start:
        """Where the joints start, of those that do not start at rest at zero."""
        return self.start or {joint: (x.position, x.rate) for joint, x in self.scene.initial.items()}

    def controls(self, count: int, steps: int) -> np.ndarray:
        """Inputs of shape (count, steps, motors), each environment with its own phase."""
        return sines(count, steps, len(self.scene.motors), self.scene.step, self.amplitude)


def furuta() -> Mechanism:
    """The demo's Furuta pendulum: dry friction in both joints, a motor with 2 V."""
    return Mechanism("furuta", read_scene(ROOT / "demo/furuta.yaml"), 2.0)


def four_bar() -> Mechanism:
    """A closed loop of three bars, a motor with 0.3 N m."""
    return Mechanism("four_bar", read_scene(ROOT / "scenes/four_bar.yaml"), 0.3, ball="wrist")


def pendulum() -> Mechanism:
    """One hinge with dry friction."""
    return Mechanism("pendulum", read_scene(ROOT / "scenes/pendulum.yaml"))


def swinging(links: int, coulomb: float = 0.0) -> Mechanism:
    """A chain of hinges, the first of which turns at 1 rad/s.

    The weight that pulls at short links lets them swing fast: above 64 the step is shorter, or the motion of any
    simulator that takes this pull from the step's start grows without bound.
    """
    name = f"chain of {links}" + (", dry friction" if coulomb else "")
    scene = chain(links, coulomb, 1 / links)
    scene = scene.model_copy(update={"step": scene.step * min(1.0, 64 / links)})
    return Mechanism(name, scene, start={"j0": (0.0, 1.0)}, steps=1000 if links <= 16 else 100)


def level() -> Mechanism:
    """Four rods of 1 m without friction, released level."""
    return Mechanism("chain of 4, level", read_scene(ROOT / "scenes/reference/chain.yaml"))


def sines(count: int, steps: int, motors: int, h: float, amplitude: float) -> np.ndarray:
    """Inputs of 1 Hz, each environment with its own phase, shape (count, steps, motors)."""
    phase = np.linspace(0, np.pi, count, endpoint=False)[:, None]
    wave = amplitude * np.sin(2 * np.pi * h * np.arange(steps)[None] + phase)
    return np.repeat(wave[:, :, None], motors, axis=2)


def repeated(tree: Any, count: int) -> Any:
    """All arrays of a tree `count` times, along a first axis of their own."""
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (count, *jnp.shape(a))), tree)
