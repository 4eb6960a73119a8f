"""Caesura: translation models that learn where to cut their input."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caesura.analysis.explain import explain as explain
    from caesura.analysis.fidelity import fidelity as fidelity
    from caesura.analysis.flips import flips as flips
    from caesura.inference import Translator as Translator
    from caesura.segmenters.act import ActSegmenter as ActSegmenter
    from caesura.segmenters.base import BaseSegmenter as BaseSegmenter
    from caesura.segmenters.base import Cuts as Cuts
    from caesura.segmenters.base import Segments as Segments
    from caesura.segmenters.cutters.act import Act as Act
    from caesura.segmenters.cutters.bernoulli import Bernoulli as Bernoulli
    from caesura.segmenters.cutters.cif import Cif as Cif
    from caesura.segmenters.cutters.hard import Every as Every
    from caesura.segmenters.cutters.hard import Fixed as Fixed
    from caesura.segmenters.cutters.hard import Given as Given
    from caesura.segmenters.cutters.hard import Random as Random
    from caesura.segmenters.cutters.routing import Routing as Routing
    from caesura.segmenters.lookup import LookupSegmenter as LookupSegmenter
    from caesura.segmenters.parts import Segmenter as Segmenter
    from caesura.segmenters.pooling import Attention as Attention
    from caesura.segmenters.pooling import Last as Last
    from caesura.segmenters.pooling import Max as Max
    from caesura.segmenters.pooling import Mean as Mean
    from caesura.segmenters.pooling import Start as Start
    from caesura.segmenters.pooling import Weighted as Weighted
    from caesura.segmenters.rate import Rate as Rate
    from caesura.segmenters.readers.blocks import Blocks as Blocks
    from caesura.segmenters.readers.conv import Conv as Conv
    from caesura.segmenters.readers.lookup import Lookup as Lookup
    from caesura.segmenters.readers.recurrent import BiGru as BiGru
    from caesura.segmenters.readers.recurrent import Gru as Gru
    from caesura.segmenters.readers.transformer import Transformer as Transformer

__version__ = "0.2.0.dev0"

# Names are imported when they are asked for, so that a layer needs torch and numpy alone
# and the command line answers --help without loading torch.
_HOME = {
    "Act": "caesura.segmenters.cutters.act",
    "ActSegmenter": "caesura.segmenters.act",
    "Attention": "caesura.segmenters.pooling",
    "BaseSegmenter": "caesura.segmenters.base",
    "Bernoulli": "caesura.segmenters.cutters.bernoulli",
    "BiGru": "caesura.segmenters.readers.recurrent",
    "Blocks": "caesura.segmenters.readers.blocks",
    "Cif": "caesura.segmenters.cutters.cif",
    "Conv": "caesura.segmenters.readers.conv",
    "Cuts": "caesura.segmenters.base",
    "Every": "caesura.segmenters.cutters.hard",
    "Fixed": "caesura.segmenters.cutters.hard",
    "Given": "caesura.segmenters.cutters.hard",
    "Gru": "caesura.segmenters.readers.recurrent",
    "Last": "caesura.segmenters.pooling",
    "Lookup": "caesura.segmenters.readers.lookup",
    "LookupSegmenter": "caesura.segmenters.lookup",
    "Max": "caesura.segmenters.pooling",
    "Mean": "caesura.segmenters.pooling",
    "Random": "caesura.segmenters.cutters.hard",
    "Rate": "caesura.segmenters.rate",
    "Routing": "caesura.segmenters.cutters.routing",
    "Segmenter": "caesura.segmenters.parts",
    "Segments": "caesura.segmenters.base",
    "Start": "caesura.segmenters.pooling",
    "Transformer": "caesura.segmenters.readers.transformer",
    "Translator": "caesura.inference",
    "Weighted": "caesura.segmenters.pooling",
    "explain": "caesura.analysis.explain",
    "fidelity": "caesura.analysis.fidelity",
    "flips": "caesura.analysis.flips",
}
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'caesura' has no attribute {name!r}")
