"""docs/diagnosis.md names every status, sentence, caution and suspicion that an estimate may have."""

import re
from pathlib import Path

import pytest
from documentation.pages import ROOT

from spookax._results import ESTIMATE_RESULTS
from spookax.study.judging import diagnosis, judge, trust
from spookax.study.judging.trust import trust as verdict

PAGE = (ROOT / "docs/diagnosis.md").read_text(encoding="utf-8")
STATUSES = {"converged", "unphysical", *(set(judge._NAMES) - {"successful"})}


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> set[str]:
    return {row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| ")} - {"---"}


def test_statuses():
    assert all(hasattr(ESTIMATE_RESULTS, name) for name in judge._NAMES)
    assert {cell.strip("`") for cell in first_cells(section("Statuses"))} - {"status"} == STATUSES


def test_cautions():
    source = (ROOT / "src/spookax/report/content.py").read_text(encoding="utf-8")
    titles = set(re.findall(r'Caution\(\s*"([^"]+)"', source))
    assert len(titles) > 4
    assert {cell.strip("*") for cell in first_cells(section("Cautions"))} - {"caution"} == titles


def test_suspicions():
    assert first_cells(section("Suspicions")) - {"suspicion"} == set(diagnosis._CURES)


def test_sentences_and_reasons():
    source = Path(str(trust.__file__)).read_text(encoding="utf-8")
    sentences = set(re.findall(r'Trust\("\w+", "([^"]+)"', source))
    assert len(sentences) == 4
    told = first_cells(section("The first sentence"))
    assert sentences == {cell.strip("*") for cell in told} & sentences
    for reason in re.findall(r"\(\s*f?\"([A-Z][^{\"]{20,}?)[ :]*[{\"]", source):
        assert reason.rstrip(",. ") in PAGE, reason


@pytest.mark.parametrize("status", sorted(STATUSES - {"converged"}))
def test_other_statuses_are_no_answer(status: str):
    told = verdict({"status": status})
    assert told.grade == "bad"
    assert told.reasons[0].startswith("The identification did not converge")
