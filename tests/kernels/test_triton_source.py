"""What Triton's compiler refuses and its interpreter, which runs these tests without a GPU, accepts."""

import ast
from pathlib import Path

import caesura.kernels

FOLDER = Path(caesura.kernels.__file__).parent


def nested_targets(source: str) -> list[int]:
    """The lines of kernels that unpack a tuple inside a tuple, which Triton 3.6 cannot compile."""
    kernels = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any("triton.jit" in ast.unparse(d) for d in node.decorator_list)
    ]
    targets = [
        target
        for kernel in kernels
        for node in ast.walk(kernel)
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    return [
        t.lineno
        for t in targets
        if isinstance(t, ast.Tuple) and any(isinstance(e, ast.Tuple) for e in t.elts)
    ]


def test_no_kernel_unpacks_a_tuple_inside_a_tuple() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*_triton.py")}
    assert any("@triton.jit" in source for source in files.values())
    assert {name: lines for name, source in files.items() if (lines := nested_targets(source))} == {}


def test_the_check_sees_one() -> None:
    assert nested_targets("@triton.jit\ndef kernel(x):\n    a, (b, c) = x\n") == [3]
