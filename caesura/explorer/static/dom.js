/** Elements made in one call; whatever text they get stays text. */

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes a function is a listener, false and null are left out
 * @param {...(Node | string | null)} children
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for a part of a drawing. */
export function draw(/** @type {string} */ tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, String(value));
  }
}

/** A number for reading, with a true minus. @param {number} value @param {number} digits */
export function number(value, digits = 2) {
  return value.toFixed(digits).replace("-", "−");
}

/** A number with its sign, if it has one when rounded. @param {number} value @param {number} digits */
export function signed(value, digits = 2) {
  const shown = number(value, digits).replace(/^−(?=[0.]+$)/, "");
  return (value > 0 && Number(shown) !== 0 ? "+" : "") + shown;
}

/** A message as a sentence: a capital first and a full stop last. @param {Error} error */
export function sentence({ message }) {
  const first = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
