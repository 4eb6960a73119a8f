"""What tests of Triton's kernels share. Import it before anything that imports Triton."""

import os
import sys

import pytest
import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip(
    "triton", reason="Triton is not installed: its kernels cannot be tested, nor will they run"
)

from caesura.kernels.launch import INTERPRETED  # noqa: E402  after Triton, or not at all

ON_GPU = pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
MARKS = [
    pytest.mark.slow,  # without a GPU, Triton's interpreter takes its time
    pytest.mark.skipif(
        not CUDA and not INTERPRETED, reason="Triton was imported before TRITON_INTERPRET was set"
    ),
]
# exp of a large number is inf in the kernels, and wanted; only the interpreter's numpy speaks of it
OVERFLOWS = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
