"""The notebooks run from top to bottom, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert not [c.id for c in cells if c.cell_type == "code" and (c.outputs or c.execution_count)]


@pytest.mark.model
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(path.parent))
    shown = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    assert not [o for o in shown if o.output_type == "error" or o.get("name") == "stderr"]
    tables = [o.data["text/html"] for o in shown if "text/html" in o.get("data", {})]
    assert any("binary_cross_entropy" in t or "linear" in t for t in tables)
