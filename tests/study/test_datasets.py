"""The catalogue of public data sets, without any of the data."""

import os
from pathlib import Path

import pytest

from spookax import datasets

GIVEN = os.environ.get("SPOOKAX_DATA")


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.delenv("SPOOKAX_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("name", datasets.list_datasets())
def test_every_entry_says_what_a_user_needs(name):
    dataset = datasets.describe(name)
    for text in (dataset.title, dataset.purpose, dataset.origin, dataset.licence, dataset.citation):
        assert len(text) > 2
    assert dataset.files
    assert name in str(dataset)
    assert dataset.licence in str(dataset)


@pytest.mark.parametrize("name", datasets.list_datasets())
def test_missing_data_says_where_to_get_it_and_where_to_put_it(name, no_data):
    dataset = datasets.describe(name)
    with pytest.raises(datasets.DatasetMissing) as caught:
        datasets.path(name, dataset.files[0])
    assert len(caught.value.problems) == 1
    text = str(caught.value)
    assert "\n" not in text
    for part in (dataset.origin, dataset.licence, str(no_data / "cache/spookax" / name / dataset.files[0])):
        assert part in text


def test_given_folder_comes_before_the_cache(no_data, monkeypatch):
    cached = no_data / "cache/spookax/emps/emps_periods_1to3.csv"
    given = no_data / "given/emps/emps_periods_1to3.csv"
    for file in (cached, given):
        file.parent.mkdir(parents=True)
        file.write_text("t [s]\n")
    assert datasets.path("emps", cached.name) == cached
    monkeypatch.setenv("SPOOKAX_DATA", str(no_data / "given"))
    assert datasets.path("emps", cached.name) == given
    given.unlink()
    assert datasets.path("emps", cached.name) == cached


def test_a_file_of_ones_own_in_the_folder_is_found(no_data):
    extra = no_data / "cache/spookax/emps/another_period.csv"
    extra.parent.mkdir(parents=True)
    extra.write_text("t [s]\n")
    assert datasets.path("emps", extra.name) == extra


def test_unknown_names_get_the_nearest_known_one(no_data):
    with pytest.raises(datasets.DatasetMissing, match="`furuta_odrive`"):
        datasets.describe("furuta_odrve")
    with pytest.raises(datasets.DatasetMissing, match=r"`sin_1V\.csv`"):
        datasets.path("furuta_odrive", "sin1V.csv")


@pytest.mark.skipif(not GIVEN, reason="SPOOKAX_DATA does not name a folder with the public data sets")
@pytest.mark.parametrize("name", datasets.list_datasets())
def test_listed_files_are_there(name):
    folder = Path(str(GIVEN)) / name
    if not folder.is_dir():
        pytest.skip(f"the data set {name} is not in SPOOKAX_DATA")
    there = {file.name for file in folder.iterdir()} - {"README.md", "LICENSE.upstream.txt"}
    assert there == set(datasets.describe(name).files)
