/** Small curves of a training: one drawing per name, with the newest value beside it. */

import { draw, make } from "./dom.js";

const [WIDTH, HEIGHT, PAD] = [220, 64, 4];

const FIRST = ["bleu", "chrf", "exact", "loss", "segment_length", "boundary_f1"];
const AT_ONCE = 6; // of these, in this order; the others are in a fold

/**
 * Of a training that runs, the first of the curves are in sight.
 * @param {Record<string, [number, number][]>} curves
 * @param {boolean} running
 * @param {boolean} open whether the fold is
 */
export function drawCurves(curves, running, open) {
  const rank = ([name]) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const sorted = Object.entries(curves).sort((a, b) => rank(a) - rank(b));
  const drawn = sorted.filter(([, points]) => points.length > 0).map(drawCurve);
  const shown = drawn.slice(0, running ? AT_ONCE : 0);
  const more = drawn.slice(shown.length);
  if (!more.length) return shown;
  const name = running ? `${more.length} more curves` : "training curves";
  return [...shown, make("details", { open }, make("summary", {}, name), make("div", {}, ...more))];
}

/** @param {[string, [number, number][]]} curve */
function drawCurve([name, points]) {
  const last = points.at(-1);
  const label = `${name}: ${short(last[1])} at update ${last[0].toLocaleString("en")}`;
  const [cx, cy] = place(points)(last);
  return make(
    "figure",
    { class: "curve" },
    make("figcaption", {}, make("span", {}, name), make("b", {}, short(last[1]))),
    draw(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      draw("path", { class: "axis", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` }),
      draw("path", { class: "trace", d: path(points) }),
      draw("circle", { class: "newest", r: 3, cx, cy }),
    ),
  );
}

/** How a curve's points lie in its drawing. @param {[number, number][]} points */
function place(points) {
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  return ([x, y]) => [
    PAD + ((x - left) / (right - left || 1)) * (WIDTH - 2 * PAD),
    HEIGHT - PAD - (high > low ? (y - low) / (high - low) : 0.5) * (HEIGHT - 2 * PAD),
  ];
}

/** @param {[number, number][]} points */
export function path(points) {
  const at = place(points);
  return points.map((point, i) => `${i ? "L" : "M"}${at(point).map((v) => v.toFixed(1)).join(" ")}`).join("");
}

function short(/** @type {number} */ value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
