"""Geoms of a compiled model as surfaces that touch."""

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spookax.mjcf import looks
from spookax.mjcf.compiler import Names
from spookax.mjcf.frame_poses import numbers, rotation_vector
from spookax.mjcf.source import WORLD, Source
from spookax.scene.contacts import DEFAULT, joined_bodies, kind_of_pair, pairs_of
from spookax.scene.hulls import refusal
from spookax.scene.shapes import Mesh

_KEYS = "friction", "spinning_friction", "rolling_friction"
_FROM = 3, 4, 6  # MuJoCo's `condim` from which on there is friction of these kinds
_ALIKE = 1e-9  # relative difference of friction that is none


@dataclass(frozen=True)
class _Pair:
    """Two geoms that may collide, and what MuJoCo makes of their numbers."""

    first: int
    second: int
    friction: tuple[float, ...]  # of `_KEYS`
    margin: float


def read_contacts(source: Source, joints: dict[str, Any]) -> dict[str, Any] | None:
    """The section `contacts` of a scene, nothing if nothing can touch. `joints`: of the scene.

    Pairs are those that MuJoCo's rules let collide. Those of types that cannot touch here are listed, and so are
    friction and margins of pairs that do not follow from those of their surfaces.
    """
    pairs = _pairs(source)
    kinds = {pair: _kind(source, pair) for pair in pairs}
    lost = Counter(kind for kind in kinds.values() if kind and kind_of_pair(*kind) is None)
    if lost:
        text = ", ".join(f"{' on '.join(kind)}: {count}" for kind, count in sorted(lost.items()))
        cure = "Switch these off (`contype` and `conaffinity` 0), or use other types."
        source.report.add("contacts", f"pairs of geoms of these types cannot touch here: {text}", cure)
    kept = [pair for pair, kind in kinds.items() if kind and kind_of_pair(*kind) is not None]
    meshes = _meshes(source, kept)
    kept = [pair for pair in kept if None not in (meshes.get(g, {}) for g in (pair.first, pair.second))]
    if not kept:
        return None
    names, own = Names(), {}
    level: dict[int, tuple[float, ...]] = {}
    margin = _margins(source)
    for p in kept:
        for g in (p.first, p.second):
            level[g] = tuple(map(min, level.get(g, p.friction), p.friction))
    levels = sorted(set(level.values()))
    material = {value: DEFAULT if i == 0 else f"{DEFAULT}_{i + 1}" for i, value in enumerate(levels)}
    surfaces: dict[str, Any] = {}
    for g in sorted(level):
        own[g] = names.new(source.name("geom", g), f"geom{g}")
        surfaces[own[g]] = _surface(source, g, meshes.get(g)) | {"material": material[level[g]]}
        surfaces[own[g]] |= {"margin": float(margin[g])} if margin[g] else {}
    for p in kept:
        what = f"pair '{source.name('geom', p.first)}', '{source.name('geom', p.second)}'"
        for key, wanted, found in zip(_KEYS, p.friction, map(max, level[p.first], level[p.second]), strict=True):
            if abs(found - wanted) > _ALIKE * (1 + wanted):
                kind = key.replace("_", " ")
                message = f"its {kind} is {wanted:g}, and would be {found:g} here: the larger of that of both surfaces"
                source.report.add(what, message, "Give both geoms friction of which it is the larger.")
        if abs((found := float(margin[p.first] + margin[p.second])) - p.margin) > _ALIKE:
            message = f"its margin is {p.margin:g}, and would be {found:g} here: those of both surfaces add up"
            source.report.add(what, message, "Give both geoms margins that add up to it.")
    data = {
        "materials": {name: _material(value) for value, name in material.items()},
        "combine": "max",
        "surfaces": surfaces,
    }
    wanted = [(own[p.first], own[p.second]) for p in kept]
    by_rule = {frozenset(pair) for pair in pairs_of(data, joined_bodies(joints))}
    return data if {frozenset(pair) for pair in wanted} == by_rule else data | {"pairs": wanted}


def _material(friction: tuple[float, ...]) -> dict[str, float]:
    """What a material says: sliding friction, and what else there is."""
    return {key: value for key, value in zip(_KEYS, friction, strict=True) if value or key == _KEYS[0]}


def _friction(numbers: Iterable[float], condim: int) -> tuple[float, ...]:
    """Sliding, spinning and rolling friction, of the kinds that there are."""
    return tuple(float(number) if condim >= least else 0.0 for number, least in zip(numbers, _FROM, strict=True))


def _kind(source: Source, pair: _Pair) -> tuple[str, str] | None:
    """Types of both geoms; nothing if they are of one body of the scene."""
    owners = {source.bodies[source.model.geom_bodyid[g]].owner for g in (pair.first, pair.second)}
    if len(owners) == 1:
        return None
    first, second = sorted(_type(source, g) for g in (pair.first, pair.second))
    return first, second


def _type(source: Source, g: int) -> str:
    name = source.mujoco.mjtGeom(int(source.model.geom_type[g])).name.removeprefix("mjGEOM_").lower()
    return "height_field" if name == "hfield" else name


def _meshes(source: Source, pairs: list[_Pair]) -> dict[int, dict[str, Any] | None]:
    """The files of the geoms that are meshes; none of one that cannot touch, which is listed."""
    found: dict[int, dict[str, Any] | None] = {}
    for g in sorted({g for pair in pairs for g in (pair.first, pair.second)}):
        if _type(source, g) != "mesh":
            continue
        what = f"geom '{source.name('geom', g)}'"
        mesh = found[g] = looks.mesh(source, g, what, "touched")
        if mesh is not None:
            shape = Mesh(type="mesh", file=mesh["file"], scale=mesh["scale"])
            if refusal(shape, hull=False) is not None:
                mesh["hull"] = True  # as MuJoCo takes it
            if (wrong := refusal(shape, hull=True)) is not None:
                source.report.add(what, *wrong)
                found[g] = None
    return found


def _surface(source: Source, g: int, mesh: dict[str, Any] | None) -> dict[str, Any]:
    carried, pose = source.bodies[source.model.geom_bodyid[g]], source.geom_pose(g)
    if mesh is None:
        kind = _type(source, g)
        shape = {"type": "plane"} if kind == "plane" else looks.primitive(source, g)
        shape = _height_field(source, g) if kind == "height_field" else shape
        assert shape is not None  # of a type that can touch
    else:
        shape = {key: value for key, value in mesh.items() if key != "pose"}
        pose = mesh["pose"]
    pose = carried.pose @ pose
    placed = {"at": numbers(pose.at), "rotation": rotation_vector(pose.rotation)}
    return {**({} if carried.owner == WORLD else {"body": carried.owner}), **shape, **placed}


def _height_field(source: Source, g: int) -> dict[str, Any]:
    """The grid of a geom, whatever file it comes from."""
    model, f = source.model, int(source.model.geom_dataid[g])
    rows, columns, begin = int(model.hfield_nrow[f]), int(model.hfield_ncol[f]), int(model.hfield_adr[f])
    x, y, highest, _ = map(float, model.hfield_size[f])
    grid = highest * np.asarray(model.hfield_data[begin : begin + rows * columns], dtype=float)
    return {"type": "height_field", "size": [2 * x, 2 * y], "heights": grid.reshape(rows, columns).tolist()}


def _pairs(source: Source) -> list[_Pair]:
    """Pairs of geoms that collide by MuJoCo's own rules."""
    model = source.model
    if source.off("CONTACT") or source.off("CONSTRAINT"):
        return []
    body, weld = np.asarray(model.geom_bodyid), np.asarray(model.body_weldid)
    kind, affinity = np.asarray(model.geom_contype), np.asarray(model.geom_conaffinity)
    meets = (kind[:, None] & affinity[None, :]) | (kind[None, :] & affinity[:, None])
    ends = weld[body]
    possible = (meets != 0) & (ends[:, None] != ends[None, :])
    if not source.off("FILTERPARENT"):
        parent = weld[np.asarray(model.body_parentid)[ends]]
        child = (parent[:, None] == ends[None, :]) & (ends[None, :] != 0)
        possible &= ~(child | child.T)
    for signature in model.exclude_signature:
        first, second = int(signature) >> 16, int(signature) & 0xFFFF
        apart = (body[:, None] == first) & (body[None, :] == second)
        possible &= ~(apart | apart.T)
    found, adds, own = {}, _margins_add_up(source.mujoco), _margins(source)
    for a, b in np.argwhere(np.triu(possible, 1)).tolist():
        found[a, b] = _mixed(source, a, b, float(own[a] + own[b] if adds else max(own[a], own[b])))
    for k in range(model.npair):
        a, b = sorted((int(model.pair_geom1[k]), int(model.pair_geom2[k])))
        margin = float(model.pair_margin[k]) if adds else float(model.pair_margin[k] - model.pair_gap[k])
        of_both = model.pair_friction[k][[0, 2, 3]]  # of the first of two directions
        found[a, b] = _Pair(a, b, _friction(of_both, int(model.pair_dim[k])), margin)
    return list(found.values())


def _mixed(source: Source, a: int, b: int, margin: float) -> _Pair:
    """What MuJoCo makes of two geoms: the larger numbers, or those of the one with more priority."""
    model = source.model
    first, second = int(model.geom_priority[a]), int(model.geom_priority[b])
    which = [a, b] if first == second else [a if first > second else b]
    dim = max(int(model.geom_condim[g]) for g in which)
    friction = _friction(np.max(model.geom_friction[which], axis=0), dim)
    return _Pair(a, b, friction, margin)


def _margins(source: Source) -> np.ndarray:
    """At which distance the geoms are touched, as far as that is theirs. [m]"""
    margin, gap = (np.asarray(a, dtype=float) for a in (source.model.geom_margin, source.model.geom_gap))
    return margin if _margins_add_up(source.mujoco) else margin - gap


@functools.cache
def _margins_add_up(mujoco: Any) -> bool:
    """Whether MuJoCo adds margins and has its `gap` beyond them; older versions take the larger, less its gap."""
    geom = '<body pos="{0} 0 0"><freejoint/><geom size="0.1" margin="{1}" gap="0.005"/></body>'
    bodies = geom.format(0, 0.01) + geom.format(0.205, 0.02)
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return bool(data.contact.includemargin[0] > 0.025)
