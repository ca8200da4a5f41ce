"""That the real cuDNN frontend takes the graphs of backends/_cudnn_graphs.py: its `validate()`, which needs no card.

It asks cuDNN itself for its version and for nothing else: where cuDNN is not installed, a library that says one stands
in. The package reads a card's architecture too, which is told here.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from subprocesses import output_of

STAND_IN = """
unsigned long cudnnGetVersion(void) { return 91400; }
int cudnnCreate(void** handle) { return *handle = handle, 0; }
int cudnnDestroy(void* handle) { return 0; }
"""
GRAPHS = """
import operator, os, sys, torch, cudnn
from torch_fl.backends import _cudnn_graphs as graphs
from torch_fl.kernels.window import Window
from torch_fl.refs import Ref
from torch_fl.spec import contiguous_strides

def ref(*shape, dtype=torch.float16, strides=None):
    return Ref(0, shape, strides or contiguous_strides(shape), dtype)

def valid(node):
    made_by = {"handle": cudnn.Handle(1, 0, 0)} if hasattr(cudnn, "Handle") else {}
    graph = graphs.new_graph(cudnn, node.dtype, sm_version=90, **made_by)
    graphs.draw(cudnn, graph, node)
    graph.validate()
    return node.method

PROBLEMS = (
    ((2, 8, 9, 7), (4, 4, 3, 3), (2, 4, 5, 4), Window((1, 3, 3), (1, 2, 2), (0, 1, 1))),
    ((2, 8, 9, 9), (8, 1, 3, 3), (2, 8, 7, 7), Window((1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 2, 2))),
    ((2, 4, 1, 50), (6, 4, 1, 5), (2, 6, 1, 50), Window((1, 1, 5), (1, 1, 1), (0, 0, 2))),
    ((2, 4, 5, 9, 9), (4, 4, 3, 3, 3), (2, 4, 5, 9, 9), Window((3, 3, 3), (1, 1, 1), (1, 1, 1))),
)
NAMES = (
    "create_handle", "set_stream", "backend_version_string", "cudnnGraphNotSupportedError", "heur_mode.A",
    "heur_mode.FALLBACK", "numerical_note.TENSOR_CORE", "numerical_note.DOWN_CONVERT_INPUTS",
    "numerical_note.NONDETERMINISTIC",
    *("pygraph." + name for name in (
        "build_operation_graph", "create_execution_plans", "deselect_numeric_notes", "check_support", "build_plans",
        "get_workspace_size", "execute")),
)
for name in NAMES:
    operator.attrgetter(name)(cudnn)
found = []
for x, w, y, window in PROBLEMS:
    for dtype in graphs.TYPES:
        a, b, c = (ref(*s, dtype=dtype) for s in (x, w, y))
        for last in (False, True):
            found += [valid(graphs.convolution("convolution", c, a, b, window, last)),
                      valid(graphs.convolution("convolution input gradient", a, c, b, window, last)),
                      valid(graphs.convolution("convolution weight gradient", b, a, c, window, last))]
for dtype in (torch.float16, torch.bfloat16):
    for b, h, hk, lq, lk, e, ev in ((2, 8, 8, 64, 77, 64, 64), (1, 8, 2, 128, 5, 40, 128), (3, 4, 1, 1, 64, 128, 16)):
        q, k, v, out = (ref(*s, dtype=dtype) for s in ((b, h, lq, e), (b, hk, lk, e), (b, hk, lk, ev), (b, h, lq, ev)))
        turned = ref(b, h, lq, e, dtype=dtype, strides=(lq * h * e, e, h * e, 1))
        lse, room = ref(b, h, lq, dtype=torch.float32), -(-lk // 8) * 8
        masks = [ref(*s, lq, room, dtype=dtype).narrow(3, 0, lk) for s in ((1, 1), (b, 1), (b, h))]
        for bias, causal in ((None, False), (None, True), *((m, False) for m in masks)):
            for query in (q, turned):
                found.append(valid(graphs.attention(query, k, v, bias, 0.125, causal, out, lse)))
                grads, rest = (query, k, v), (out, out, lse)
                for same in (False, True):
                    node = graphs.attention_gradients(query, k, v, bias, 0.125, causal, *rest, grads, same)
                    found.append(valid(node))
for method in sorted(set(found)):
    print(method, found.count(method))
try:
    valid(graphs.attention(ref(1, 1, 64, 60), ref(1, 1, 64, 60), ref(1, 1, 64, 60), None, 1.0, False,
                           ref(1, 1, 64, 60), ref(1, 1, 64, dtype=torch.float32)))
except cudnn.cudnnGraphNotSupportedError as error:
    print("refused", "multiple of 8" in str(error))
sys.stdout.flush()
os._exit(0)  # graphs without a card are not taken down in order
"""
TAKEN = """conv_dgrad 24
conv_fprop 24
conv_wgrad 24
sdpa 60
sdpa_backward 120
refused True
"""


def _stand_in(folder: Path) -> str:
    """A library that says cuDNN's version, in a folder; "" where cuDNN itself is installed."""
    if importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cudnn"):
        return ""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("neither cuDNN nor a C compiler")
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "libcudnn.so.9")]
    subprocess.run(command, input=STAND_IN, text=True, check=True)
    return str(folder)


def test_the_real_package_takes_every_graph(tmp_path: Path) -> None:
    try:
        version("nvidia-cudnn-frontend")
    except PackageNotFoundError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    assert output_of(GRAPHS, LD_LIBRARY_PATH=_stand_in(tmp_path)) == TAKEN
