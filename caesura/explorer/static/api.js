/** The server: one question at a time of each kind, errors as sentences, and a lost connection as one too. */

const KEY = "caesura-token";

/** An answer that is a sentence about what was wrong. */
export class Refusal extends Error {
  constructor(message, status, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** The server did not answer at all. */
export class Lost extends Error {}

/** Takes the token out of the address: it is kept for this tab alone, and no copied link carries it. */
export function keepToken() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const token = fields.get("token");
  if (token === null) return;
  sessionStorage.setItem(KEY, token);
  fields.delete("token");
  history.replaceState(null, "", `#${fields}`);
}

/**
 * Ask the server; without a body, with GET.
 * @param {string} path @param {object | null} body @param {AbortSignal} [signal]
 */
export async function ask(path, body = null, signal = undefined) {
  const headers = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  const init = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
  let response;
  let answer;
  try {
    response = await fetch(path, { ...init, headers, signal, cache: "no-store" });
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const strange = `The server gave an answer that is not JSON (${response?.status}).`;
    if (response) throw new Refusal(strange, 500, null);
    throw new Lost("The server does not answer.");
  }
  if (!response.ok) {
    const told = answer?.error?.message ?? `The server refused (${response.status}).`;
    throw new Refusal(told, response.status, answer?.error?.field ?? null);
  }
  return answer;
}

/** Runs the newest of many requests: an older one that waits or runs is given up. */
export class Newest {
  #timer = 0;
  #control = new AbortController();

  /** Give up what waits or runs. */
  stop() {
    clearTimeout(this.#timer);
    this.#control.abort();
  }

  /**
   * Run after a wait, unless something newer comes first.
   * @param {number} wait in milliseconds
   * @param {(signal: AbortSignal) => Promise<void>} work
   */
  run(wait, work) {
    this.stop();
    const control = new AbortController();
    this.#control = control;
    this.#timer = setTimeout(async () => {
      try {
        await work(control.signal);
      } catch (error) {
        if (error.name !== "AbortError" && !control.signal.aborted) throw error;
      }
    }, wait);
  }
}
