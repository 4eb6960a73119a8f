/** What a hand does to a line, with a pointer or with keys. */

const FAR = 5; // pixels that a pointer moves before it drags

/**
 * @param {import("./line.js").Line} line
 * @param {{hold: (cuts: Record<number, 1 | -1 | 0>) => void, look: (offset: number | null) => void}} on
 *   hold: what has been decided; look: the gap that the hand is at
 */
export function giveHands(line, on) {
  toggles(line, on);
  keys(line, on);
  drags(line, on);
}

/** Holds a free gap as it is, or releases a held one. */
export function lockOrRelease(line, offset) {
  const gap = line.gapAt(offset);
  return { [offset]: gap.locked ? 0 : gap.cut ? 1 : -1 };
}

function toggles(line, on) {
  const { element } = line;
  element.addEventListener("change", (event) => {
    const cell = line.cellOf(event.target);
    on.hold({ [cell.offset]: event.target.checked ? 1 : -1 });
  });
  element.addEventListener("click", (event) => {
    if (!event.target.closest(".lock")) return;
    event.preventDefault();
    const { offset } = line.cellOf(event.target);
    line.focus(offset);
    on.hold(lockOrRelease(line, offset));
  });
  element.addEventListener("focusin", (event) => {
    const cell = line.cellOf(event.target);
    line.focused(cell.offset);
    on.look(cell.offset);
  });
  element.addEventListener("pointerover", (event) => {
    if (event.target.closest(".gap")) on.look(line.cellOf(event.target).offset);
  });
}

function keys(line, on) {
  const { element } = line;
  element.addEventListener("keydown", (event) => {
    const cell = line.cellOf(event.target);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const rtl = getComputedStyle(element).direction === "rtl";
    const step = { ArrowLeft: rtl ? 1 : -1, ArrowRight: rtl ? -1 : 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step && event.shiftKey) moveCut(line, cell.offset, line.neighbour(cell.offset, step), on);
    else if (step) line.focus(line.neighbour(cell.offset, step) ?? cell.offset);
    else if (event.key === "Home") line.focus(line.ends()[0]);
    else if (event.key === "End") line.focus(line.ends()[1]);
    else if (event.key === "l" || event.key === "L") on.hold(lockOrRelease(line, cell.offset));
    else if (event.key === "Delete" || event.key === "Backspace") on.hold({ [cell.offset]: 0 });
    else return;
    event.preventDefault();
  });
}

/** Where there is a cut, it goes to the other gap, and both are held. */
function moveCut(line, from, to, on) {
  if (to === null || to === from || !line.gapAt(from)?.cut) return;
  on.hold({ [from]: -1, [to]: 1 });
  line.focus(to);
}

function drags(line, on) {
  const { element } = line;
  let from = null; // the gap of the cut that is held down
  let start = null;
  let dragging = false;
  const end = () => {
    from = start = null;
    dragging = false;
    element.classList.remove("dragging");
    line.target(null);
  };
  element.addEventListener("pointerdown", (event) => {
    const cell = event.target.closest(".gap") ? line.cellOf(event.target) : null;
    if (event.button !== 0 || !cell || !line.gapAt(cell.offset).cut) return;
    from = cell.offset;
    start = [event.clientX, event.clientY];
  });
  element.addEventListener("pointermove", (event) => {
    if (from === null) return;
    if (!dragging && Math.hypot(event.clientX - start[0], event.clientY - start[1]) < FAR) return;
    if (!dragging) {
      dragging = true;
      element.setPointerCapture(event.pointerId);
      element.classList.add("dragging");
    }
    line.target(line.nearest(event.clientX, event.clientY));
  });
  element.addEventListener("pointerup", (event) => {
    if (!dragging) return end();
    const [old, to] = [from, line.nearest(event.clientX, event.clientY)];
    // The click that ends a drag is not a toggle.
    const swallow = (click) => click.preventDefault();
    addEventListener("click", swallow, { capture: true });
    setTimeout(() => removeEventListener("click", swallow, { capture: true }));
    end();
    moveCut(line, old, to, on);
  });
  element.addEventListener("pointercancel", end);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && dragging) end();
  });
}
