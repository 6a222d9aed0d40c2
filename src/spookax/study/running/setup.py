"""From a study and its recordings to what the estimators take: model, samples, unknowns, stages, a first trajectory."""

import dataclasses
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import numpy as np

from ..._compiled import on_device
from ..._typing import AnyArray
from ...estimation import Problem, Stage
from ...estimation.batch import step_blocks
from ...estimation.batch.one_recording import Plan, follow, stiff_gains
from ...estimation.batch.problem import Iterate
from ...estimation.linearise import Path, all_successful, before
from ...models import Free, Multibody, ParameterMap, ProcessNoise, Tie
from ...models.parameters import natural_values
from ...protocol import Noise
from ...scene import Scene
from ...scene.expression import Expression, in_order
from ...scene.parts import Initial
from ...scene.paths import numeric_paths, unit_of, wholes
from ...system import Params, System, build
from ..file.bodies import possible
from ..file.delays import default_upper, longest_delays, steps_earlier
from ..file.study import RecordingSpec, Study
from ..recordings.grid import Grid, grid_of, samples_of, sensor_sd, smooth
from ..recordings.recording import Recording
from ..recordings.sight import first_root_weights, without_gross
from ..recordings.step_size import chosen_step
from .plan import planned

_FRICTION_SPEEDS = (0.05, 0.01, 0.002)  # of the stages, in RMS rates of the slowest joint that moves
_AT_REST = 0.05  # of the fastest joint's RMS rate: below it a joint rests
USUAL_RATE = 2.0  # where no joint is read [rad/s or m/s]
_LEAST_SD = 0.1  # of a sensor's `sd`
_ROUNDING = 1e-12  # difference of two readings that are equal
WEIGHTS_SD = 1.0  # prior of a network's weights where the study gives none: about the size of drawn ones


@dataclasses.dataclass(frozen=True)
class Setup:
    """A study ready to be estimated."""

    scene: Scene
    system: System
    params: Params
    model: Multibody
    recordings: tuple[Recording, ...]
    grids: tuple[Grid, ...]
    sensors: tuple[str, ...]
    sensor_sd: np.ndarray  # of every channel
    problem: Problem
    stages: tuple[Stage, ...]
    density: float
    friction_speed: tuple[float, ...]  # of every stage [rad/s or m/s]
    clean: tuple[Recording, ...]  # the recordings without gross outliers, where the study allows for some
    outliers: float  # share of the readings that may be wild, or zero
    beginnings: tuple[Scene, ...]  # the scene where each recording begins, as far as its `initial` tells

    @property
    def channels(self) -> list[str]:
        """The sensor that each channel belongs to."""
        return [s for s in self.sensors for _ in range(self.system.sensors[self.system.sensor_index(s)].size)]

    def by_sensor(self, readings: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Numbers of all channels (samples, channels), sensor by sensor."""
        column = 0
        for name in self.sensors:
            size = self.system.sensors[self.system.sensor_index(name)].size
            yield name, readings[:, column : column + size]
            column += size

    def unit_of(self, path: str) -> str:
        """The SI unit of a parameter. The gain of a torque motor is per unit of the input that the recordings have."""
        load, per_input, _ = (unit := unit_of(self.scene, path)).partition("/u")
        if not per_input:
            return unit
        given = {
            u for recording in self.recordings for m, u in recording.input_units.items() if m == path.split(".")[1]
        }
        if len(given) != 1:
            return unit
        (each,) = given
        return {"1": load, load: "1"}.get(each, f"{load}/({each})" if " " in each else f"{load}/{each}")

    def replaced(self, z: AnyArray) -> "Setup":
        """The same with readings where the delays of sensors put them at z; itself where they lie there."""
        numbers = numeric_paths(self.scene) | _values(self.model.shared, z)
        earlier = steps_earlier(self.scene, self.system, self.sensors, numbers)
        if earlier is None or all(np.array_equal(earlier, grid.earlier) for grid in self.grids):  # pyright: ignore
            return self
        moved = [g.replaced(s, earlier) for g, s in zip(self.grids, self.problem.samples, strict=True)]
        grids, samples = zip(*moved, strict=True)
        problem, roots = dataclasses.replace(self.problem, samples=samples), self.problem.root_weights
        if roots is not None:
            each = zip(self.grids, grids, roots, strict=True)
            moved = tuple(new.placed(old.taken(root), root.shape[1], 1.0) for old, new, root in each)
            problem = dataclasses.replace(problem, root_weights=moved)
        return dataclasses.replace(self, grids=grids, problem=problem)

    def plans(self) -> list[tuple[Path, tuple[bool, ...]]]:
        """Where the first trajectory of every recording is meant to go, without noise, and which axes lead."""
        found = []
        for recording, grid, scene in zip(self.clean, self.grids, self.beginnings, strict=True):
            x, led = planned(scene, self.model, self.sensors, recording, grid)
            x = jax.tree.map(lambda a: np.concatenate([a, np.asarray(a)[-1:]]), x)
            w, guess = np.zeros((grid.steps, self.model.noise_size)), np.zeros((grid.steps, len(self.system.boxes)))
            found.append((Path(x, w, guess, all_successful(grid.steps)), led))
        return found

    def start(self, plans: list[tuple[Path, tuple[bool, ...]]] | None = None) -> Iterate:
        """A trajectory of the first stage's simulator that follows the smoothed readings (`plans()`)."""
        stage, z = self.stages[0], self.problem.z0
        own = np.zeros(self.model.own.size)
        all_z = np.concatenate([z, own])
        assert isinstance(stage.model, Multibody)
        paths = []
        for (path, measured), samples in zip(plans or self.plans(), self.problem.samples, strict=True):
            ahead = before(path.x)
            gains = stiff_gains(stage.model.following(measured), all_z, stage.noise, ahead)
            paths.append(follow(stage.model, all_z, stage.noise, Plan(ahead, path.w, gains), samples.u, path.guess[0]))
        return Iterate(z, tuple(own for _ in paths), tuple(paths))


def free_parameters(study: Study, scene: Scene, bounded: bool = True) -> tuple[Free, ...]:
    """The unknowns of a study with their starts.

    Without bounds, which filters do not keep, numbers that may be zero stay positive as logarithms, and nothing keeps
    bodies possible whose moments are unknown one by one.
    """
    free, numbers, several = [], numeric_paths(scene), wholes(scene)
    for path, spec in study.parameters.items():
        start = several.get(path) or float(spec.start if spec.start is not None else numbers[path])
        lower = -np.inf if spec.lower is None else spec.lower
        upper = spec.upper
        if upper is None:
            upper = np.inf if path in several else default_upper(path, start)  # pyright: ignore[reportArgumentType]
        sd = spec.prior_sd or (WEIGHTS_SD if spec.transform == "network" else None)
        transform = "log" if spec.transform == "sinh" and not bounded else spec.transform
        free.append(Free(path, start, lower, upper, transform, sd))
    return possible(scene, free, study.ties) if bounded else tuple(free)


def tied_parameters(study: Study, scene: Scene, free: tuple[Free, ...]) -> tuple[Tie, ...]:
    """What follows from the unknowns, each after those that it needs; the rest of an expression is the scene's."""
    ties, numbers = {path: Expression(text) for path, text in study.ties.items()}, numeric_paths(scene)
    unknown = {path for f in free for path in f.paths}.union(ties)
    found = []
    for path in in_order(ties):
        known = tuple((p, numbers[p]) for p in ties[path].paths if p not in unknown)
        found.append(Tie(path, ties[path], known))
    return tuple(found)


def set_up(
    study: Study,
    scene: Scene,
    recordings: list[Recording],
    step: float | None = None,
    least: int = 0,
    changing: frozenset[str] = frozenset(),
    bounded: bool = True,
    slots: int = 1,
) -> Setup:
    """Everything that `identify` needs.

    `step` overrides what study, scene and recordings say [s]; in the residual form every recording is given at least
    `least` steps.
    `changing`: paths of numbers that are not unknown, but are given other values later. `bounded`: whether the
    estimator keeps bounds. `slots`: readings of a step that there is room for at least.
    """
    settings = study.estimator
    h = step or chosen_step(study, scene, recordings)
    scene = scene.model_copy(update={"step": h})
    free, numbers = free_parameters(study, scene, bounded), numeric_paths(scene)
    longest = longest_delays(study, numbers, free)
    system, params = build(scene, unknown=changing.union(study.parameters, study.ties), longest=longest)
    shared = ParameterMap(system, free, tied_parameters(study, scene, free))
    sensors = tuple(s for s in scene.sensors if any(s in spec.sensors for spec in study.recordings))
    own = own_offsets(study.recordings, system)
    given = settings.process_noise.density
    density = max(given.values()) if isinstance(given, dict) else given
    level = np.array([given[n] / density for n in system.axis_names()]) if isinstance(given, dict) else np.ones(())
    kind = "bodies" if scene.adrift() and not isinstance(given, dict) else "joints"
    noise = ProcessNoise(settings.process_noise.kind or kind, density)
    indices = tuple(system.sensor_index(s) for s in sensors)
    model = Multibody(system, params, shared, own, noise, indices)
    sd = np.concatenate([np.full(system.sensors[system.sensor_index(n)].size, sensor_sd(scene, n)) for n in sensors])

    earlier = steps_earlier(scene, system, sensors, numbers | _values(shared, shared.start()))
    grids = [dataclasses.replace(grid_of(r.time, h), earlier=earlier) for r in recordings]
    # the residual form compiles for whole recordings, and all alike; the simulator form for blocks
    multiple = max(least, *(g.steps for g in grids)) if settings.form == "residual" else step_blocks.BLOCK
    grids = [g.extended(multiple) for g in grids]
    slots = max(slots, *(int(g.slot_of.max()) + 1 for g in grids))
    motors = tuple(m.name for m in system.motors)
    full = [_with_all_sensors(r, sensors, system) for r in recordings]
    clean, roots = full, None
    if settings.outliers:
        ends = np.cumsum([system.sensors[system.sensor_index(s)].size for s in sensors])[:-1]
        sd_of = dict(zip(sensors, np.split(sd, ends), strict=True))
        clean = [without_gross(r, sd_of) for r in full]
        roots = tuple(
            first_root_weights(r, c, g, sensors, sd, slots) for r, c, g in zip(full, clean, grids, strict=True)
        )
    samples = tuple(
        samples_of(g, r, motors, sensors, slots, sd, spec.time_sd, spec.every, c, system.history)
        for g, r, c, spec in zip(grids, full, clean, study.recordings, strict=True)
    )

    z0 = shared.start()
    lower, upper = shared.bounds()
    levels = {"least_sd": _least_sd(clean, sensors, sd), "root_weights": roots}
    problem = Problem(samples, z0, z0.copy(), shared.prior_weight(), lower, upper, own.prior_weight(), **levels)
    speeds = settings.friction_speed or _friction_speeds(system, sensors, clean)
    speeds = speeds if system.axes else speeds[-1:]  # of joints, without which stages are all alike
    count = max(len(speeds), len(settings.noise_scale))
    stages: list[Stage] = []
    wider: tuple[Multibody, ...] = ()
    for i in range(count):
        speed = speeds[min(i, len(speeds) - 1)]
        scale = settings.noise_scale[min(i, len(settings.noise_scale) - 1)]
        staged = eqx.tree_at(lambda m: m.params.v_creep, model, on_device(speed))
        process = on_device(scale * level)
        stages.append(Stage(staged, Noise(process, on_device(sd)), wider))
        if system.friction_axes and i + 1 < len(speeds) and speeds[i + 1] < speed:
            wider = (staged, *wider)
    return Setup(
        scene,
        system,
        params,
        model,
        tuple(full),
        tuple(grids),
        sensors,
        sd,
        problem,
        tuple(stages),
        density,
        tuple(speeds),
        tuple(clean),
        settings.outliers or 0.0,
        tuple(_beginning(scene, spec) for spec in study.recordings),
    )


def _beginning(scene: Scene, spec: RecordingSpec) -> Scene:
    """The scene with the first guesses of a recording in place of its own."""
    initial = dict(scene.initial)
    for axis, start in spec.initial.items():
        initial[axis] = initial.get(axis, Initial()).model_copy(update=start.model_dump(exclude_none=True))
    return scene.model_copy(update={"initial": initial})


def _values(shared: ParameterMap, z: AnyArray) -> dict[str, float]:
    """Path -> natural value of every unknown and of what is tied to them."""
    if not any(path.endswith(".delay") for path in shared.paths):
        return {}
    return dict(zip(shared.paths, np.asarray(natural_values(shared, on_device(z))[0]).tolist(), strict=True))


def _friction_speeds(system: System, sensors: tuple[str, ...], recordings: list[Recording]) -> tuple[float, ...]:
    """Speeds of the stages relative to how fast the slowest joint moves that moves at all. [rad/s or m/s]"""
    rates = np.array(list(measured_rates(system, sensors, recordings).values()))
    moving = rates[rates > _AT_REST * np.max(rates, initial=0.0)]
    usual = float(np.min(moving)) if moving.size else USUAL_RATE
    return tuple(float(f"{part * usual:.2g}") for part in _FRICTION_SPEEDS)


def measured_rates(system: System, sensors: Sequence[str], recordings: Sequence[Recording]) -> dict[int, float]:
    """RMS rate of every axis that a sensor reads, of its number in `System.axes`. [rad/s or m/s]"""
    squares: dict[int, list[np.ndarray]] = {}
    for name in sensors:
        sensor = system.sensors[system.sensor_index(name)]
        for r in recordings:
            value = r.sensors[name][:, 0]
            if sensor.type in ("joint_position", "joint_rate") and np.isfinite(value).sum() > 3:
                rate = value if sensor.type == "joint_rate" else smooth(r.time, r.time, value)[1]
                squares.setdefault(sensor.target, []).append(rate[np.isfinite(rate)] ** 2)
    return {axis: float(np.sqrt(np.mean(np.concatenate(values)))) for axis, values in squares.items()}


def _least_sd(recordings: list[Recording], sensors: tuple[str, ...], sd: np.ndarray) -> np.ndarray:
    """What the noise of every channel is at least: rounding to the steps of its readings; a tenth of its `sd`."""
    least, column = _LEAST_SD * sd, 0
    for name in sensors:
        readings = np.concatenate([r.sensors[name] for r in recordings])
        for values in readings.T:
            steps: list[float] = np.diff(np.unique(values[np.isfinite(values)])).tolist()
            smallest = min((step for step in steps if step > _ROUNDING), default=0.0)
            least[column] = max(least[column], smallest / np.sqrt(12))
            column += 1
    return least


def own_offsets(specs: list[RecordingSpec], system: System) -> ParameterMap:
    """Zero offsets that belong to a recording: the same kinds in every recording, with their prior sd."""
    sds: dict[str, float] = {}
    for spec in specs:
        for sensor, sd in spec.offsets.items():
            sds[sensor] = max(sds.get(sensor, 0.0), sd)
    free = []
    for sensor, sd in sds.items():
        size = system.sensors[system.sensor_index(sensor)].size
        suffixes = [""] if size == 1 else [f".{i}" for i in range(size)]
        for suffix in suffixes:
            free.append(Free(f"sensors.{sensor}.offset{suffix}", 0.0, transform="identity", prior_sd=sd))
    return ParameterMap(system, tuple(free))


def _with_all_sensors(recording: Recording, sensors: tuple[str, ...], system: System) -> Recording:
    """Sensors that another recording has but this one lacks, as missing throughout."""
    missing = {
        s: np.full((len(recording.time), system.sensors[system.sensor_index(s)].size), np.nan)
        for s in sensors
        if s not in recording.sensors
    }
    return dataclasses.replace(recording, sensors={**recording.sensors, **missing})
