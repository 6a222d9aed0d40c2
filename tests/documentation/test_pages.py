"""Every command and code block of the README and the documentation is run (`pages.py` says how)."""

import re
from pathlib import Path

import pytest
from documentation.pages import CODE, LINKED, PAGES, ROOT, blocks, commands, compare, run_page, same

BLOCKS = [block for page in PAGES for block in blocks(page)]
QUICK = [p for p in PAGES if any(not b.elsewhere and not b.slow and b.language in CODE for b in blocks(p))]
BRIEF = ("docs/contacts.md", "docs/rows.md", "docs/switching.md")  # `test_brief_pages.py` runs all of their blocks
SLOW = [p for p in PAGES if any(b.slow for b in blocks(p)) and p not in BRIEF]


@pytest.mark.parametrize("page", QUICK)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page(page, tmp_path, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", SLOW)
def test_all_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page(page, tmp_path, monkeypatch, slow=True)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_every_block_is_of_a_kind_that_is_run(block):
    assert block.language in (*CODE, "text"), f"{block.place}: a fence of another language; see pages.py"
    known = r"|slow|printed|write \S+|merge \S+|head of \S+|by tests/\S+\.py::\w+|not run, .{10,}"
    assert re.fullmatch(known, block.how), f"{block.place}: {block.how}"
    if block.language == "yaml":
        assert block.how, f"{block.place}: say by a comment which file this is, or who reads it"
    if block.how.startswith("by "):
        file, name = block.how.removeprefix("by ").split("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), block.how


def test_make_and_benchmarks_know_what_pages_ask_of_them():
    from benchmarks.__main__ import ALL

    makefile, lines = (ROOT / "Makefile").read_text(encoding="utf-8"), 0
    for block in BLOCKS:
        for line, _ in commands(block) if block.language == "console" else ():
            command = line.partition("#")[0].split()
            if command[0] == "make":
                for target in command[1:]:
                    assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{block.place}: {line}"
            elif command[:3] == ["python", "-m", "benchmarks"]:
                assert {n for n in command[3:] if not n.startswith("-")} <= {*ALL, "sensitivity"}, (
                    f"{block.place}: {line}"
                )
            else:
                continue
            lines += 1
    assert lines > 4


def test_quoted_output_is_compared():
    text = "parameter  start\nmotors.drive.gain  0.083088  3.8e-05 N m/V\nsteps 2001\n"
    compare(text, ["parameter start", "...", "steps 2001"], "here")
    assert same("gain 0.083088 3.8e-05", "gain 0.083089 3.7e-05")
    assert not same("gain 0.083088 3.8e-05", "gain 0.083090 3.8e-05")
    assert not same("steps 2001", "steps 2002")
    for wrong in (["steps 2001", "parameter start"], ["Parameter start"], ["parameter"]):
        with pytest.raises(AssertionError, match="not printed"):
            compare(text, wrong, "here")


def test_folders_that_pages_name_are_there():
    assert all((ROOT / name).is_dir() for name in LINKED)


def test_the_ways_through_the_house_are_there():
    """Files that CONTRIBUTING.md names for its questions exist, with the functions in brackets behind them."""
    text, source = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), ROOT / "src" / "spookax"
    ways = [line for line in text.splitlines() if line.startswith("| ") and line.count(".py`")]
    assert len(ways) == 5
    for way in ways:
        found = re.findall(r"`([\w/]+\.py)`(?: \(`(\w+)`)?", way)
        assert 1 <= len(found) <= 3, way
        for file, name in found:
            assert name in (source / file).read_text(encoding="utf-8"), f"{file}: {name}"
