"""A cube tossed onto a board (`contactnets_cube`): what is identified, and tosses predicted beside MuJoCo.

Both engines start every toss from its first measured state and are judged by the same error: how far the centre is off,
in half widths of the cube, plus the angle by which the orientation is [rad], mean over the toss. Their parameters are
those with the least mean error over the tosses that are fitted, by Nelder and Mead's method with as many simulations
of all of them: friction, restitution (of MuJoCo: time constant and damping ratio of the contact), height of the board.
Every fifth toss is held back.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from scipy.spatial.transform import Rotation

import spookax as sx
from spookax.scene import Scene
from spookax.stepping import state_from_joints

from . import peer
from .measure import Row

RATE, SUBSTEPS = 148, 4  # samples in a second, steps in a sample
HALF, MASS, MOMENT = 0.0524, 0.37, 8.1e-4  # as the authors give them [m, kg, kg m^2]
GRAVITY = 9.81
EVALUATIONS = 80

Motion = tuple[np.ndarray, np.ndarray]  # positions and quaternions, body to world, of all samples


class Toss(NamedTuple):
    """`position`, `quaternion` (w first) of every sample; `velocity` (world), `spin` (body axes) at the first."""

    number: int
    position: np.ndarray
    quaternion: np.ndarray
    velocity: np.ndarray
    spin: np.ndarray


def tosses() -> list[Toss]:
    """All tosses of the data set. Its velocities are backward differences, which belong to half a sample earlier."""
    folder = Path(os.environ["SPOOKAX_DATA"]) / "contactnets_cube"
    table = np.loadtxt(folder / "tosses.csv", delimiter=",", skiprows=1)
    found = []
    for number in np.unique(table[:, 1]):
        rows = table[table[:, 1] == number]
        fall = np.array([0.0, 0.0, -GRAVITY / (2 * RATE)])
        found.append(Toss(int(number), rows[:, 2:5], rows[:, 5:9], rows[0, 9:12] + fall, rows[0, 12:15]))
    return found


def scene(friction: float, restitution: float, height: float) -> Scene:
    """The cube and the board."""
    size = [2 * HALF] * 3
    return Scene.model_validate(
        {
            "spookax": 1,
            "step": 1 / (RATE * SUBSTEPS),
            "gravity": [0, 0, -GRAVITY],
            "bodies": {"cube": {"mass": MASS, "inertia": [MOMENT] * 3, "initial": {"position": [0, 0, 4 * HALF]}}},
            "contacts": {
                "materials": {"default": {"friction": friction, "restitution": restitution}},
                "surfaces": {
                    "board": {"type": "plane", "at": [0, 0, height]},
                    "cube": {"type": "box", "body": "cube", "size": size},
                },
            },
            "sensors": {"pose": {"type": "body_pose", "body": "cube", "sd": 1e-3}},
        }
    )


class Ours:
    """The package; parameters: friction, restitution, height of the board [m]."""

    name = "spookax"
    start = np.array([0.3, 0.2, 0.0])
    scale = np.array([0.1, 0.1, 2e-3])

    def __init__(self, some: list[Toss]):
        self.system, self.params, _ = sx.load(scene(*self.start))
        lengths = np.array([len(toss.position) for toss in some])
        usual = lengths <= 1.3 * np.median(lengths)
        self.batches = [
            (
                group,
                int(lengths[group].max()),
                jax.tree.map(lambda *a: jnp.stack(a), *(self._state(some[i]) for i in group)),
            )
            for group in map(np.flatnonzero, (usual, ~usual))
            if group.size
        ]
        self._call = jax.jit(self._simulate, static_argnums=2)

    def _state(self, toss: Toss) -> Any:
        turn = Rotation.from_quat(toss.quaternion[0], scalar_first=True).as_rotvec()
        first = {"position": toss.position[0], "rotation": turn, "velocity": toss.velocity}
        return state_from_joints(self.system, self.params, bodies={"cube": first | {"angular_velocity": toss.spin}})

    def _simulate(self, values: jax.Array, states: Any, samples: int) -> Any:
        board = [surface.name for surface in self.system.contacts.surfaces].index("board")
        params = eqx.tree_at(
            lambda p: (p.material_friction, p.material_restitution, p.surface_at),
            self.params,
            (
                jnp.full_like(self.params.material_friction, values[0]),
                jnp.full_like(self.params.material_restitution, values[1]),
                self.params.surface_at.at[board, 2].set(values[2]),
            ),
        )
        controls = jnp.zeros(((samples - 1) * SUBSTEPS, 0))

        def one(state: Any) -> Any:
            found = sx.rollout(self.system, params, state, controls)
            return found.r[::SUBSTEPS, 0], found.e[::SUBSTEPS, 0]

        return jax.lax.map(one, states)

    def simulate(self, values: np.ndarray) -> list[Motion]:
        """Motion of every toss, at least as long as it is."""
        found = {}
        for group, samples, states in self.batches:
            motions = zip(*map(np.asarray, self._call(jnp.asarray(values), states, samples)), strict=True)
            found |= dict(zip(group.tolist(), motions, strict=True))
        return [found[i] for i in sorted(found)]

    def clipped(self, values: np.ndarray) -> np.ndarray:
        """The parameters within what is possible."""
        return np.clip(values, [0.0, 1e-3, -0.02], [2.0, 0.95, 0.02])


class MuJoCo:
    """MuJoCo, elliptic cone; parameters: friction, time constant [s] and damping ratio of contacts, height [m]."""

    name = "MuJoCo"
    start = np.array([0.3, 0.01, 0.7, 0.0])
    scale = np.array([0.1, 0.005, 0.3, 2e-3])

    def __init__(self, some: list[Toss]):
        self.mujoco, self.some = peer.mujoco(), some
        self.model = self.mujoco.MjModel.from_xml_string(f"""<mujoco>
            <option timestep="{1 / (RATE * SUBSTEPS)}" gravity="0 0 -{GRAVITY}" cone="elliptic"/>
            <worldbody><geom name="board" type="plane" size="5 5 1" condim="3"/>
            <body><freejoint/><inertial pos="0 0 0" mass="{MASS}" diaginertia="{MOMENT} {MOMENT} {MOMENT}"/>
            <geom name="cube" type="box" size="{HALF} {HALF} {HALF}" condim="3"/></body></worldbody></mujoco>""")

    def simulate(self, values: np.ndarray) -> list[Motion]:
        """Motion of every toss."""
        model, mujoco = self.model, self.mujoco
        model.geom_friction[:, 0] = values[0]
        model.geom_solref[:] = values[1:3]
        model.geom("board").pos[2] = values[3]
        found = []
        for toss in self.some:
            data, motion = mujoco.MjData(model), []
            data.qpos[:], data.qvel[:] = (*toss.position[0], *toss.quaternion[0]), (*toss.velocity, *toss.spin)
            for _ in toss.position:
                motion.append(data.qpos.copy())
                mujoco.mj_step(model, data, SUBSTEPS)
            found.append((np.array(motion)[:, :3], np.array(motion)[:, 3:]))
        return found

    def clipped(self, values: np.ndarray) -> np.ndarray:
        """The parameters within what is possible; a time constant below two steps is one of two steps to MuJoCo."""
        return np.clip(values, [0.0, 2 / (RATE * SUBSTEPS), 0.05, -0.02], [2.0, 0.2, 5.0, 0.02])


def errors(some: list[Toss], motions: list[Motion]) -> np.ndarray:
    """Mean over every toss of the errors of position [m] and orientation [rad], (tosses, 2)."""
    found = []
    for toss, (position, quaternion) in zip(some, motions, strict=True):
        count = len(toss.position)
        off = np.linalg.norm(position[:count] - toss.position, axis=1)
        both = [Rotation.from_quat(q, scalar_first=True) for q in (toss.quaternion, quaternion[:count])]
        found.append([off.mean(), (both[0].inv() * both[1]).magnitude().mean()])
    return np.array(found)


def score(found: np.ndarray) -> float:
    """What is minimised: mean error in half widths plus that in radians."""
    return float(np.mean(found[:, 0] / HALF + found[:, 1]))


def fitted(engine: Any, some: list[Toss], evaluations: int = EVALUATIONS) -> np.ndarray:
    """The parameters with the least score over some tosses, from the engine's start."""

    def objective(x: np.ndarray) -> float:
        return score(errors(some, engine.simulate(engine.clipped(engine.start + x * engine.scale))))

    size = engine.start.size
    simplex = np.concatenate([np.zeros((1, size)), np.eye(size)])
    options = {"maxfev": evaluations, "initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-5}
    found = scipy.optimize.minimize(objective, np.zeros(size), method="Nelder-Mead", options=options)
    return engine.clipped(engine.start + found.x * engine.scale)


def run(part: str) -> list[Row]:
    """Rows of a part: `cube`."""
    return list({"cube": _cube}[part]())


def _cube() -> Iterator[Row]:
    """Parameters and errors of both engines."""
    every = tosses()
    known, held = ([t for t in every if (t.number % 5 == 0) == back] for back in (False, True))
    for kind in (Ours, MuJoCo):
        if kind is MuJoCo and not peer.mujoco():
            continue
        began = time.perf_counter()
        values = fitted(kind(known), known)
        seconds = time.perf_counter() - began
        for label, some in (("fitted", known), ("held back", held)):
            found = errors(some, kind(some).simulate(values))
            yield {
                "engine": kind.name,
                "tosses": f"{len(some)} {label}",
                "parameters": " ".join(f"{v:.4g}" for v in values),
                "position mean [mm]": 1e3 * float(found[:, 0].mean()),
                "median": 1e3 * float(np.median(found[:, 0])),
                "rotation mean [rad]": float(found[:, 1].mean()),
                "median [rad]": float(np.median(found[:, 1])),
                "score": score(found),
                "fit [s]": seconds,
            }
