"""All blocks of the pages whose programs take longer to compile than to run."""

from pathlib import Path

import pytest
from documentation.pages import run_page
from documentation.test_pages import BRIEF

pytestmark = [pytest.mark.slow, pytest.mark.quick, pytest.mark.timeout(900)]


@pytest.mark.parametrize("page", BRIEF)
def test_all_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_page(page, tmp_path, monkeypatch, slow=True)
