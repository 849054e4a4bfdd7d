// Node sees the names that a module lists in `module.exports`, but not those of a spread.
export * from "./index.js";
export * from "./lib/errors.js";
export { default } from "./index.js";
