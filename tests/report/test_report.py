import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from report.synthetic import PATHS, estimate, states

from spookax import ContactPoints
from spookax._results import ESTIMATE_RESULTS
from spookax.report import write_report
from spookax.report.content import STATUS


class Page(HTMLParser):
    """Text that is shown, tables as rows of cells, addresses that a browser would fetch, and ids."""

    def __init__(self, html: str):
        super().__init__()
        self.html = html
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.labelled: list[str] = []
        self.policy = ""
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self._inside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        values = {key: value or "" for key, value in attrs}
        self.addresses += [values[key] for key in ("src", "href", "data", "srcset") if values.get(key)]
        self.ids += [values["id"]] if "id" in values else []
        self.labelled += [values["id"]] if values.get("role") == "img" and values.get("aria-label") else []
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in ("meta", "link", "br"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        assert self._inside.pop() == tag, f"{tag} closes what was not open"

    def handle_data(self, data):
        if {"script", "style"} & set(self._inside):
            return
        self.text += data
        if {"td", "th"} & set(self._inside):
            self.tables[-1][-1][-1] += data.strip()

    def row(self, first: str) -> list[str]:
        """The only row of all tables that begins with a cell."""
        (row,) = [row for table in self.tables for row in table if row[0] == first]
        return row

    @property
    def figures(self) -> dict[str, dict]:
        found = re.findall(r'<script id="figures" type="application/json">(.*?)</script>', self.html, re.DOTALL)
        assert len(found) == 1
        return json.loads(found[0])


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    path = write_report(tmp_path_factory.mktemp("estimate"), estimate(), states())
    return Page(path.read_text(encoding="utf-8"))


def report(folder: Path, changed: dict, held: dict) -> Page:
    return Page(write_report(folder, changed, held).read_text(encoding="utf-8"))


def changed(**values) -> dict:
    return estimate() | values


def test_the_report_lies_in_the_folder_of_the_estimate(tmp_path):
    assert write_report(tmp_path / "new", estimate(), {}) == tmp_path / "new" / "report.html"
    assert (tmp_path / "new" / "report.html").is_file()


def test_the_report_loads_nothing(page):
    """Neither by its elements nor, whatever its scripts hold, by the policy that it gives the browser."""
    assert [address for address in page.addresses if not address.startswith("#")] == ["data:,"]
    assert page.policy.startswith("default-src 'none'; script-src 'unsafe-inline'")
    assert "http" not in page.policy
    assert "connect-src" not in page.policy
    assert page.html.count("<script>") == 2, "plotly.js once, and the page's own"


def test_links_lead_somewhere_and_ids_are_unique(page):
    assert len(set(page.ids)) == len(page.ids)
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)


def test_every_chart_has_a_place_and_a_name(page):
    assert set(page.figures) == set(page.labelled)
    assert len(page.figures) == 2 * 4 + 3  # one and three signals of two runs; correlation, convergence, innovations


def test_every_chart_is_a_valid_plotly_figure(page):
    for figure in page.figures.values():
        go.Figure(figure)


def test_every_parameter_is_in_the_table(page):
    header, *rows = page.tables[0]
    assert header[:6] == ["parameter", "unit", "start", "value", "sd", "sd / value"]
    assert header[6:] == ["90 % interval", "lower", "upper", "on bound", "change"]
    assert [row[0] for row in rows] == list(PATHS)
    assert rows[0][1:6] == ["kg m²", "0.002", "0.003125", "4.1e-05", "1.3 %"]
    assert rows[0][6:] == ["–", "1e-06", "1", "", "+56.2 %"]
    assert rows[3][3:] == ["0", "4e-05", "–", "–", "0", "1", "lower", "-100 %"]
    assert rows[6][2:] == ["0", "0.0123", "0.0002", "1.6 %", "–", "–", "–", "", "+0.0123"]


def test_a_parameter_at_a_bound_has_its_interval_in_place_of_a_standard_deviation(tmp_path):
    parameters = copy.deepcopy(changed()["parameters"])
    path = "joints.shoulder.friction.coulomb"
    parameters[path] |= {"sd": 2e-5, "at_bound": "lower", "interval": [0.0, 4.5e-5], "interval_kind": "one-sided"}
    page = report(tmp_path, changed(parameters=parameters), {})
    row = next(row for row in page.tables[0] if row[0] == path)
    assert row[4:6] == ["–", "–"]
    assert row[6] == "0 to 4.5e-05, one-sided"
    assert row[9] == "lower, up to 4.5e-05"
    text = "It lies on its lower bound, 0 N m; the recordings allow up to 4.5e-05 (95 %)."
    assert text in re.sub(r"\s+", " ", page.text)


def test_an_interval_from_a_profile_says_so_and_may_be_open(tmp_path):
    parameters = copy.deepcopy(changed()["parameters"])
    path = "joints.shoulder.friction.coulomb"
    parameters[path] |= {"value": 3e-5, "at_bound": "", "interval": [1e-5, None], "interval_kind": "profile"}
    page = report(tmp_path, changed(parameters=parameters), {})
    assert next(row for row in page.tables[0] if row[0] == path)[6] == "1e-05 to ∞, profile"


def test_the_status_is_told_in_words(page, tmp_path):
    assert "The identification converged." in page.text
    assert "fell below 1e-06 in iteration 9" in page.text
    stopped = report(tmp_path, changed(status="stopped", message="Interrupted by the user."), {})
    assert "was stopped before it converged" in stopped.text
    assert "Interrupted by the user." in stopped.text
    assert "status “odd”" in report(tmp_path, changed(status="odd"), {}).text


def test_statuses_are_those_of_the_estimation():
    for status in set(STATUS) - {"converged", "stopped", "failed", "unphysical"}:
        assert hasattr(ESTIMATE_RESULTS, status)


def test_warnings_name_what_limits_the_result(page):
    shown = re.sub(r"\s+", " ", page.text)
    for text in (
        "Not determined: Only the ratio of bodies.arm.inertia.zz and motors.drive.gain is seen.",
        "On a bound: joints.shoulder.friction.coulomb. It lies on its lower bound, 0 N m.",
        "Biased by the time step: bodies.arm.inertia.zz. Half the time step moves it by 4.2",
        "Strongly correlated: bodies.arm.inertia.zz, motors.drive.gain. Correlation 0.982",
        "Poorly determined: joints.elbow.friction.viscous.",
    ):
        assert text in shown
    assert "Biased by the time step: tilt.x" not in shown


def test_a_good_result_has_no_warnings(tmp_path):
    good = estimate()
    del (
        good["parameters"]["joints.shoulder.friction.coulomb"],
        good["parameters"]["joints.elbow.friction.viscous"],
    )
    good["checks"] = {"gauge": [], "half_step": None}
    good["correlation"]["matrix"] = np.eye(len(PATHS)).tolist()
    page = report(tmp_path, good, {})
    assert "None: no parameter is on a bound" in page.text
    assert "time step biases the result was not checked" in page.text


def test_a_level_for_every_joint_is_a_line_for_every_joint(tmp_path):
    density, unit = {"shoulder": 1.5e-3, "slide": 0.2}, {"shoulder": "N m sqrt(s)", "slide": "N sqrt(s)"}
    noise = {"kind": "joints", "process_density": density, "process_unit": unit, "sensors": {}}
    page = report(tmp_path, changed(noise=noise), {})
    for joint, level in (("shoulder", "0.0015"), ("slide", "0.2")):
        row = f"process, impulses on {joint}"
        assert page.row(row) == [row, level, unit[joint]]


def test_runs_noise_and_provenance_are_listed(page):
    errors = next(row for table in page.tables for row in table if row[0] == "arm_encoder")
    assert errors == ["arm_encoder", "rad", "0.001", "0.02", "4 %", "0.05 ± 0.001"]
    assert page.row("process, impulses on joints") == [
        "process, impulses on joints",
        "1.2e-05",
        "N m sqrt(s)",
    ]
    assert page.row("jaxlib") == ["jaxlib", "0.7.0"]
    assert page.row("furuta.yaml") == ["furuta.yaml", "cd" * 32]
    rows = [row for table in page.tables for row in table]
    assert ["tip", "m", "0.001", "0.02", "4 %", "–"] in rows
    assert ["tip", "0.002, 0.003", "m"] in rows
    assert page.row("time step [s]") == ["time step [s]", "0.002"]
    assert "shoulder 0.1 ± 0.001" in page.text


def test_names_are_shown_as_they_are(page):
    """A run and a file with signs that mean something in HTML."""
    assert "second & third" in page.text
    assert "furuta_<late>.csv" in page.text


def test_names_cannot_break_out_of_a_script(tmp_path):
    name = "</script><script>alert(1)</script>"
    run = estimate()["runs"]["train"]
    held = {f"{name}/time": np.arange(9.0), f"{name}/measured/{name}": np.arange(9.0)}
    correlation = {"paths": [name, "other"], "matrix": [[1.0, 0.5], [0.5, 1.0]]}
    page = report(tmp_path, changed(study=name, runs={name: run}, correlation=correlation), held)
    assert "<script>alert" not in page.html
    assert page.text.count(name) >= 3
    assert name in page.figures["signal-0-0"]["layout"]["annotations"][0]["text"]
    assert page.figures["correlation"]["layout"]["xaxis"]["ticktext"][0] == name


def test_a_failed_identification_has_a_report(tmp_path):
    """Without standard deviations, correlations, noise, signals or states."""
    failed = changed(status="failed", message="The state became infinite at step 1204 of run train.", noise=None)
    del failed["correlation"], failed["checks"], failed["parameters"]["joints.shoulder.friction.coulomb"]
    for parameter in failed["parameters"].values():
        parameter["sd"] = None
    failed["runs"] = {"train": {"file": "furuta_train.csv"}}
    page = report(tmp_path, failed, {})
    assert "The identification failed." in page.text
    assert "infinite at step 1204" in page.text
    assert page.row("motors.drive.gain")[4:6] == ["–", "–"]
    assert set(page.figures) == {"convergence"}
    assert "Without standard deviations and correlations there is little to check" in page.text


def test_a_bare_status_is_enough(tmp_path):
    page = report(tmp_path, {"status": "failed", "message": "The scene has no sensors."}, {})
    assert "The scene has no sensors." in page.text
    assert page.figures == {}


def test_numbers_that_are_none_do_not_break_the_report(tmp_path):
    """NaN and infinity in every number of the estimate and in the states."""
    for bad in (np.nan, np.inf, None):
        broken = replaced(estimate(), bad)
        held = {key: value if key.endswith("/time") else value * np.nan for key, value in states().items()}
        page = report(tmp_path, broken, held)
        for figure in page.figures.values():
            go.Figure(figure)
        for path in PATHS:
            assert path in page.text
        assert "nan" not in {cell.lower() for table in page.tables for row in table for cell in row}


def replaced(data: Any, bad: float | None) -> Any:
    """A copy with every float replaced."""
    if isinstance(data, dict):
        return {key: replaced(value, bad) for key, value in data.items()}
    if isinstance(data, list):
        return [replaced(value, bad) for value in data]
    return bad if isinstance(data, float) else copy.copy(data)


def test_states_may_come_straight_from_their_file(tmp_path):
    np.savez(tmp_path / "states.npz", allow_pickle=False, **states())
    with np.load(tmp_path / "states.npz") as held:
        page = report(tmp_path, estimate(), held)
    assert len(page.figures) == 2 * 4 + 3


def test_a_network_is_drawn_and_not_listed(tmp_path):
    """Its weights are counted; the friction that they say is a chart with a band, and correlations are of the rest."""
    content, weights = estimate(), "joints.elbow.friction.learned.weights"
    one = content["parameters"]["tilt.x"] | {"transform": "network", "sd": 1.0}  # no weight is determined
    content["parameters"] |= {f"{weights}.{i}": one for i in range(4)}
    paths = list(content["parameters"])
    content["correlation"] = {"paths": paths, "matrix": np.full((len(paths), len(paths)), 0.99).tolist()}
    content["checks"]["half_step"] = {f"{weights}.1": {"value": 0.1, "shift_in_sd": 3.0}}
    curve = {"speed": [0.0, 1.0, 2.0], "level": [0.3, 0.2, 0.25], "sd": [0.01, 0.02, 0.05]}
    content["friction"] = {"elbow": curve | {"unit": "N m", "speed_unit": "rad/s"}}
    page = Page(write_report(tmp_path, content, states()).read_text())
    assert f"{weights}: 4 weights" in " ".join(page.text.split())
    assert f"{weights}.3" not in page.html
    drawn = page.figures
    assert len(drawn["correlation"]["data"][0]["z"]) == len(PATHS)
    np.testing.assert_allclose(drawn["friction-0"]["data"][1]["y"], [0.32, 0.24, 0.35])
    assert drawn["friction-0"]["layout"]["xaxis"]["title"]["text"] == "speed [rad/s]"


def test_runs_in_which_surfaces_touch_have_their_forces_drawn(tmp_path):
    force = np.zeros((3, 1, 3))
    force[1:, 0] = [0.0, 2.0, 5.0]
    up, pair = np.tile([0.0, 0, 1], (3, 1, 1)), np.zeros((3, 1), dtype=int)
    time = np.array([0.0, 0.1, 0.2])
    touching = ContactPoints(time, 0 * force, up, np.zeros((3, 1)), force, pair, (("foot", "ground"),))
    held = states() | {f"train/contacts/{key}": a for key, a in touching.arrays().items()}
    page = report(tmp_path, estimate(), held)
    chart = page.figures["contact-0-0"]
    assert {line["name"]: line["y"] for line in chart["data"]} == {"normal force": [0, 5, 5], "friction": [0, 2, 2]}
    assert "train, foot on ground: normal force and friction" in page.text
    assert not [name for name in page.figures if name.startswith("contact-1")]
