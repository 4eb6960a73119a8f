/**
 * Text: code points, grapheme clusters, and what a reader sees of characters that show nothing.
 * Offsets that leave the page count code points; JavaScript counts UTF-16 units.
 */

const CLUSTERS = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const UNSEEN = /^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cn}\p{Co}\p{Cs}\u034f\u115f\u1160\u3164\uffa0]$/u;
const JOINING = /^[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Nko}\p{Script=Mongolian}]\p{M}*$/u;
const JOINER = "\u200d";

/** One line of whole characters: no line breaks, no halves of a surrogate pair. @param {string} text */
export function tidy(text) {
  return text.toWellFormed().replace(/\r\n|[\r\n\u2028\u2029]/g, " ");
}

/** How many code points a text has. @param {string} text */
export function size(text) {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

/** The code point that a UTF-16 index is in or before. @param {string} text @param {number} unit */
export function toPoint(text, unit) {
  let seen = 0;
  let count = 0;
  for (const point of text) {
    seen += point.length;
    if (seen > unit) break;
    count += 1;
  }
  return count;
}

/** The UTF-16 index at which a code point starts. @param {string} text @param {number} point */
export function toUnit(text, point) {
  return Array.from(text).slice(0, point).join("").length;
}

/** Grapheme clusters, each with the code point at which it starts. @param {string} text */
export function clusters(text) {
  let offset = 0;
  return Array.from(CLUSTERS.segment(text), ({ segment }) => {
    const cluster = { text: segment, offset };
    offset += size(segment);
    return cluster;
  });
}

/**
 * A cluster as it is shown: spaces and characters without a form of their own get one.
 * @param {string} cluster
 */
export function visible(cluster) {
  if (cluster === " ") return "␣";
  if (cluster === "\u00a0") return "⍽";
  if (cluster === "\t") return "⇥";
  if (UNSEEN.test(cluster)) return `U+${cluster.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  return /^\p{M}/u.test(cluster) ? `◌${cluster}` : cluster;
}

/** Clusters as they are shown, letters of joined scripts in the form that their neighbours give them. */
export function joined(/** @type {string[]} */ list) {
  const joins = list.map((cluster) => JOINING.test(cluster));
  return list.map((cluster, i) => {
    if (!joins[i]) return visible(cluster);
    return (joins[i - 1] ? JOINER : "") + cluster + (joins[i + 1] ? JOINER : "");
  });
}

/**
 * The held gaps of an edited text: those with both neighbours as before stay where their neighbours are.
 * @param {string} before @param {string} after @param {Record<number, 1 | -1>} held
 */
export function shiftHeld(before, after, held) {
  const [old, fresh] = [Array.from(before), Array.from(after)];
  const shorter = Math.min(old.length, fresh.length);
  let prefix = 0;
  while (prefix < shorter && old[prefix] === fresh[prefix]) prefix += 1;
  let suffix = 0;
  while (suffix < shorter - prefix && old.at(-1 - suffix) === fresh.at(-1 - suffix)) suffix += 1;
  const moved = {};
  for (const [key, value] of Object.entries(held)) {
    const offset = Number(key);
    if (offset < prefix) moved[offset] = value;
    else if (offset > old.length - suffix) moved[offset + fresh.length - old.length] = value;
  }
  return moved;
}
