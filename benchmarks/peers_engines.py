"""Pinocchio, Drake and exudyn as peers on chains of hinges without friction. All are optional."""

import dataclasses
import importlib.metadata
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from spookax.mjcf import write_mjcf

from . import peer
from .mechanisms import Mechanism

Motion = tuple[np.ndarray, np.ndarray]  # positions and rates after every step, (steps, joints)


@dataclasses.dataclass(frozen=True)
class Engine:
    """`run`: so many steps from the start; `motion`: the same, with positions and rates after every step."""

    label: str
    run: Callable[[int], Any]
    motion: Callable[[int], Motion]


def pinocchio(mechanism: Mechanism) -> Engine:
    """Articulated bodies and symplectic Euler; it has no loop of its own, so that every step is called from Python."""
    pin = peer.module("pinocchio")
    with _file(mechanism) as file:
        model = pin.buildModelFromMJCF(file)
    data, h, none, (q0, v0) = model.createData(), mechanism.scene.step, np.zeros(model.nv), _start(mechanism)

    def run(steps: int) -> Motion:
        q, v, found = q0, v0, []
        for _ in range(steps):
            v = v + h * pin.aba(model, data, q, v, none)
            q = pin.integrate(model, q, h * v)
            found.append((q, v))
        return np.array([q for q, _ in found]), np.array([v for _, v in found])

    return Engine(f"Pinocchio {importlib.metadata.version('pin')}", run, run)


def drake(mechanism: Mechanism) -> Engine:
    """Its discrete plant in its own loop."""
    plants, parsing = peer.module("pydrake.multibody.plant"), peer.module("pydrake.multibody.parsing")
    analysis, h = peer.module("pydrake.systems.analysis"), mechanism.scene.step
    logging.getLogger("drake").setLevel(logging.ERROR)  # MJCF says the step, which is given here
    plant = plants.MultibodyPlant(h)
    with _file(mechanism) as file:
        parsing.Parser(plant).AddModels(file)
    plant.Finalize()
    simulator = analysis.Simulator(plant)
    context, (q0, v0) = simulator.get_mutable_context(), _start(mechanism)

    def begin() -> None:
        context.SetTime(0.0)
        plant.SetPositions(context, q0)
        plant.SetVelocities(context, v0)
        simulator.Initialize()

    def run(steps: int) -> None:
        begin()
        simulator.AdvanceTo(steps * h)

    def motion(steps: int) -> Motion:
        begin()
        found = []
        for k in range(steps):
            simulator.AdvanceTo((k + 1) * h)
            found.append((plant.GetPositions(context).copy(), plant.GetVelocities(context).copy()))
        return np.array([q for q, _ in found]), np.array([v for _, v in found])

    return Engine(f"Drake {importlib.metadata.version('drake')}", run, motion)


def exudyn(mechanism: Mechanism) -> Engine:
    """Minimal coordinates (kinematic tree) and generalised alpha, its default, in its own loop."""
    exu, items = peer.module("exudyn"), peer.module("exudyn.itemInterface")
    scene, count, (q0, v0) = mechanism.scene, len(mechanism.scene.joints), _start(mechanism)
    bodies, joints, h = list(scene.bodies.values()), list(scene.joints.values()), scene.step
    turns = [exu.JointType.RevoluteX if joint.axis[0] else exu.JointType.RevoluteY for joint in joints]
    container = exu.SystemContainer()
    system = container.AddSystem()
    node = system.AddNode(
        items.NodeGenericODE2(
            referenceCoordinates=np.zeros(count),
            initialCoordinates=q0,
            initialCoordinates_t=v0,
            numberOfODE2Coordinates=count,
        )
    )
    tree = items.ObjectKinematicTree(
        nodeNumber=node,
        jointTypes=turns,
        linkParents=np.arange(-1, count - 1),
        jointTransformations=exu.Matrix3DList([np.eye(3)] * count),
        jointOffsets=exu.Vector3DList([list(joint.at) for joint in joints]),
        linkInertiasCOM=exu.Matrix3DList([np.diag([b.inertia.xx, b.inertia.yy, b.inertia.zz]) for b in bodies]),
        linkCOMs=exu.Vector3DList([list(body.com) for body in bodies]),
        linkMasses=[body.mass for body in bodies],
        gravity=list(scene.gravity),
    )
    system.AddObject(tree)
    kinds = exu.OutputVariableType.Coordinates, exu.OutputVariableType.Coordinates_t
    sensors = [
        system.AddSensor(items.SensorNode(nodeNumber=node, outputVariableType=kind, storeInternal=True))
        for kind in kinds
    ]
    system.Assemble()

    def run(steps: int, kept: float = 1e9) -> None:
        settings = exu.SimulationSettings()
        settings.timeIntegration.numberOfSteps, settings.timeIntegration.endTime = steps, steps * h
        settings.timeIntegration.verboseMode = 0
        settings.solutionSettings.writeSolutionToFile = False
        settings.solutionSettings.sensorsWritePeriod = kept
        system.SolveDynamic(settings)

    def motion(steps: int) -> Motion:
        run(steps, h)
        q, v = (system.GetSensorStoredData(sensor)[1:, 1:] for sensor in sensors)
        return q, v

    return Engine(f"exudyn {importlib.metadata.version('exudyn')}", run, motion)


ENGINES = {"Pinocchio": ("pinocchio", pinocchio), "Drake": ("pydrake", drake), "exudyn": ("exudyn", exudyn)}


def engines(chain: Mechanism) -> list[Engine]:
    """Those that are installed, with a chain of hinges about x or y that hang from each other."""
    return [of(chain) for name, of in ENGINES.values() if peer.module(name)]


@contextmanager
def _file(mechanism: Mechanism) -> Iterator[str]:
    """The mechanism as MJCF, for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scene.xml"
        write_mjcf(peer.exported(mechanism.scene), file)
        yield str(file)


def _start(mechanism: Mechanism) -> Motion:
    """Positions and rates of the joints at the start, in order."""
    found = np.array([mechanism.starts().get(joint, (0.0, 0.0)) for joint in mechanism.scene.joints])
    return found[:, 0], found[:, 1]
