"""docs/report.png: a report in a light and a dark window and on a phone. `make picture` calls this."""

import hashlib
import sys
from pathlib import Path

from PIL.PngImagePlugin import PngInfo

from caesura.analysis import page
from caesura.experiments import demo

HERE = Path(__file__).resolve().parent
PICTURE = HERE / "report.png"
KEY = "made from"  # under which the picture holds the digest of what it was made from
PARTS = ("report.css", "page.py", "report.py", "glance.py", "chapters.py")  # what it shows of the report
HEIGHT, MARGIN, SHRINKS = 780, 16, 0.8
WINDOWS = (
    {"width": 960},
    {"width": 960, "dark": True, "anchor": "sentences"},
    {"width": 390, "phone": True},
)


def digest() -> str:
    """Of the code that the picture shows, of its windows and the models in it; not of their weights."""
    digests = hashlib.sha256(repr((demo.SYSTEMS, demo.CONFIG, WINDOWS, HEIGHT, MARGIN, SHRINKS)).encode())
    for name in PARTS:
        digests.update(Path(page.__file__).with_name(name).read_text(encoding="utf-8").encode())
    return digests.hexdigest()


def main(report: Path) -> None:
    """Open the report in each window, and put the pictures side by side."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from chromium import Browser, needed_browser, side_by_side

    shots = []
    with Browser(needed_browser()) as browser:
        for window in WINDOWS:
            size = dict(window)
            anchor = size.pop("anchor", "")
            page = browser.window(height=HEIGHT, device_scale_factor=2, **size)  # type: ignore[arg-type]
            page.goto(report.resolve().as_uri() + (f"#{anchor}" if anchor else ""))
            page.add_style_tag(content="html{scroll-behavior:auto}")
            browser.ask("location.hash && document.querySelector(location.hash).scrollIntoView()")
            shots.append(page.screenshot())
    facts = PngInfo()
    facts.add_text(KEY, digest())
    side_by_side(shots, SHRINKS, MARGIN).quantize(128).save(PICTURE, optimize=True, pnginfo=facts)
    print(PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
