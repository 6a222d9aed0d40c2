"""A page with the mechanisms that an environment draws: every number against every other."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import plotly.io

from .._compiled import compiled
from .._typing import Array
from ..system import Params, System, locate
from .environment import Environment
from .randomisation import AbstractRandomisation

_MOST = 10  # numbers that a page has room for
_INK = "#0063a6"


def save_draws(env: Environment, path: str | os.PathLike[str], count: int = 500) -> Path:
    """Draw mechanisms as episodes do, and save a page that shows each number against the others; it opens offline.

    Of more than ten numbers those are shown that differ most, relative to what they are.

    **Raises:** `ValueError` for an environment that draws nothing.
    """
    episode = env.episode
    if episode.randomisation is None:
        raise ValueError("the environment draws nothing: give it `randomise`")
    names = episode.randomisation.drawn(episode.system)
    keys = jax.random.split(jax.random.PRNGKey(0), count)
    values = np.asarray(_values(episode.system, episode.randomisation, episode.engine.params, names, keys))
    middle = np.maximum(np.abs(values).mean(axis=0), np.finfo(float).tiny)
    shown = np.sort(np.argsort(-values.std(axis=0) / middle)[:_MOST])
    dimensions = [{"label": names[i], "values": values[:, i].tolist()} for i in shown]
    data = {"type": "splom", "dimensions": dimensions, "marker": {"size": 3, "color": _INK, "opacity": 0.5}}
    size = 180 * max(len(dimensions), 3)
    layout = {"title": {"text": f"{env.scene.name}: {count} mechanisms"}, "width": size, "height": size}
    figure: dict[str, Any] = {"data": [data | {"showupperhalf": False}], "layout": layout}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(plotly.io.to_html(figure, include_plotlyjs=True, validate=False), encoding="utf-8")
    return path


@compiled
def _values(
    system: System, randomisation: AbstractRandomisation, params: Params, names: tuple[str, ...], keys: Array
) -> Array:
    def one(key: Array) -> Array:
        drawn = randomisation.draw(system, params, key)
        return jnp.stack([locate(system, name).get(drawn) for name in names])

    return jax.vmap(one)(keys)
