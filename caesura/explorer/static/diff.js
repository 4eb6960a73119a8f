/** What changed between two translations, by words. */

const WORDS = new Intl.Segmenter(undefined, { granularity: "word" });

/** @param {string} text */
const words = (text) => Array.from(WORDS.segment(text), (part) => part.segment);

/**
 * The words of two texts, each with whether the other text lacks it: a longest common subsequence.
 * @param {string} before @param {string} after
 * @returns {{before: Word[], after: Word[]}}
 * @typedef {{text: string, changed: boolean}} Word
 */
export function compare(before, after) {
  const [a, b] = [words(before), words(after)];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const found = {
    before: a.map((text) => ({ text, changed: true })),
    after: b.map((text) => ({ text, changed: true })),
  };
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      found.before[i].changed = found.after[j].changed = false;
      i += 1;
      j += 1;
    } else if (common[i + 1][j] >= common[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}
