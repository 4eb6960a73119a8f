"""What small sweeps are asked for."""

from pathlib import Path

from experiments.fleets import QUICK

from caesura.experiments.sweep import GridSweep, Request


def request_of(configs: dict[str, Path], out: Path, *over: str, **more) -> Request:
    """A sweep of ACT-ENC over these settings, of a few updates."""
    folder = configs["act"].parent
    test = (f"data.test.src={folder}/test.de", f"data.test.trg={folder}/test.en")
    common = (*test, *QUICK, *more.pop("common", ()))
    return Request(more.pop("config", configs["act"]), out=out, over=over, common=common, **more)


def written(request: Request):
    """What is written of a request before anything is trained."""
    request.out.mkdir(exist_ok=True)
    experiment = GridSweep(request)
    experiment.measures = ()
    experiment.write()
    return experiment.before
