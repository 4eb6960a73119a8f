"""docs/explorer.png and docs/explorer.gif: the explorer's page with the included model; needs a Chromium."""

from __future__ import annotations

import io
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from caesura.explorer.server import Explorer
from caesura.explorer.shelf import Shelf

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from chromium import Browser, needed_browser, side_by_side  # noqa: E402  (the tests' own)
from explorer.pages import Window, link, listening  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Locator

MODEL = "tatoeba-de-en"
CAKE = "Meine Großmutter backt den besten Apfelkuchen."
UMBRELLA = "Ich habe meinen Regenschirm im Zug vergessen."
HOSPITAL = "Das Krankenhaus ist neben dem Bahnhof."
HEIGHT, SHRINKS = 860, 0.8
COLOURS = 250  # of the animation
POINTER = [(0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12)]


def middle(target: Locator) -> tuple[float, float]:
    """Where a hand takes hold of a gap: at its letters."""
    box = target.bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + 70


def light(browser: Browser, address: str) -> Window:
    """A cut that has moved, and a translation that has changed."""
    window = Window(browser, address, link(CAKE, MODEL), width=960, height=HEIGHT, device_scale_factor=2)
    window.toggle(31)
    page = window.page
    page.mouse.move(*middle(window.gap(37)))
    page.mouse.down()
    page.mouse.move(*middle(window.gap(39)), steps=3)
    page.mouse.up()
    window.strip()
    page.mouse.move(5, 5)
    return window


def dark(browser: Browser, address: str) -> Window:
    """A reference, and what a word of the translation attends to."""
    settings: dict[str, Any] = {"width": 960, "height": HEIGHT, "dark": True, "device_scale_factor": 2}
    window = Window(browser, address, link(UMBRELLA, MODEL), **settings)
    window.toggle(30)
    window.page.locator("#reference").fill("I forgot my umbrella on the train.")
    window.page.locator("#reference").blur()
    window.strip()
    window.panel().locator(".out").nth(14).hover()
    return window


def phone(browser: Browser, address: str) -> Window:
    """The same page, narrow."""
    window = Window(browser, address, link(HOSPITAL, MODEL), width=390, height=HEIGHT, phone=True)
    window.gap(4).tap()
    window.strip()
    window.box(4).blur()
    window.page.evaluate("scrollTo(0, document.querySelector('.panel').offsetTop - 12)")
    return window


def picture(browser: Browser, address: str) -> Image.Image:
    """The windows side by side."""
    shots = [make(browser, address).page.screenshot(animations="disabled") for make in (light, dark, phone)]
    return side_by_side(shots, SHRINKS)


class Film:
    """Frames of a page, each with how long it is shown, and a pointer where the mouse is."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.frames: list[Image.Image] = []
        self.milliseconds: list[int] = []
        self.at = (620.0, 300.0)

    def shoot(self, milliseconds: int) -> None:
        """Show the page as it is now for so long."""
        png = self.window.page.screenshot(animations="disabled")
        frame = Image.open(io.BytesIO(png)).convert("RGB")
        shape = [(self.at[0] + x, self.at[1] + y) for x, y in POINTER]
        ImageDraw.Draw(frame).polygon(shape, fill="#111", outline="#fff")
        self.frames.append(frame)
        self.milliseconds.append(milliseconds)

    def move(self, to: tuple[float, float], steps: int = 4) -> None:
        """Move the pointer, in sight."""
        (x, y), (left, top) = to, self.at
        for step in range(1, steps + 1):
            self.at = (left + (x - left) * step / steps, top + (y - top) * step / steps)
            self.window.page.mouse.move(*self.at)
            self.shoot(60)

    def settle(self, milliseconds: int) -> None:
        """Wait for what the page does, and show it."""
        self.window.strip()
        self.shoot(milliseconds)

    def save(self, path: Path) -> None:
        """As one file that goes round, in the colours that the frames have most of."""
        counts: Counter[Any] = Counter()
        for frame in self.frames:
            counts.update(
                {colour: count for count, colour in frame.getcolors(frame.width * frame.height) or []}
            )
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for colour, _ in counts.most_common(COLOURS) for part in colour])
        drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        drawn[0].save(
            path, save_all=True, append_images=drawn[1:], duration=self.milliseconds, loop=0, optimize=True
        )


def film(browser: Browser, address: str) -> Film:
    """A sentence is typed, a cut goes and another one moves, and all of it is taken back."""
    window = Window(browser, address, link("M", MODEL), width=960, height=800)
    shown = Film(window)
    for end in (6, 17, 23, 27, 34, len(CAKE)):
        window.type(CAKE[:end])
        shown.shoot(130)
    shown.settle(1300)
    shown.move(middle(window.gap(31)))
    shown.shoot(250)
    window.page.mouse.down()
    window.page.mouse.up()
    shown.settle(1500)
    shown.move(middle(window.gap(37)))
    window.page.mouse.down()
    shown.move(middle(window.gap(39)), steps=5)
    window.page.mouse.up()
    shown.settle(1900)
    slider = window.panel().get_by_role("slider")
    box = slider.bounding_box()
    assert box
    shown.move((box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2))
    for rate in ("3.5", "4", "4.5"):
        slider.fill(rate)
        shown.at = (shown.at[0] + box["width"] * 0.045, shown.at[1])
        window.settle()
        shown.shoot(110)
    shown.settle(1300)
    undo = window.page.locator("#undo").bounding_box()
    assert undo
    shown.move((undo["x"] + 20, undo["y"] + 15))
    for _ in range(3):
        window.click("undo")
        shown.shoot(180)
    shown.settle(900)
    return shown


def main() -> None:
    """Make both files."""
    explorer = Explorer(Shelf([Path(MODEL)]))
    with listening(explorer) as address, Browser(needed_browser()) as browser:
        picture(browser, address).save(HERE / "explorer.png", optimize=True)
        film(browser, address).save(HERE / "explorer.gif")
    explorer.stop()
    explorer.join(20)
    for name in ("explorer.png", "explorer.gif"):
        print(HERE / name, (HERE / name).stat().st_size)


if __name__ == "__main__":
    main()
