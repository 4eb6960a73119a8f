"""Kernels compiled for a GPU that is not here: Triton's compiler accepts less than its interpreter."""

import json
import os
import subprocess
import sys
from typing import Any

COMPILE = """
import importlib, json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

module, name, types, fixed, warps = json.load(sys.stdin)
kernel = getattr(importlib.import_module(f"caesura.kernels.{module}"), name)
names = kernel.arg_names
signature = {n: "constexpr" if n in fixed else types[n] for n in names}
constants = {(i,): fixed[n] for i, n in enumerate(names) if n in fixed}
aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if "*" in signature[n]}
source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
assert compiled.asm["cubin"]
print(compiled.asm["ptx"])
"""


def compiles(module: str, kernel: str, types: dict[str, str], fixed: dict[str, Any], warps: int) -> str:
    """The kernel's PTX for a Hopper GPU: `types` of arguments, and values of the `fixed` ones."""
    # A process of its own: here, Triton may have been imported for its interpreter.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILE],
        input=json.dumps([module, kernel, types, fixed, warps]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
