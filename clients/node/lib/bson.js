"use strict";
/*
 * The BSON library: the one of the driver if the driver `mongodb` is installed, and otherwise the
 * package's own. The driver refuses values (ObjectId, Decimal128) of another version of BSON.
 */
const { dirname } = require("node:path");

/* Returns where modules of the driver are searched, or undefined without a driver. */
function driver() {
    try {
        return dirname(require.resolve("mongodb"));
    } catch {
        return undefined;
    }
}

function load() {
    const folder = driver();
    return require(folder ? require.resolve("bson", { paths: [folder] }) : "bson");
}

module.exports = load();
