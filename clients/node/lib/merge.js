"use strict";
/*
 * Revisions from the JSON that a browser sent back.
 *
 * JSON has no ObjectId, Date, Decimal128, Binary, or Long: `res.json(document)` has sent them as
 * strings, or as {"$numberDecimal": ...}. A field that comes back in the JSON form of its type gets
 * the type that the stored document has at the same path. All other values are unchanged.
 */
const bson = require("./bson.js");
const rows = require("./operations.js");

const OTHER = ["get", "save", "merge", "remove"];
const MERGE_OPTIONS = rows.revision.options.filter((name) => !OTHER.includes(name));

/* Returns the value that `sent` means if it is the JSON form of the stored type, or undefined. */
function revived(sent, stored) {
    if (stored instanceof Date) {
        const time =
            typeof sent === "string" && /^\d{4}-\d\d-\d\dT/.test(sent) ? new Date(sent) : undefined;
        return time && !Number.isNaN(time.getTime()) ? time : undefined;
    }
    switch (stored?._bsontype) {
        case "ObjectId":
            return typeof sent === "string" && /^[0-9a-f]{24}$/i.test(sent)
                ? new bson.ObjectId(sent)
                : undefined;
        case "Decimal128":
            return typeof sent?.$numberDecimal === "string"
                ? bson.Decimal128.fromString(sent.$numberDecimal)
                : undefined;
        case "Binary": // Includes UUIDs, whose JSON form is hexadecimal.
            if (typeof sent !== "string") return undefined;
            if (stored.sub_type === bson.Binary.SUBTYPE_UUID && bson.UUID.isValid(sent))
                return new bson.UUID(sent);
            return new bson.Binary(Buffer.from(sent, "base64"), stored.sub_type);
        case "Long":
        case "Timestamp": {
            const same = JSON.stringify(stored) === JSON.stringify(sent);
            return same ? stored : undefined;
        }
        default:
            return undefined;
    }
}

/* Returns the sent value with the types of the stored one. */
function typed(sent, stored) {
    if (Array.isArray(sent)) {
        const list = Array.isArray(stored) ? stored : [];
        // Without a stored element at its index, an element gets the types of the first one.
        return sent.map((one, i) => typed(one, list[i] ?? list[0]));
    }
    const value = revived(sent, stored);
    if (value !== undefined) return value;
    if (sent === null || typeof sent !== "object" || sent._bsontype || sent instanceof Date)
        return sent;
    const fields =
        stored !== null && typeof stored === "object" && !Array.isArray(stored) ? stored : {};
    return Object.fromEntries(
        Object.entries(sent).map(([name, one]) => [
            name,
            typed(one, Object.hasOwn(fields, name) ? fields[name] : undefined),
        ]),
    );
}

async function storedOf(database, collection, id, how) {
    const found = await database.revision(collection, { get: id, ...how });
    if (found.status === "ok" || typeof id !== "string" || !/^[0-9a-f]{24}$/i.test(id))
        return found;
    return database.revision(collection, { get: new bson.ObjectId(id), ...how });
}

async function mergeJson(database, collection, document, options) {
    const { versionField } = options;
    if (document._id === undefined || options.version === undefined)
        throw new TypeError(
            "merge needs a document with its _id, and the version that the form showed",
        );
    const how = versionField === undefined ? {} : { versionField };
    const { document: stored } = await storedOf(database, collection, document._id, how);
    return database.revision(collection, { merge: typed(document, stored ?? {}), ...options });
}

module.exports = { MERGE_OPTIONS, mergeJson };
