"""How Triton kernels of many short steps are launched."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor


@triton.jit
def _nothing() -> None:
    return


INTERPRETED = not isinstance(_nothing, triton.JITFunction)  # TRITON_INTERPRET was set before Triton's import


def unsupported(device: torch.device, dtype: torch.dtype, *supported: torch.dtype) -> str | None:
    """Why kernels for these dtypes cannot work on this device in this dtype; None if they can."""
    if device.type != "cuda" and not INTERPRETED:
        return f"the device is {device.type}, and TRITON_INTERPRET was not set before Triton's import"
    if device.type == "cuda" and device.index not in (None, torch.cuda.current_device()):
        return f"{device} is not the current device; torch.cuda.set_device({device.index}) makes it so"
    if dtype in supported:
        return None
    allowed, given = (" or ".join(map(str, kinds)).replace("torch.", "") for kinds in (supported, [dtype]))
    return f"the kernels are for {allowed}, not {given}"


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, of matrices or of batches of them, with a float32 result also from bfloat16."""
    if a.dtype == torch.bfloat16 and a.device.type == "cuda":
        return (torch.mm if a.dim() == 2 else torch.bmm)(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def padded(features: int) -> int:
    """The power of two that a kernel holds these features in, at least a matrix unit's 16."""
    return max(16, triton.next_power_of_2(features))


class Launch:
    """A kernel with all its arguments but the first, the step.

    Triton checks every argument of every launch, which takes longer than a short kernel. So the first call
    is an ordinary one, and later calls go straight to the compiled kernel, with plain addresses. Where
    launches `overlap`, the kernel itself waits for those before it.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        args: tuple[Any, ...],
        warps: int,
        overlap: bool = False,
    ) -> None:
        self.kernel, self.grid, self.args = kernel, grid, args
        self.options = {"num_warps": warps, **({"launch_pdl": True} if overlap else {})}
        self.compiled: Any = None
        self.addresses: list[Any] = []
        self.stream = 0

    def __call__(self, step: int) -> None:
        """Launch on the stream that was current at the first call."""
        if self.compiled is not None:
            self.compiled(step, *self.addresses, stream=self.stream)
            return
        compiled = self.kernel[self.grid](step, *self.args, **self.options)
        if not INTERPRETED:
            self.addresses = [a.data_ptr() if isinstance(a, Tensor) else a for a in self.args]
            self.compiled, self.stream = compiled[self.grid], torch.cuda.current_stream().cuda_stream
