/**
 * The order in which clusters of mixed directions stand: the Unicode bidirectional algorithm without its
 * explicit marks, which the page shows as characters of their own. A level is even where text runs to the
 * right, and odd where it runs to the left.
 */

const LEFTWARDS = /^[\p{sc=Hebrew}\p{sc=Arabic}\p{sc=Syriac}\p{sc=Thaana}\p{sc=Nko}\p{sc=Adlam}]/u;
const DIGIT = /^[0-9\u0660-\u0669\u06f0-\u06f9\uff10-\uff19]/;
const WITH_DIGITS = /^[#$%+\-\u00a3\u00a5\u00b0\u20ac\u066a]/; // beside a number, part of it
const BETWEEN_DIGITS = /^[+\-.,:/\u00a0\u060c\u066b\u066c]$/;
const OTHER = /^[\p{L}\p{N}]/u;

/** Which way a text runs: that of its first letter. @param {string} text @returns {"rtl" | "ltr"} */
export function direction(text) {
  return LEFTWARDS.test(text.match(/\p{L}/u)?.[0] ?? "") ? "rtl" : "ltr";
}

/** What a cluster is: R or L, a digit (N), or neutral (null). @param {string} cluster */
function kind(cluster) {
  if (DIGIT.test(cluster)) return "N";
  if (LEFTWARDS.test(cluster)) return "R";
  return OTHER.test(cluster) ? "L" : null;
}

/** Kinds, with signs that belong to a number as digits, and digits after L as L. */
function kinds(/** @type {string[]} */ list, /** @type {"R" | "L"} */ own) {
  const found = list.map(kind);
  list.forEach((cluster, i) => {
    if (BETWEEN_DIGITS.test(cluster) && found[i - 1] === "N" && found[i + 1] === "N") found[i] = "N";
    else if (WITH_DIGITS.test(cluster) && (found[i - 1] === "N" || found[i + 1] === "N")) found[i] = "N";
  });
  let strong = own;
  return found.map((one) => {
    if (one === "R" || one === "L") strong = one;
    return one === "N" && strong === "L" ? "L" : one;
  });
}

/**
 * The level of each cluster of a line.
 * @param {string[]} list @param {"rtl" | "ltr"} base of the line
 * @returns {number[]}
 */
export function levels(list, base) {
  const own = base === "rtl" ? "R" : "L";
  const found = kinds(list, own);
  const [left, right] = [around(found, own), around(found.toReversed(), own).toReversed()];
  return found.map((one, i) => {
    if (one === "N") return 2;
    const settled = one ?? (left[i] === right[i] ? left[i] : own);
    return settled === "R" ? 1 : own === "R" ? 2 : 0;
  });
}

/** What stands before each place: R or L; a digit that is none of L counts as R. */
function around(found, own) {
  let last = own;
  return found.map((one) => {
    const before = last;
    if (one) last = one === "L" ? "L" : "R";
    return before;
  });
}

/** The places of a row's clusters from left to right. @param {number[]} row the levels @returns {number[]} */
export function visual(row) {
  let order = row.map((_, i) => i);
  for (let level = Math.max(0, ...row); level > 0; level -= 1) {
    order = runs(order, (i) => row[i] >= level).flatMap(({ is, of }) => (is ? of.toReversed() : of));
  }
  return order;
}

/**
 * A list as stretches of those that are so and of those that are not.
 * @template T @param {T[]} list @param {(item: T) => boolean} test @returns {{is: boolean, of: T[]}[]}
 */
export function runs(list, test) {
  const found = [];
  for (const item of list) {
    const is = test(item);
    if (found.at(-1)?.is !== is) found.push({ is, of: [] });
    found.at(-1).of.push(item);
  }
  return found;
}
