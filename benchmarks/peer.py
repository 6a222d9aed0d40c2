"""MuJoCo and MJX as peers: the same mechanisms, exported as MJCF. Both are optional."""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from spookax.mjcf import write_mjcf
from spookax.scene import Scene

from .mechanisms import Mechanism, Start


def mujoco() -> Any:
    """The module, or nothing where it cannot be imported."""
    return module("mujoco")


def mjx() -> Any:
    """The module, or nothing where it cannot be imported."""
    return module("mujoco.mjx") if mujoco() else None


def module(name: str) -> Any:
    """A module, or nothing where it cannot be imported."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # MJX says what else it looked for
            return importlib.import_module(name)
    except ImportError:
        return None


def exported(scene: Scene, ball: str = "") -> Scene:
    """What of a scene the peers simulate: no looks and no sensors, which cost them time; no start, which is set apart.

    A hinge that closes a plane loop (`ball`) becomes a ball joint, which costs MuJoCo three equations instead of six.
    """
    bodies = {name: body.model_copy(update={"shapes": []}) for name, body in scene.bodies.items()}
    joints = {
        name: joint.model_copy(update={"type": "ball"} if name == ball else {}) for name, joint in scene.joints.items()
    }
    return scene.model_copy(update={"bodies": bodies, "joints": joints, "sensors": {}, "initial": {}})


@dataclasses.dataclass
class Mujoco:
    """One mechanism in MuJoCo, rolled out by its own loop in C++."""

    model: Any
    start: Start
    scratch: list[Any] = dataclasses.field(default_factory=list)  # work space of the threads, kept between rollouts

    @classmethod
    def of(cls, mechanism: Mechanism, **options: Any) -> "Mujoco":
        """The mechanism with these options of MuJoCo, the others as MuJoCo has them."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "scene.xml"
            write_mjcf(exported(mechanism.scene, mechanism.ball), file)
            model = mujoco().MjModel.from_xml_path(str(file))
        for name, value in options.items():
            setattr(model.opt, name, value)
        return cls(model, mechanism.starts())

    @property
    def label(self) -> str:
        """Name and version."""
        return f"MuJoCo {mujoco().__version__}"

    def joints(self) -> list[str]:
        """Names of the joints, in the order of the positions."""
        return [self.model.joint(i).name for i in range(self.model.njnt)]

    def data(self, start: Start | None = None) -> Any:
        """A state with joints at these positions and rates, the others at rest at zero."""
        data, order = mujoco().MjData(self.model), self.joints()
        for joint, (position, rate) in (self.start if start is None else start).items():
            if joint in order:  # not the joint that closes a loop
                data.qpos[order.index(joint)], data.qvel[order.index(joint)] = position, rate
        return data

    def packed(self, data: Any) -> np.ndarray:
        """The state as one array."""
        kind = mujoco().mjtState.mjSTATE_FULLPHYSICS
        out = np.zeros(mujoco().mj_stateSize(self.model, kind))
        mujoco().mj_getState(self.model, data, out, kind)
        return out

    def rollout(
        self, controls: np.ndarray, threads: int = 1, starts: np.ndarray | None = None, models: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions and rates after every step, shapes (batch, steps, joints), of controls (batch, steps, motors).

        `starts`: packed states, shape (batch, ...), and `models`, where the environments differ.
        """
        batch, steps, motors = controls.shape
        starts = np.repeat(self.packed(self.data())[None], batch, axis=0) if starts is None else starts
        while len(self.scratch) < threads:
            self.scratch.append(mujoco().MjData(self.model))
        given = {"control": controls} if motors else {"nstep": steps}
        run = module("mujoco.rollout").rollout
        states, _ = run(models or self.model, self.scratch[:threads], starts, persistent_pool=threads > 1, **given)
        nq, nv = self.model.nq, self.model.nv
        return states[:, :, 1 : 1 + nq], states[:, :, 1 + nq : 1 + nq + nv]

    def energies(self, position: np.ndarray, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Kinetic and potential energy [J] of samples of shape (samples, joints)."""
        module, data = mujoco(), mujoco().MjData(self.model)
        found = []
        for q, v in zip(position, rate, strict=True):
            data.qpos[:], data.qvel[:] = q, v
            module.mj_forward(self.model, data)
            module.mj_energyPos(self.model, data)
            module.mj_energyVel(self.model, data)
            found.append(np.array(data.energy))
        return np.array(found)[:, 1], np.array(found)[:, 0]

    def gap(self, position: np.ndarray) -> float:
        """The most that the points of a loop are apart [m] in samples of shape (samples, joints)."""
        module, data, found = mujoco(), mujoco().MjData(self.model), 0.0
        for q in position:
            data.qpos[:] = q
            module.mj_fwdPosition(self.model, data)
            found = max(found, float(np.linalg.norm(data.efc_pos[: data.ne])))
        return found

    def one_by_one(self, controls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Times [s] and solver iterations of single steps called from Python; controls of shape (steps, motors)."""
        module, data = mujoco(), self.data()
        times, iterations = np.zeros(len(controls)), np.zeros(len(controls), dtype=int)
        for k, command in enumerate(controls):
            began = time.perf_counter()
            data.ctrl[:] = command
            module.mj_step(self.model, data)
            times[k] = time.perf_counter() - began
            iterations[k] = int(np.sum(data.solver_niter))
        return times, iterations


@dataclasses.dataclass
class Mjx:
    """The same mechanism in MJX."""

    model: Any
    data: Any
    label: str

    @classmethod
    def of(cls, other: Mujoco) -> "Mjx":
        """The model and the start of the C library, with its options."""
        module = mjx()
        label = f"MJX {importlib.metadata.version('mujoco-mjx')}"
        return cls(module.put_model(other.model), module.put_data(other.model, other.data()), label)

    @staticmethod
    def rollout(model: Any, data: Any, controls: Any) -> tuple[Any, Any]:
        """Positions and rates after every step, shapes (steps, joints): one loop in a compiled program."""
        step = mjx().step

        def body(data: Any, command: Any) -> tuple[Any, Any]:
            after = step(model, data.replace(ctrl=command))
            after = jax.tree.map(lambda a, b: a.astype(b.dtype), after, data)  # numbers of geoms become 64-bit
            return after, (after.qpos, after.qvel)

        return jax.lax.scan(body, data, controls)[1]


def all_threads() -> int:
    """As many threads as the computer runs at a time."""
    return os.cpu_count() or 1
