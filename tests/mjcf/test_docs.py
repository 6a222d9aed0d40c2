"""The page about MJCF shows what is said."""

import re
from pathlib import Path

from mjcf.models import write

from spookax.mjcf import import_mjcf

PAGE = (Path(__file__).parents[2] / "docs" / "mjcf.md").read_text(encoding="utf-8")


def test_the_messages_are_those_of_the_page(tmp_path, monkeypatch):
    body = '<body name="b{0}"><joint name="j{0}"/><geom type="ellipsoid" size="1 1 1"/></body>'
    bodies = "".join(body.format(i) for i in range(4))
    loose = '<body name="c"><joint name="k"/><geom type="box" size="1 1 1" contype="0"/></body>'
    model = f'<worldbody>{bodies}{loose}</worldbody><contact><exclude body1="b0" body2="c"/>'
    model += '<exclude body1="b1" body2="c"/><exclude body1="b2" body2="c"/></contact>'
    model += '<tendon><fixed name="t"><joint joint="k" coef="1"/></fixed></tendon>'
    monkeypatch.chdir(tmp_path)
    write(tmp_path, model + '<actuator><motor name="grip" tendon="t"/></actuator>', "robot.xml")
    said = [str(problem) for problem in import_mjcf("robot.xml", allow_missing=True).missing]
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert set(shown.strip().splitlines()) <= set(said)
