/** The API as /openapi.json has it: each path with what it takes and what it answers. */

import { ask, keepToken } from "./api.js";
import { make } from "./dom.js";

const link = (name) => make("a", { href: `#${name}` }, make("code", {}, name));

/** A type in words, with links to those that have names. */
function typeOf(schema) {
  if (schema.$ref) return [link(schema.$ref.split("/").at(-1))];
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return between(options, " or ");
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" or ")];
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.prefixItems) return ["(", ...between(schema.prefixItems, ", "), ")"];
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items ?? {})];
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return ["object of ", ...typeOf(schema.additionalProperties)];
  }
  return [schema.type ?? "anything"];
}

/** Several types with a word between them. */
function between(schemas, word) {
  return schemas.flatMap((one, i) => (i ? [word, ...typeOf(one)] : typeOf(one)));
}

function fields(schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) =>
    make(
      "tr",
      {},
      make("td", {}, make("code", {}, name), required.has(name) ? null : make("small", {}, " optional")),
      make("td", {}, ...typeOf(field)),
      make("td", {}, field.description ?? ""),
    ),
  );
  const head = ["key", "type", "about"].map((name) => make("th", { scope: "col" }, name));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  return make("div", { class: "scroll" }, table);
}

const errors = new Map(); // what each status means: the same for every path

function bodies(/** @type {any} */ operation) {
  const found = [];
  const of = (content) => content?.["application/json"]?.schema;
  const asked = of(operation.requestBody?.content);
  if (asked) found.push(make("p", {}, "takes ", ...typeOf(asked)));
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    const schema = of(response.content);
    if (!schema) continue;
    const about = response.description ?? "";
    if (status < 400) found.push(make("p", {}, `${status}: `, ...typeOf(schema), ` ${about}`));
    else errors.set(status, about);
  }
  return found;
}

async function start() {
  keepToken();
  const api = await ask("/openapi.json");
  const sections = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) =>
      make(
        "section",
        {},
        make("h2", {}, make("code", {}, `${method.toUpperCase()} ${path}`)),
        make("p", {}, operation.summary ?? operation.description ?? ""),
        ...bodies(operation),
      ),
    ),
  );
  const meaning = ([status, about]) => make("li", {}, make("code", {}, status), ` ${about}`);
  const meanings = [...errors].map(meaning);
  const answered = make("p", {}, "each has the body ", link("ErrorAnswer"));
  sections.push(make("section", {}, make("h2", {}, "Errors"), answered, make("ul", {}, ...meanings)));
  const schemas = Object.entries(api.components?.schemas ?? {}).map(([name, schema]) =>
    make(
      "section",
      { id: name },
      make("h2", {}, make("code", {}, name)),
      make("p", {}, schema.description ?? ""),
      fields(schema),
    ),
  );
  document.getElementById("api").append(...sections, ...schemas);
  document.body.classList.add("ready");
}

start().catch((error) => {
  document.getElementById("news").textContent = error.message;
});
