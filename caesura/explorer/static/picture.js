/** A line with its cuts and its translation as a drawing of its own: SVG text, or a PNG made from it. */

import { direction, visual } from "./bidi.js";
import { number } from "./dom.js";
import { clusters } from "./text.js";

const [PAD, WIDTH, LETTER, GAP, BARS, ROW] = [24, 900, 20, 11, 40, 92];

/** @param {string} text */
function escaped(text) {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`).replace(/[^\P{Cc}\t]/gu, "�");
}

function colours(/** @type {Element} */ element) {
  const style = getComputedStyle(element);
  const of = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    element.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  const tints = { back: "--sheet", a: "--a", b: "--b", cut: "--c1", held: "--c2" };
  const names = { ...tints, ink: "--ink", muted: "--muted" };
  const found = Object.entries(names).map(([key, name]) => [key, of(name)]);
  return { font: style.fontFamily, ...Object.fromEntries(found) };
}

/** A text in rows that fit; what is too long for one is broken anywhere. @param {string} text */
function wrapped(/** @type {CanvasRenderingContext2D} */ pen, text) {
  const fits = (/** @type {string} */ row) => pen.measureText(row).width <= WIDTH - 2 * PAD;
  const words = text.split(/(?<= )/);
  const parts = words.flatMap((word) => (fits(word) ? [word] : clusters(word).map((one) => one.text)));
  const rows = [""];
  for (const part of parts) {
    if (rows.at(-1) && !fits(rows.at(-1) + part)) rows.push("");
    rows[rows.length - 1] += part;
  }
  return rows;
}

/** Cells with the widths of their gaps and letters, in rows that fit. */
function rowsOf(/** @type {CanvasRenderingContext2D} */ pen, cells) {
  const rows = [[]];
  let left = WIDTH - 2 * PAD;
  cells.forEach((cell, i) => {
    const gap = i ? GAP : 0; // there is no gap before the first one
    const wide = Math.max(12, pen.measureText(cell.shown).width + 4);
    if (gap + wide > left) {
      rows.push([]);
      left = WIDTH - 2 * PAD;
    }
    rows.at(-1).push({ cell, gap, wide });
    left -= gap + wide;
  });
  return rows;
}

/** A cell whose left edge is at x; its gap is on the side from which its text comes. */
function drawn({ cell, gap, wide }, x, top, colour) {
  const rtl = cell.level % 2 === 1;
  const joins = !cell.state?.cut;
  const letter = rtl ? x : x + gap;
  const box = { x: joins ? x : letter, wide: joins ? gap + wide : wide };
  const tint = cell.segment % 2 ? colour.a : colour.b;
  const parts = [
    `<rect x="${box.x}" y="${top + BARS}" width="${box.wide}" height="30" fill="${tint}"/>`,
    `<text x="${letter + wide / 2}" y="${top + BARS + 22}" text-anchor="middle" ` +
      `direction="${rtl ? "rtl" : "ltr"}">${escaped(cell.shown)}</text>`,
  ];
  if (cell.state) {
    const tall = Math.max(3, (cell.state.score ?? (cell.state.cut ? 1 : 0)) * (BARS - 6));
    const paint = cell.state.locked ? colour.held : colour.cut;
    const inside = cell.state.cut ? `fill="${paint}"` : `fill="none" stroke="${paint}"`;
    const at = (rtl ? x + wide : x) + 2;
    const y = top + BARS - 3 - tall;
    parts.push(`<rect x="${at}" y="${y}" width="${gap - 4}" height="${tall}" rx="2" ${inside}/>`);
  }
  return parts;
}

/**
 * The drawing.
 * @param {{name: string, line: import("./line.js").Line, answer: any, element: HTMLElement}} shown
 */
export function svgOf({ name, line, answer, element }) {
  const colour = colours(element);
  const font = escaped(colour.font);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${LETTER}px ${colour.font}`;
  const rtl = getComputedStyle(line.element).direction === "rtl";
  const parts = [];
  let [top, right] = [PAD + 20 - ROW, 0];
  for (const row of rowsOf(pen, line.cells())) {
    top += ROW;
    const long = row.reduce((sum, { gap, wide }) => sum + gap + wide, 0);
    right = Math.max(right, PAD + long);
    let x = rtl ? WIDTH - PAD - long : PAD;
    const places = row.map(() => 0);
    for (const i of visual(row.map(({ cell }) => cell.level))) {
      places[i] = x;
      x += row[i].gap + row[i].wide;
    }
    row.forEach((one, i) => parts.push(...drawn(one, places[i], top, colour)));
  }
  const text = answer?.translation ?? "";
  const rows = wrapped(pen, text);
  right = Math.max(right, ...rows.map((row) => PAD + pen.measureText(row).width));
  const width = rtl ? WIDTH : Math.ceil(Math.max(right + PAD, 420));
  const runs = direction(text);
  top += BARS + 64;
  for (const row of rows) {
    const x = runs === "rtl" ? width - PAD : PAD;
    parts.push(`<text x="${x}" y="${top}" direction="${runs}">${escaped(row)}</text>`);
    top += 28;
  }
  const score = answer?.log_probability;
  const told = score == null ? name : `${name} · log p ${number(score)}`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top}" ` +
    `viewBox="0 0 ${width} ${top}" ` +
    `font-family="${font}" font-size="${LETTER}" fill="${colour.ink}">` +
    `<rect width="100%" height="100%" fill="${colour.back}"/>` +
    `<text x="${PAD}" y="${PAD + 4}" font-size="13" fill="${colour.muted}">${escaped(told)}</text>` +
    `${parts.join("")}</svg>`
  );
}

/** The SVG as a PNG of twice its size. @param {string} svg @returns {Promise<Blob>} */
export async function pngOf(svg) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** Saves where the clipboard cannot be had: over a network, or where the browser refuses. */
function save(/** @type {Blob} */ blob, /** @type {string} */ name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return `Saved as ${name}, because the browser did not allow copying.`;
}

export async function copySvg(shown) {
  const svg = svgOf(shown);
  try {
    await navigator.clipboard.writeText(svg);
    return "Copied as SVG.";
  } catch {
    return save(new Blob([svg], { type: "image/svg+xml" }), "cuts.svg");
  }
}

export async function copyPng(shown) {
  const blob = await pngOf(svgOf(shown));
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    return "Copied as PNG.";
  } catch {
    return save(blob, "cuts.png");
  }
}
