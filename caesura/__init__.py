"""Caesura: translation models that learn where to cut their input."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caesura.model import Translator as Translator
    from caesura.segmenters.act import ActSegmenter as ActSegmenter
    from caesura.segmenters.base import Segmenter as Segmenter
    from caesura.segmenters.base import Segments as Segments
    from caesura.segmenters.lookup import LookupSegmenter as LookupSegmenter

__version__ = "0.1.0"

# Names are imported when they are asked for, so that a layer needs torch and numpy alone
# and the command line answers --help without loading torch.
_HOME = {
    "ActSegmenter": "caesura.segmenters.act",
    "LookupSegmenter": "caesura.segmenters.lookup",
    "Segmenter": "caesura.segmenters.base",
    "Segments": "caesura.segmenters.base",
    "Translator": "caesura.model",
}
__all__ = ["ActSegmenter", "LookupSegmenter", "Segmenter", "Segments", "Translator"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'caesura' has no attribute {name!r}")
