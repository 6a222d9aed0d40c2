"""Bodies that touch, beside MuJoCo in the same run: time of a step, at rest and while they settle; height after 10 s.

The residual is the impulse that a step at rest leaves unexplained, over mass and h g: that of the body where it is
largest.
MuJoCo steps the same scenes, written as MJCF, with its default solver (Newton) and with projected Gauss-Seidel, in its
own loop, and MJX in one of a compiled program, but for the pile of a hundred: it looks at all pairs. Contacts
are soft in their own way there; all stand at rest or they would not be compared.
"""

import importlib.metadata
import itertools
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import spookax as sx
from spookax.constraints import prepare
from spookax.mjcf import write_mjcf
from spookax.stepping import inverse_dynamics, step

from . import peer
from .measure import Row, beside, compile_now, row, timed

STEP = 0.005
LONG = 2000  # steps of 10 s
TIMED = 200
WITHOUT_MJX = ("pile100",)
SIZE = 0.2


def run(part: str = "") -> list[Row]:
    """Rows of all scenes, or of the one that `part` names."""
    rows = [line for name, scene in SCENES.items() if part in ("", name) for line in _rows(name, scene())]
    took = {line["case"]: line["best"] for line in rows if line["quantity"] == "step at rest"}
    if {"pile20", "pile100"} <= took.keys():
        growth = np.log(float(took["pile100"] or 0) / float(took["pile20"] or 1)) / np.log(5)
        rows.append(row("piles", "power of the number of boxes that a step at rest grows with", growth, ""))
    return rows


# --- the scenes


def _box(place: tuple[float, float, float], turn: float = 0.0) -> dict[str, Any]:
    start = {"position": place, "rotation": (0.0, 0.0, turn)}
    return {"mass": 1.0, "inertia": (SIZE**2 / 6,) * 3, "initial": start}


def _scene(bodies: dict[str, Any], surfaces: dict[str, Any], **more: Any) -> sx.Scene:
    contacts = {"surfaces": {"floor": {"type": "plane"}, **surfaces}, **more.pop("contacts", {})}
    return sx.Scene(spookax=1, step=STEP, bodies=bodies, contacts=contacts, **more)  # pyright: ignore


def _cube(body: str) -> dict[str, Any]:
    return {"type": "box", "body": body, "size": (SIZE,) * 3}


def ball() -> sx.Scene:
    body = {"mass": 1.0, "inertia": (0.004,) * 3, "initial": {"position": (0, 0, 0.1), "velocity": (1, 0, 0)}}
    return _scene({"b": body}, {"b": {"type": "sphere", "body": "b", "radius": 0.1}})


def box() -> sx.Scene:
    return _scene({"b": _box((0, 0, SIZE / 2))}, {"b": _cube("b")})


def stack(count: int) -> sx.Scene:
    names = [f"b{i}" for i in range(count)]
    bodies = {n: _box((0, 0, SIZE * (i + 0.5))) for i, n in enumerate(names)}
    pairs = [("b0", "floor"), *itertools.pairwise(names)]
    return _scene(bodies, {n: _cube(n) for n in names}, contacts={"pairs": pairs})


def pile(count: int) -> sx.Scene:
    """Boxes in layers of four, turned and shifted, that fall a little way onto each other; any two may touch."""
    rng, bodies = np.random.default_rng(0), {}
    for i in range(count):
        x, y = (0.3 * (k - 0.5) for k in (i % 2, i // 2 % 2))
        shift = rng.uniform(-0.02, 0.02, 2)
        bodies[f"b{i}"] = _box((x + shift[0], y + shift[1], 0.11 + 0.22 * (i // 4)), float(rng.uniform(-0.3, 0.3)))
    return _scene(bodies, {n: _cube(n) for n in bodies})


def quadruped() -> sx.Scene:
    """A trunk on four legs of three joints each, held by servos, on four balls as feet."""
    bodies: dict[str, Any] = {
        "trunk": {"mass": 6.0, "inertia": (0.05, 0.1, 0.12), "initial": {"position": (0, 0, 0.42)}}
    }
    joints, motors, surfaces, hinge = {}, {}, {}, {"type": "hinge", "armature": 0.02}
    for leg, (x, y) in {"fl": (0.2, 0.1), "fr": (0.2, -0.1), "hl": (-0.2, 0.1), "hr": (-0.2, -0.1)}.items():
        parts = {"hip": (0.5, (0, 0, 0)), "thigh": (0.8, (0, 0, -0.1)), "shank": (0.3, (0, 0, -0.1))}
        for part, (mass, com) in parts.items():
            bodies[f"{leg}_{part}"] = {"mass": mass, "com": com, "inertia": (0.003, 0.003, 0.001)}
        chain = [("trunk", "hip", (x, y, 0), (1, 0, 0)), ("hip", "thigh", (0, 0, 0), (0, 1, 0))]
        chain += [("thigh", "shank", (0, 0, -0.2), (0, 1, 0))]
        for parent, child, at, axis in chain:
            name = f"{leg}_{child}"
            inside = parent if parent == "trunk" else f"{leg}_{parent}"
            joints[name] = {**hinge, "parent": inside, "child": name, "at": at, "axis": axis}
            motors[name] = {"type": "position", "joint": name, "stiffness": 60.0, "damping": 1.0}
        surfaces[leg] = {"type": "sphere", "body": f"{leg}_shank", "radius": 0.02, "at": (0, 0, -0.2)}
    pairs = [(leg, "floor") for leg in surfaces]
    return _scene(bodies, surfaces, joints=joints, motors=motors, contacts={"pairs": pairs})


SCENES = {
    "ball": ball,
    "box": box,
    "stack5": lambda: stack(5),
    "stack10": lambda: stack(10),
    "quadruped": quadruped,
    "pile20": lambda: pile(20),
    "pile100": lambda: pile(100),
}


# --- the times


def _rows(name: str, scene: sx.Scene) -> list[Row]:
    system, params, state = sx.load(scene)
    count = len(system.motors)

    def go(state: sx.State, controls: Any, first: bool) -> sx.Trajectory:
        return sx.rollout(system, params, state, controls, half_kick=first, throw=False)

    controls = jnp.zeros((TIMED, count))
    begin = compile_now(lambda s, u: go(s, u, True), state, controls)
    later = compile_now(lambda s, u: go(s, u, False), state, controls)
    found = begin.call(state, controls)
    settle = timed(lambda: begin.call(state, controls), 1.0).best
    worst = int(found.failed_step)
    at_rest = found.state
    for _ in range(LONG // TIMED - 1):
        found = later.call(at_rest, controls)
        at_rest = found.state
        worst = max(worst, int(found.failed_step))
    rest = timed(lambda: later.call(at_rest, controls), 1.0).best
    height = float(np.max(np.asarray(at_rest.r)[:, 2]))
    rows = [row(name, "failed steps in 10 s", float(worst >= 0), "")]
    if system.contacts.slots:
        rows.append(row(name, "pairs in slots at rest", float(jnp.sum(found.contact_pairs[-1] >= 0)), ""))
    theirs: dict[str, dict[str, float]] = {"settle": {}, "rest": {}}
    for solver in ("Newton", "PGS") if peer.mujoco() else ():
        other = Other(scene, solver)
        theirs["settle"][other.label] = other.time(0)
        theirs["rest"][other.label] = other.time(LONG)
        rows.append(row(name, f"height after 10 s, {other.label}", other.height, "m"))
    if peer.mjx() and name not in WITHOUT_MJX:
        label, compiling, theirs["settle"][label], theirs["rest"][label], top = _in_mjx(Other(scene, "Newton"))
        rows += [row(name, f"compile, {label}", compiling, "s"), row(name, f"height after 10 s, {label}", top, "m")]
    micro = 1e6 / TIMED
    return [
        *beside(name, f"step while it settles ({TIMED} steps)", "µs", settle, theirs["settle"], micro),
        *beside(name, "step at rest", "µs", rest, theirs["rest"], micro),
        row(name, "height after 10 s", height, "m"),
        row(name, "compile a rollout", begin.seconds, "s"),
        row(name, "speed at rest", float(jnp.max(jnp.abs(at_rest.v))), "m/s"),
        row(name, "residual at rest", _residual(system, params, at_rest), "h g"),
        *rows,
    ]


def _residual(system: sx.System, params: sx.Params, state: sx.State) -> float:
    prepared, command = prepare(system, params), jnp.zeros(len(system.motors))

    @sx.jit
    def largest(state: sx.State) -> Any:
        after, _ = step(system, prepared, state, command)
        v = jnp.concatenate([after.v, after.w], axis=-1)
        wrong = inverse_dynamics(system, prepared, state, v, command)[:, :3] / params.mass[:, None]
        return jnp.max(jnp.linalg.norm(wrong, axis=-1)) / (params.step * jnp.linalg.norm(params.gravity))

    return float(largest(state))


class Other:
    """The scene in MuJoCo, with its free bodies where the scene starts them."""

    def __init__(self, scene: sx.Scene, solver: str):
        module = peer.mujoco()
        with tempfile.TemporaryDirectory() as folder:
            write_mjcf(peer.exported(scene), Path(folder) / "scene.xml", allow_missing=True)
            self.model = module.MjModel.from_xml_path(str(Path(folder) / "scene.xml"))
        self.model.opt.solver = getattr(module.mjtSolver, f"mjSOL_{solver.upper()}")
        self.label, self.height = f"MuJoCo {module.__version__}, {solver}", 0.0
        self._module, self.start = module, module.MjData(self.model)
        for joint in range(self.model.njnt):
            body = scene.bodies[self.model.body(self.model.jnt_bodyid[joint]).name]
            if body.initial is not None:
                at, to = self.model.jnt_qposadr[joint], self.model.jnt_dofadr[joint]
                half = np.asarray(body.initial.rotation) / 2
                turn = [np.cos(np.linalg.norm(half)), *(np.sinc(np.linalg.norm(half) / np.pi) * half)]
                self.start.qpos[at : at + 7] = [*body.initial.position, *turn]
                self.start.qvel[to : to + 6] = [*body.initial.velocity, *body.initial.angular_velocity]

    def time(self, before: int, steps: int = TIMED, copies: int = 1, threads: int = 1) -> float:
        """Of some steps after so many, of all copies together. [s]"""
        rollout = peer.module("mujoco.rollout").rollout
        kind = self._module.mjtState.mjSTATE_FULLPHYSICS
        size = self._module.mj_stateSize(self.model, kind)
        data, packed = self._module.MjData(self.model), np.zeros(size)
        self._module.mj_getState(self.model, self.start, packed, kind)
        if before:
            states, _ = rollout(self.model, [data], packed[None], nstep=before)
            packed = states[0, -1]
            self._module.mj_setState(self.model, data, packed, kind)
            self._module.mj_forward(self.model, data)
            self.height = float(data.xipos[1:, 2].max())
        work = [data, *(self._module.MjData(self.model) for _ in range(threads - 1))]
        starts, pool = np.repeat(packed[None], copies, axis=0), threads > 1
        return timed(lambda: rollout(self.model, work, starts, nstep=steps, persistent_pool=pool)[0], 1.0).best


def _in_mjx(other: Other) -> tuple[str, float, float, float, float]:
    """Name; seconds to compile, of the first steps and of those at rest; height after 10 s. [s, m]"""
    mjx = peer.mjx()
    model, data = mjx.put_model(other.model), mjx.put_data(other.model, other.start)
    commands = jnp.zeros((TIMED, other.model.nu))
    program = compile_now(peer.Mjx.rollout, model, data, commands)
    settling = timed(lambda: program.call(model, data, commands), 1.0, least=3).best
    for _ in range(LONG // TIMED - 1):
        q, v = program.call(model, data, commands)
        data = data.replace(qpos=q[-1], qvel=v[-1])
    rest = timed(lambda: program.call(model, data, commands), 1.0, least=3).best
    q, _ = program.call(model, data, commands)
    free = [int(other.model.joint(i).qposadr[0]) for i in range(other.model.njnt) if other.model.jnt_type[i] == 0]
    height = float(jnp.max(q[-1, jnp.array(free) + 2]))
    return f"MJX {importlib.metadata.version('mujoco-mjx')}", program.seconds, settling, rest, height
