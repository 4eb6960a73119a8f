"""What small sweeps are asked for."""

from pathlib import Path

from experiments.fleets import QUICK

from caesura.experiments import sweep as module
from caesura.experiments.sweep import Request


def request_of(configs: dict[str, Path], out: Path, *over: str, **more) -> Request:
    """A sweep of ACT-ENC over these settings, of a few updates."""
    folder = configs["act"].parent
    test = (f"data.test.src={folder}/test.de", f"data.test.trg={folder}/test.en")
    common = (*test, *QUICK, *more.pop("common", ()))
    return Request(more.pop("config", configs["act"]), out, over, common=common, **more)


def written(request: Request):
    """What is written of a request before anything is trained."""
    found = module.points(module._plan(request, module._rows(request)))
    request.out.mkdir(exist_ok=True)
    return module.write(request, found, [*found[0].values], ())
