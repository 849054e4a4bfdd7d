export * from "./index.js";
import * as truce from "./index.js";
export default truce;
