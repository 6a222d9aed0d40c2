"""A multibody scene as a member of the estimators' protocol.

The estimator's state is the pose and velocity of every body's *scene frame* (where joint points are known), not of
its centre of mass: otherwise a change of the centre-of-mass parameter would break every joint. Tangent, per state:
positions and rotations of all bodies, deflections of all elasto-slide elements, what sensors of contact forces read,
then linear (world) and angular (body) velocities of all bodies.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._results import STEP_RESULTS
from .._typing import AnyArray, Array, Bool, Float, Scalar
from ..complementarity import Replay
from ..constraints import Prepared, Rows, air, assemble, axes, boxes, frames, gyro, prepare
from ..constraints.assemble import scatter, velocity
from ..constraints.prepared import damping
from ..math import rotation, small
from ..math.product import matvec
from ..protocol import (
    AbstractResidualModel,
    CarriedPoses,
    ConstrainedStart,
    FirstSpread,
    FreeDirections,
    HeldNoise,
    Noise,
    PlanTracking,
    SearchedStep,
    StepDuration,
    Transition,
)
from ..protocol.core import Capability
from ..sensors import readings
from ..stepping import closing, saddle, step
from ..stepping.delay import longest
from ..stepping.inverse import multipliers
from ..stepping.spook import advance, default_solver, step_rows
from ..system import Params, State, System
from . import joint_tangent
from .parameters import ParameterMap

_YIELDING = 1e-4  # of axes in loops that are pushed


class BodyState(eqx.Module):
    """Pose and leap-frog velocity of the body frames' origins."""

    p: Float[Array, "bodies 3"]  # p_WB_W [m]
    e: Float[Array, "bodies 4"]
    v: Float[Array, "bodies 3"]  # of the origin, world [m/s]
    w: Float[Array, "bodies 3"]  # body axes [rad/s]
    near: Float[Array, " axes"]  # unwrapped coordinates, without derivative
    c: Float[Array, " inner"]  # deflections of elasto-slide elements [rad or m], then `State.felt` [N]


class ProcessNoise(eqx.Module):
    """White force noise, as impulses per step with standard deviation `density` * sqrt(h).

    `joints`: a torque or force on every axis, density in N m sqrt(s) or N sqrt(s).
    `bodies`: a force on every body (density in N sqrt(s)) and a torque of the same size times its gyration radius.
    """

    kind: str = eqx.field(static=True)
    density: Float[AnyArray, ""]

    def __init__(self, kind: str, density: float):
        self.kind, self.density = kind, np.asarray(density, dtype=float)

    def size(self, system: System) -> int:
        return len(system.axes) if self.kind == "joints" else 6 * system.num_bodies


class Prep(eqx.Module):
    """Engine quantities of one parameter vector."""

    engine: Prepared
    com: Float[Array, "bodies 3"]
    offset: Float[Array, " channels"]


class Multibody(
    AbstractResidualModel,
    SearchedStep,
    CarriedPoses,
    FreeDirections,
    HeldNoise,
    ConstrainedStart,
    FirstSpread,
    PlanTracking,
    StepDuration,
):
    """A scene, its unknowns (shared, then those of one recording) and its noise."""

    system: System = eqx.field(static=True)
    params: Params
    shared: ParameterMap
    own: ParameterMap  # unknowns of a recording: sensor offsets
    noise: ProcessNoise
    sensors: tuple[int, ...] = eqx.field(static=True)  # sensors of the recording, in channel order
    followed: Bool[AnyArray, " axes"]  # which of them a tracking rollout holds to the plan
    along_joints: bool = eqx.field(static=True)  # states stay where stiff joints are closed, wherever the unknowns go
    tangent_size: int = eqx.field(static=True)
    noise_size: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)

    def __init__(
        self,
        system: System,
        params: Params,
        shared: ParameterMap,
        own: ParameterMap,
        noise: ProcessNoise,
        sensors: tuple[int, ...],
        followed: Sequence[bool] | None = None,
    ):
        self.system, self.params, self.shared, self.own, self.noise = system, params, shared, own, noise
        self.sensors = sensors
        self.followed = np.ones(len(system.axes), dtype=bool) if followed is None else np.asarray(followed, dtype=bool)
        unknown = (*shared.paths, *own.paths)
        self.along_joints = noise.kind == "joints" and joint_tangent.applies(system, params, unknown)
        self.tangent_size = 12 * system.num_bodies + len(system.elements) + 3 * len(system.force_sensors)
        self.noise_size = noise.size(system)
        self.num_channels = sum(system.sensors[i].size for i in sensors)

    def following(self, followed: Sequence[bool]) -> "Multibody":
        """The same model, whose tracking gain holds only these axes to the plan."""
        return Multibody(self.system, self.params, self.shared, self.own, self.noise, self.sensors, followed)

    def physical(self, z: Float[Array, " p"]) -> Params:
        """Parameters of the scene with both groups of unknowns set (own offsets add to the shared ones)."""
        params = self.shared.apply(self.params, z[: self.shared.size])
        if self.own.size:
            extra = self.own.apply(jax.tree.map(jnp.zeros_like, params), z[self.shared.size :])
            params = eqx.tree_at(lambda p: p.offset, params, params.offset + extra.offset)
        return params

    def prepare(self, z: Float[Array, " p"]) -> Prep:
        return self.prepared(self.physical(z))

    def prepared(self, params: Params) -> Prep:
        """The same for parameters of the scene. Delays of motors end with the commands that there are."""
        if self.system.history:
            most = longest(self.system) * params.step
            params = eqx.tree_at(lambda p: p.delay, params, jnp.minimum(params.delay, most))
        offsets = [params.offset[i, : self.system.sensors[i].size] for i in self.sensors]
        return Prep(prepare(self.system, params), params.com, jnp.concatenate(offsets))

    def offers(self, capability: type[Capability]) -> Capability | None:
        # an impact moves poses beside the velocities after it, and the noise's effect with them; noise on a body acts
        # on its joints too, and their answer turns with the pose
        # forces of contacts do not follow from the velocities of a step
        bounces, on_bodies = self.system.contacts.bounces, self.noise.kind != "joints"
        moved = bounces or bool(self.system.force_sensors)
        lacks = (capability is CarriedPoses and moved) or (capability is HeldNoise and (moved or on_bodies))
        lacks = lacks or (capability is FreeDirections and not self.along_joints)
        return None if lacks else super().offers(capability)

    # --- states

    def engine_state(self, x: BodyState, com: Float[Array, "bodies 3"]) -> State:
        """The same state at the centres of mass."""
        R = rotation.matrix(x.e)
        r = x.p + matvec(R, com)
        v = x.v + matvec(R, rotation.cross(x.w, com))
        deflection, felt = x.c, None
        if self.system.force_sensors:
            deflection, felt = x.c[: len(self.system.elements)], x.c[len(self.system.elements) :].reshape(-1, 3)
        return State(r, x.e, v, x.w, x.near, jnp.zeros((), dtype=r.dtype), deflection, felt=felt)

    def body_state(self, s: State, com: Float[Array, "bodies 3"]) -> BodyState:
        """The same state at the frames' origins."""
        R = rotation.matrix(s.e)
        p = s.r - matvec(R, com)
        v = s.v - matvec(R, rotation.cross(s.w, com))
        c = s.deflection if s.felt is None else jnp.concatenate([s.deflection, s.felt.reshape(-1)])
        return BodyState(p, s.e, v, s.w, s.near, c)

    def rates(self, x: BodyState, p: Prep) -> Float[Array, " axes"]:
        """Rates of all axes. [rad/s or m/s]"""
        state = self.engine_state(x, p.com)
        return self._axis_rates(state, p, velocity(state))

    def retract(self, x: BodyState, d: Float[Array, " n"]) -> BodyState:
        moved, dc, turned = jnp.split(d, (self._half, self._first_rate))
        dp, dtheta = moved.reshape(2, -1, 3)
        dv, dw = turned.reshape(2, -1, 3)
        return BodyState(x.p + dp, jax.vmap(rotation.plus)(x.e, dtheta), x.v + dv, x.w + dw, x.near, x.c + dc)

    def retract_rates(self, x: BodyState, d: Float[Array, " half"]) -> BodyState:
        dv, dw = d.reshape(2, self.system.num_bodies, 3)
        return BodyState(x.p, x.e, x.v + dv, x.w + dw, x.near, x.c)

    def local(self, x1: BodyState, x0: BodyState) -> Float[Array, " n"]:
        turn = jax.vmap(rotation.minus)(x1.e, x0.e)
        parts = (x1.p - x0.p, turn, x1.c - x0.c, x1.v - x0.v, x1.w - x0.w)
        return jnp.concatenate([part.reshape(-1) for part in parts])

    @property
    def free_size(self) -> tuple[int, int]:
        count = len(joint_tangent.free_axes(self.system))
        return count + self._inner, count

    def free_directions(self, x: BodyState, p: Prep) -> tuple[Float[Array, "n r"], Float[Array, "r n"]]:
        d = joint_tangent.directions(self.system, p.engine, self.engine_state(x, p.com))
        inner, none = jnp.eye(self._inner, dtype=d.poses.dtype), jnp.zeros_like(d.poses)
        beside = jnp.zeros((self._inner, d.poses.shape[1]), dtype=none.dtype)
        aside = jnp.zeros((self._half, self._inner), dtype=none.dtype)
        along = [[d.poses, aside, none], [beside, inner, beside], [d.turning, aside, d.rates]]
        read = [[d.read_poses, beside.T, none.T], [aside.T, inner, aside.T], [none.T, beside.T, d.read_rates]]
        return jnp.block(along), jnp.block(read)

    def led_rates(self, x: BodyState, p: Prep) -> Float[Array, " half"] | None:
        if not self._moves_centres:
            return None
        # velocities belong to the middle of the chord that led here, and levers to its end
        back = jax.vmap(rotation.plus)(x.e, -p.engine.params.step / 2 * x.w)
        lever = matvec(rotation.matrix(back) - rotation.matrix(x.e), p.com)
        v = rotation.cross(matvec(rotation.matrix(x.e), x.w), lever)
        return jnp.concatenate([v, jnp.zeros_like(v)]).reshape(-1)

    @property
    def _moves_centres(self) -> bool:
        """Whether an unknown moves the centre of mass of a body."""
        return any(path.startswith("bodies.") and path.split(".")[2] == "com" for path in self.shared.paths)

    def free_sd(self, sd: float) -> Float[np.ndarray, " r"] | None:
        count = self.free_size[1]
        bound = self.system.dependent or len(self.system.constraints) > 0 or self._inner > 0
        return None if bound else sd * np.repeat([1.0, 10.0], count)

    def start(self, x: BodyState, p: Prep) -> BodyState:
        state = closing.project(self.system, p.engine, self.engine_state(x, p.com))
        return self.body_state(state, p.com)

    # --- the step

    def impulse(self, state: State, p: Prep, w: Float[Array, " m"], noise: Noise) -> Float[Array, "bodies 6"]:
        """Body impulses of whitened noise [N s, N m s]."""
        amount = jnp.asarray(self.noise.density) * noise.process * jnp.sqrt(p.engine.params.step) * w
        if self.noise.kind == "joints":
            b_A, b_B = axes.rate_rows(self.system, frames.kinematics(self.system, state.r, state.e, p.engine.geometry))
            return scatter(self.system, b_A, b_B, amount)
        return amount.reshape(-1, 6) * self._body_scale(p)

    def _body_scale(self, p: Prep) -> Float[Array, "bodies 6"]:
        gyration = jnp.sqrt(jnp.trace(p.engine.J, axis1=1, axis2=2) / (2 * p.engine.params.mass))
        return jnp.concatenate([jnp.ones_like(p.com), jnp.broadcast_to(gyration[:, None], p.com.shape)], axis=1)

    def step(self, x: BodyState, p: Prep, u: Array, w: Array, noise: Noise, guess: Array) -> tuple[BodyState, Array]:
        return self.stepped(x, p, u, w, noise, guess)[:2]

    def stepped(
        self, x: BodyState, p: Prep, u: Array, w: Array, noise: Noise, guess: Array
    ) -> tuple[BodyState, Array, STEP_RESULTS]:
        return self._advance(x, p, u, w, noise, guess, default_solver(self.system))

    def duration(self, p: Prep) -> Scalar:
        return p.engine.params.step

    def first_guess(self) -> Float[Array, " boxes"]:
        return jnp.zeros(len(self.system.boxes))

    def replay(self, x: BodyState, p: Prep, u: Array, w: Array, noise: Noise, guess: Array) -> BodyState:
        return self._advance(x, p, u, w, noise, guess, Replay())[0]

    @property
    def _half(self) -> int:
        """Components of a pose, and of a velocity."""
        return 6 * self.system.num_bodies

    @property
    def _first_rate(self) -> int:
        """The component of a tangent at which its velocities begin."""
        return self._half + self._inner

    @property
    def _inner(self) -> int:
        """Components between poses and velocities: elasto-slide elements and forces of contacts."""
        return len(self.system.elements) + 3 * len(self.system.force_sensors)

    @property
    def carried(self) -> int:
        return self._first_rate

    def first_sd(self, x: BodyState, p: Prep, sd: Scalar) -> Float[Array, " n"]:
        # blocks that slipped some time may stand anywhere in their reach
        pose = jnp.full(self._half, sd, dtype=p.com.dtype)
        felt = jnp.full(3 * len(self.system.force_sensors), sd, dtype=p.com.dtype)  # which is read of later states
        return jnp.concatenate([pose, p.engine.params.element_reach, felt, 10 * pose])

    def carry(self, x: BodyState, x1: BodyState, p: Prep) -> BodyState:
        v, e = self._centre_velocity(x, x1, p)
        r = x.p + matvec(rotation.matrix(x.e), p.com) + p.engine.params.step * v
        c = x.c
        if self.system.elements:
            rate = self._axis_rates(self.engine_state(x, p.com), p, jnp.concatenate([v, x1.w], axis=-1))
            c = boxes.stretched(self.system, p.engine.params, x.c, rate)
        return BodyState(r - matvec(rotation.matrix(e), p.com), e, x1.v, x1.w, x1.near, c)

    def _axis_rates(self, state: State, p: Prep, speed: Float[Array, "bodies 6"]) -> Float[Array, " axes"]:
        b = axes.rate_rows(self.system, frames.kinematics(self.system, state.r, state.e, p.engine.geometry))
        return axes.rates(self.system, *b, speed)

    def same_noise(self, x: BodyState, p: Prep, w: Float[Array, " m"], p_now: Prep) -> Float[Array, " m"]:
        both = jax.tree.map(lambda *a: jnp.stack(a), p, p_now)
        yielding = _YIELDING if self.system.dependent else 0.0
        N, N_now = jax.vmap(lambda q: self.axis_compliance(self.engine_state(x, q.com), q, yielding))(both)
        return small.solve(N, matvec(N_now, w))

    def pushed(
        self, x: BodyState, p: Prep, u: Array, w: Array, noise: Noise, guess: Array, push: Float[Array, " half"]
    ) -> BodyState:
        return self._advance(x, p, u, w, noise, guess, Replay(), push.reshape(-1, 6))[0]

    def needed(self, x: BodyState, x1: BodyState, p: Prep, change: Float[Array, " half"]) -> Float[Array, " half"]:
        # K (v, lam) = (impulse, 0) for a change of the impulse: one that follows the inertia leaves v as it is
        def centres(d: Array) -> Float[Array, "bodies 6"]:
            faster = self.retract_rates(x1, d)
            v, _ = self._centre_velocity(x, faster, p)
            return jnp.concatenate([v, faster.w], axis=-1)

        _, moved = jax.jvp(centres, (jnp.zeros_like(change),), (change,))
        return self._momentum(self.engine_state(x, p.com), p, moved).reshape(-1)

    def _centre_velocity(self, x: BodyState, x1: BodyState, p: Prep) -> tuple[Array, Array]:
        """Velocities of the centres of mass for those of the frames in x1, and the orientations they turn x to."""
        e = jax.vmap(rotation.plus)(x.e, p.engine.params.step * x1.w)
        return x1.v + matvec(rotation.matrix(e), rotation.cross(x1.w, p.com)), e

    def _momentum(self, state: State, p: Prep, change: Float[Array, "bodies 6"]) -> Float[Array, "bodies 6"]:
        """Impulse that a change of the velocities needs, joints left out: inertia, rotors, implicit friction."""
        dv, dw = change[:, :3], change[:, 3:]
        engine, h = p.engine, p.engine.params.step
        _, block = jax.vmap(gyro.free_motion, (0, 0, None))(state.w, engine.J, h)
        out = jnp.concatenate([engine.params.mass[:, None] * dv, matvec(block, dw)], axis=1)
        if self.system.air:
            out = out + matvec(air.resistance(self.system, engine, velocity(state)).block, change)
        if not self.system.axes:
            return out
        b_A, b_B = axes.rate_rows(self.system, frames.kinematics(self.system, state.r, state.e, engine.geometry))
        kappa, _ = damping(self.system, engine, axes.rates(self.system, b_A, b_B, velocity(state)))
        return out + scatter(self.system, b_A, b_B, kappa * axes.rates(self.system, b_A, b_B, change))

    def _advance(self, x, p, u, w, noise, guess, solver, more: Array | float = 0.0):
        state, command = self.commanded(x, p, u)
        impulse = self.impulse(state, p, w, noise) + more
        after, info = step(self.system, p.engine, state, command, impulse, solver=solver, guess=guess)
        return self.body_state(after, p.com), info.levels, info.result

    def commanded(self, x: BodyState, p: Prep, u: Array) -> tuple[State, Float[Array, " motors"]]:
        """The engine's state and the command of a step; with delays of motors u has those of earlier steps, too."""
        state = self.engine_state(x, p.com)
        if not self.system.history:
            return state, u
        return eqx.tree_at(lambda s: s.commands, state, u[1:], is_leaf=lambda a: a is None), u[0]

    def tracking_gain(self, x: BodyState, p: Prep, noise: Noise) -> Float[Array, "m n"]:
        """K of w = w_planned + K (planned box-minus actual): dv in full, dq damped with 0.3 / h per step."""
        h = p.engine.params.step
        scale = jnp.reshape(self.noise.density * noise.process * jnp.sqrt(h), (-1, 1))
        nb = self.system.num_bodies
        unfelt = jnp.zeros((self.noise_size, self._inner), dtype=h.dtype)
        if self.noise.kind == "bodies":
            mass = jnp.broadcast_to(p.engine.params.mass[:, None, None] * np.eye(3)[None], (nb, 3, 3))
            G = scale[0, 0] * self._body_scale(p)
            K = jnp.zeros((nb, 6, 4, nb, 3), dtype=h.dtype)
            body = np.arange(nb)
            for part, block in ((0, mass), (1, p.engine.J)):
                rows = slice(3 * part, 3 * part + 3)
                gain = block / G[:, rows, None]
                K = K.at[body, rows, part, body].set(0.3 / h * gain).at[body, rows, 2 + part, body].set(gain)
            by_pose, by_rate = jnp.split(K.reshape(6 * nb, 12 * nb), 2, axis=1)
            return jnp.concatenate([by_pose, unfelt, by_rate], axis=1)
        state = self.engine_state(x, p.com)
        N = self.axis_compliance(state, p, _YIELDING if self.system.dependent else 0.0)
        rows = self.axis_rows(state, p)
        mask = jnp.asarray(self.followed)
        N = jnp.where(mask[:, None] & mask[None], N, jnp.diag(jnp.diagonal(N)))
        rows = jnp.where(mask[:, None], rows, 0.0)
        by_rate = small.solve(N, rows) / scale
        return jnp.concatenate([0.3 / h * by_rate, unfelt, by_rate], axis=1)

    def axis_rows(self, state: State, p: Prep) -> Float[Array, "axes half"]:
        """Axis rates as rows on the tangent of velocities (frame origins)."""
        kin = frames.kinematics(self.system, state.r, state.e, p.engine.geometry)
        b_A, b_B = axes.rate_rows(self.system, kin)
        R = rotation.matrix(state.e)

        def rates(d: Array) -> Array:
            dv, dw = d.reshape(2, -1, 3)
            v = dv + matvec(R, rotation.cross(dw, p.com))
            return axes.rates(self.system, b_A, b_B, jnp.concatenate([v, dw], axis=-1))

        return jax.jacfwd(rates)(jnp.zeros(self._half, dtype=state.r.dtype))

    def axis_compliance(self, state: State, p: Prep, yielding: float = 0.0) -> Float[Array, "axes axes"]:
        """b M_Sigma^-1 b^T: change of axis rates per axis impulse, friction left out [1/(kg m^2), 1/kg].

        `yielding`: how much softer every axis is taken to be, as a share of itself and of what its bodies would do
        without joints. In loops nothing but the compliance of joints answers to impulses that work against each other.
        """
        system = self.system
        rows = assemble(system, p.engine, state, jnp.zeros(len(system.motors)), jnp.zeros((system.num_bodies, 6)))
        lu = saddle.factor(system, rows)
        unit = jnp.eye(len(system.axes), dtype=state.r.dtype)
        columns = jax.vmap(lambda a: scatter(system, rows.b_A, rows.b_B, a), out_axes=-1)(unit)
        v, _ = saddle.solve(system, lu, columns, jnp.zeros((*rows.a.shape, len(system.axes)), dtype=rows.a.dtype))
        N = jax.vmap(lambda c: axes.rates(system, rows.b_A, rows.b_B, c), in_axes=-1, out_axes=-1)(v)
        if yielding:
            N = N + yielding * jnp.diag(jnp.diagonal(N) + closing.free_mobility(rows, columns))
        return N

    # --- the same step read backwards

    def earlier(self, x: BodyState, p: Prep) -> BodyState:
        return self.body_state(self.engine_state(x, p.com).moved(-p.engine.params.step), p.com)

    def joined(self, x: BodyState, x1: BodyState, p: Prep) -> BodyState:
        h = p.engine.params.step
        now, after = self.engine_state(x, p.com), self.engine_state(x1, p.com)
        w = jax.vmap(rotation.minus)(after.e, now.e) / h
        after = eqx.tree_at(lambda s: (s.v, s.w), after, ((after.r - now.r) / h, w))
        return self.body_state(after, p.com)

    def transition(self, x: BodyState, x1: BodyState, p: Prep, u: Array, noise: Noise) -> Transition:
        """Inverse dynamics, in units of the noise."""
        (state, command), v1 = self.commanded(x, p, u), velocity(self.engine_state(x1, p.com))
        rows, *_ = step_rows(self.system, p.engine, state, command, jnp.zeros_like(v1))
        return self._explain(rows, v1, p, noise)

    def _explain(self, rows: Rows, v1: Float[Array, "bodies 6"], p: Prep, noise: Noise) -> Transition:
        if self.system.elements:
            raise ValueError("the residual form knows no elasto-slide elements: choose `form: simulator`")
        if self.system.force_sensors:
            raise ValueError("the residual form knows no forces of contacts: choose `form: simulator`")
        if self.noise.kind != "bodies":
            raise ValueError(
                "the residual form needs process noise on every body: write `process_noise: {kind: bodies}`, "
                "or choose `form: simulator`, which also takes noise on the joints only"
            )
        lam, level = multipliers(self.system, rows, v1)
        unit = self.noise.density * noise.process * jnp.sqrt(p.engine.params.step) * self._body_scale(p)
        w = saddle.balance(self.system, rows, v1, lam, level) / unit
        return Transition(w.reshape(-1), lam.reshape(-1), level)

    def restore(
        self, x: BodyState, x1: BodyState, p: Prep, u: Array, noise: Noise, impulse: Float[Array, " r"]
    ) -> tuple[BodyState, Transition]:
        # With the plan's velocity v and impulses lam, the body impulse p0 = D v - G^T lam of the plan stays and the
        # rows hold:  D v+ - G^T lam+ = p0,  G v+ + Sigma lam+ + a = 0,  solved for (v+ - v, lam+ - lam).
        state, command = self.commanded(x, p, u)
        v = velocity(self.engine_state(self.joined(x, x1, p), p.com))
        rows, state, *_ = step_rows(self.system, p.engine, state, command, jnp.zeros_like(v))
        wrong = saddle.gaps(self.system, rows, v) + rows.sigma * impulse.reshape(rows.a.shape)
        lu = saddle.factor(self.system, rows)
        dv, _ = saddle.solve(self.system, lu, jnp.zeros((*v.shape, 1)), -wrong[..., None])
        v = v + dv[..., 0]
        after = advance(self.system, p.engine, state, rows, v)
        return self.body_state(after, p.com), self._explain(rows, v, p, noise)

    # --- sensors

    def observe(
        self, x: BodyState, x1: BodyState, p: Prep, s: Scalar | Float[Array, " channels"]
    ) -> Float[Array, " channels"]:
        """Readings at t_k + s h; what a sensor with a `delay` says then is that much older."""
        now, after = self.engine_state(x, p.com), self.engine_state(x1, p.com)
        return readings(self.system, p.engine, self.sensors, now, after, s) + p.offset

    def difference(self, y: Array, predicted: Array) -> Float[Array, " channels"]:
        """y minus predicted; of rotation vectors the one that leads from the predicted orientation to the read one."""
        sizes = [self.system.sensors[i].size for i in self.sensors]
        begin = np.cumsum([0, *sizes]).tolist()
        poses = [b for i, b in zip(self.sensors, begin, strict=False) if self.system.sensors[i].type == "body_pose"]
        if not poses:
            return y - predicted
        turns = np.array(poses, dtype=int)[:, None] + np.arange(3, 6)
        read, said = (rotation.exp(a[turns]) for a in (y, predicted))
        return (y - predicted).at[turns].set(jax.vmap(rotation.minus)(read, said))
