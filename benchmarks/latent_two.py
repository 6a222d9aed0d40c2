"""Two masses with two frictional contacts, simulated: the first rubs on the world, the second on the first.

Regimes are all nine combinations of those of both contacts. Both displacements are read.
"""

import jax
import jax.numpy as jnp
import numpy as np

from spookax._typing import Array, Scalar
from spookax.estimation import Exact, Filter, KeepHeaviest, MixtureFilter
from spookax.models import Contact, LinearMechanism, Matern, friction_regimes, jonswap, multisine, second_order
from spookax.protocol import Noise, Samples
from spookax.study.latent.evidence import maximum
from spookax.study.latent.switching_model import TURNING

from .latent_setup import nmse
from .measure import Row, row, timed

H, SAMPLES, SUBSTEPS = 0.002, 1500, 20
M, C, K = np.diag([1.0, 0.8]), np.array([[3.0, -1.0], [-1.0, 1.5]]), np.array([[900.0, -300.0], [-300.0, 500.0]])
W = np.array([[1.0, -1.0], [0.0, 1.0]])  # rates of the contacts: v1, v2 - v1
LEVEL = np.array([1.0, 0.7])  # N
NOISE = 5e-6  # m
LOADS = ((4.0, 0.45), (3.0, 0.35))  # standard deviation [N], period of the peak [s]


def truth(seed: int) -> dict[str, np.ndarray]:
    """Loads, displacements, forces, and which contact sticks; small steps with friction that really holds."""
    rng, h = np.random.default_rng(seed), H / SUBSTEPS
    omega = 0.1 * np.arange(1, 801)
    time = (np.arange(SAMPLES * SUBSTEPS) + 0.5) * h
    fine, at = [], []
    for size, period in LOADS:
        density = jonswap(omega, period=period)
        density *= size**2 / (np.sum(density) * omega[0])
        drawn = int(rng.integers(2**31))
        fine.append(multisine(time, omega, density, np.random.default_rng(drawn)))
        at.append(multisine(np.arange(SAMPLES) * H, omega, density, np.random.default_rng(drawn)))
    load = np.stack(fine, axis=1)
    weight = W.T @ np.linalg.solve(M, W)  # what unit forces of the contacts do to their rates
    inverse = np.linalg.inv(M)
    z, v, f = np.zeros(2), np.zeros(2), np.zeros(2)
    found: dict[str, list[np.ndarray]] = {"z": [], "force": [], "sticks": []}
    for i, push in enumerate(load):
        if i % SUBSTEPS == 0:
            found["z"].append(z)
        z = z + h / 2 * v
        free = v + h * inverse @ (push - C @ v - K @ z)
        rate = W.T @ free / h
        for _ in range(60):  # both contacts at once, by turns
            for c in (0, 1):
                f[c] = np.clip(f[c] + (rate[c] - weight[c] @ f) / weight[c, c], -LEVEL[c], LEVEL[c])
        v = free - h * inverse @ (W @ f)
        z = z + h / 2 * v
        if i % SUBSTEPS == 0:
            found["force"].append(f.copy())
            found["sticks"].append(np.abs(f) < LEVEL * (1 - 1e-9))
    y = np.array(found["z"]) + NOISE * rng.normal(size=(SAMPLES, 2))
    return {"u": np.stack(at, axis=1), "y": y} | {name: np.array(value) for name, value in found.items()}


def mechanism() -> LinearMechanism:
    """As the estimator knows it: without its friction."""
    return second_order(M, C, K, np.eye(2), W, [("displacement", 0), ("displacement", 1)])


def run() -> list[Row]:
    """NMSE and bands of both forces, regime error of both contacts."""
    made = truth(3)
    u, y = made["u"], made["y"]
    held = np.concatenate([(u[1:] + u[:-1]) / 2, u[-1:]])
    seen = jnp.ones((SAMPLES, 1, 2))
    samples = Samples(jnp.asarray(held), jnp.asarray(y)[:, None], jnp.zeros((SAMPLES, 1)), seen)
    speed = float(np.std(np.gradient(y, H, axis=0)))
    x0 = jnp.concatenate([jnp.asarray(y[0]), jnp.zeros(4)])
    sd = jnp.asarray([*np.std(y, axis=0), speed, speed, *np.std(u, axis=0)])
    rows = []

    def alone(log: Array) -> Filter:
        contacts = [Contact(Matern(jnp.exp(a), jnp.exp(log[2])), jnp.exp(a)) for a in log[:2]]
        model = friction_regimes.models(mechanism(), contacts, H)[0]
        return Filter(model, jnp.zeros(0), Noise(jnp.asarray(1.0), jnp.exp(log[3]) * jnp.ones(2)), Exact())

    def cost(log: Array) -> Scalar:
        f = alone(log)
        return -jnp.sum(f.run(f.init(x0, sd), samples).innovation.log_likelihood)

    rough = float(np.std(np.diff(y, 3, axis=0))) / np.sqrt(20.0)
    best = maximum(cost, np.log([*0.5 * np.std(u, axis=0), 0.1, rough]))
    f = alone(jnp.asarray(best.at))
    back = f.smooth(f.run(f.init(x0, sd), samples, trail=True))
    x, spread = np.asarray(back.x)[:-1], np.asarray(back.sd)[:-1]
    rows += _scores("one regime", x, spread, None, made)
    size, noise = np.sqrt(np.mean(x[:, 4:] ** 2, axis=0)), float(np.exp(best.at[3]))
    contacts = []
    for s in size:  # the defaults of `spookax latent` before its hyperparameters are searched
        change, stay = 0.005 * s / np.sqrt(H), np.exp(-1.0 / 30.0)
        loose = [0.15 * noise, 0.2 * speed, 0.2 * s]
        contacts.append(Contact(Matern(s, 2.0 * (s / change) ** 2), s, stay, loose, TURNING * s))
    models = friction_regimes.models(mechanism(), contacts, H)
    level = Noise(jnp.asarray(1.0), noise * jnp.ones(2))
    filters = [Filter(model, jnp.zeros(0), level, Exact()) for model in models]
    for count in (1, 3):
        bank = MixtureFilter(filters, friction_regimes.transition(contacts), KeepHeaviest(count))
        start = bank.init(x0, sd, np.eye(9)[0])
        found = bank.run(start, samples, trail=True)
        smooth = bank.smooth(found)
        x, spread, p = (np.asarray(a)[:-1] for a in (smooth.x, smooth.sd, smooth.probability))
        rows += _scores(f"nine regimes, I = J = {count}", x, spread, p, made)
        seconds = timed(
            lambda bank=bank, start=start: jax.block_until_ready(bank.smooth(bank.run(start, samples, trail=True)).x)
        ).best
        rows.append(row(f"nine regimes, I = J = {count}", "filter and smoother", seconds, "s"))
    return rows


def _scores(group: str, x: np.ndarray, sd: np.ndarray, p: np.ndarray | None, made: dict[str, np.ndarray]) -> list[Row]:
    rows = []
    for c, name in enumerate(("first contact", "second contact")):
        force, true = x[:, 4 + c], made["force"][:, c]
        rows.append(row(group, f"{name}, force", nmse(force, true), "%"))
        within = float(100 * np.mean(np.abs(force - true) < 1.645 * sd[:, 4 + c]))
        rows.append(row(group, f"{name}, samples in the 90 % bands", within, "%"))
        if p is not None:
            modes = np.array(friction_regimes.combinations(2))[np.argmax(p, axis=1), c]
            wrong = float(100 * np.mean((modes == friction_regimes.STICK) != made["sticks"][:, c]))
            rows.append(row(group, f"{name}, regime error", wrong, "%"))
    return rows
