"use strict";
/* Documents: the common methods of MongoDB's driver, in process and through a server alike. */
const { ObjectId, calculateObjectSize } = require("./bson.js");
const { checkCounts, Cursor, FindCursor, sortOf } = require("./cursor.js");
const { ofReply } = require("./failure.js");
const { mergeJson, MERGE_OPTIONS } = require("./merge.js");
const { checkValues, checked, checkDefined, checkDocument } = require("./options.js");

/* The maximum size of an insert command, in bytes and in documents. */
const BATCH_BYTES = 8 << 20;
const BATCH_COUNT = 10000;

const FIND = ["projection", "sort", "skip", "limit", "batchSize", "hint", "maxTimeMS"];
const FIND_ONE = ["projection", "sort", "skip", "hint", "maxTimeMS"];
const UPDATE = ["upsert", "arrayFilters", "hint"];
const REPLACE = ["upsert", "hint"];
const DELETE = ["hint"];
const MODIFY = ["projection", "sort", "upsert", "returnDocument", "arrayFilters", "maxTimeMS"];
const FIND_AND_DELETE = ["projection", "sort", "maxTimeMS"];
const INSERT_MANY = ["ordered"];
const COUNT = ["skip", "limit", "hint", "maxTimeMS"];
const DISTINCT = ["maxTimeMS"];
const AGGREGATE = ["batchSize", "hint", "maxTimeMS", "allowDiskUse", "let"];
const INDEX = [
    "name",
    "unique",
    "sparse",
    "expireAfterSeconds",
    "partialFilterExpression",
    "hidden",
    "weights",
    "wildcardProjection",
    "collation",
];

/* Checks a filter. One that is undefined is usually a variable without a value. */
function filterOf(filter, method) {
    const what = `the filter of ${method}`;
    if (filter === undefined || filter === null)
        throw new TypeError(`${what} is ${filter}: give it a value, or {} for all documents`);
    return checkDefined(checkDocument(filter, what, "{_id: 1}"), what);
}

function checkUpdate(update, method) {
    const stages = Array.isArray(update)
        ? update
        : [checkDocument(update, `the update of ${method}`, "{$set: {n: 1}}")];
    if (stages.some((stage) => !Object.keys(stage)[0]?.startsWith("$")))
        throw new TypeError(
            `the update of ${method} must have operators, such as {$set: {n: 1}}`,
        );
    return checkValues(update, `the update of ${method}`);
}

function checkReplacement(document, method) {
    checkDocument(document, `the replacement of ${method}`, "{n: 1}");
    if (Object.keys(document).some((name) => name.startsWith("$")))
        throw new TypeError(
            `the replacement of ${method} must not have operators; updateOne has them`,
        );
    return checkValues(document, `the replacement of ${method}`);
}

/* Throws the first error in the list of writes that failed, if the reply has one. */
function checkWrites(reply) {
    const [first] = reply.writeErrors ?? [];
    if (first)
        throw ofReply({ ...first, ...reply, errmsg: first.errmsg, code: first.code }, "write");
    return reply;
}

/* Returns the _id of a document, which gets one if it has none. */
function giveId(document) {
    if (!(document instanceof Map)) return (document._id ??= new ObjectId());
    if ((document.get("_id") ?? undefined) === undefined) document.set("_id", new ObjectId());
    return document.get("_id");
}

/* Splits documents such that each part fits into one command. */
function* batchesOf(documents) {
    let batch = [],
        bytes = 0;
    for (const document of documents) {
        const size = documents.length > 1 ? calculateObjectSize(document) : 0;
        if (batch.length === BATCH_COUNT || (batch.length > 0 && bytes + size > BATCH_BYTES)) {
            yield batch;
            [batch, bytes] = [[], 0];
        }
        batch.push(document);
        bytes += size;
    }
    if (batch.length > 0) yield batch;
}

class Collection {
    #database;

    constructor(database, name) {
        this.#database = database;
        this.collectionName = name;
    }

    #run(document) {
        return this.#database._command(document);
    }

    async #write(document) {
        return checkWrites(await this.#run(document));
    }

    /* ---- reading ---- */

    find(filter, options) {
        if (arguments.length === 0) filter = {};
        const { sort, ...given } = checkCounts(checked(options, FIND, "find"));
        const command = { find: this.collectionName, filter: filterOf(filter, "find"), ...given };
        if (sort !== undefined) command.sort = sortOf(sort);
        return new FindCursor(this.#database, command);
    }

    async findOne(filter, options) {
        if (arguments.length === 0) filter = {};
        const command = () => this.#findOneCommand(filter, options);
        if (filter?._id !== undefined) {
            const plain = options === undefined ? filter : undefined;
            const found = this.#database._findNow(this.collectionName, plain, command);
            if (found !== undefined) return found;
        }
        return (await this.#run(command())).cursor.firstBatch[0] ?? null;
    }

    #findOneCommand(filter, options) {
        const { sort, ...given } = checkCounts(checked(options, FIND_ONE, "findOne"));
        const command = {
            find: this.collectionName,
            filter: filterOf(filter, "findOne"),
            ...given,
            limit: 1,
            singleBatch: true,
        };
        if (sort !== undefined) command.sort = sortOf(sort);
        return command;
    }

    async countDocuments(filter, options) {
        if (arguments.length === 0) filter = {};
        const given = checkCounts(checked(options, COUNT, "countDocuments"));
        const query = filterOf(filter, "countDocuments");
        return (await this.#run({ count: this.collectionName, query, ...given })).n;
    }

    async estimatedDocumentCount() {
        return (await this.#run({ count: this.collectionName })).n;
    }

    async distinct(key, filter, options) {
        if (arguments.length < 2) filter = {};
        const given = checked(options, DISTINCT, "distinct");
        const query = filterOf(filter, "distinct");
        return (await this.#run({ distinct: this.collectionName, key, query, ...given })).values;
    }

    aggregate(pipeline = [], options) {
        const { batchSize, ...given } = checkCounts(checked(options, AGGREGATE, "aggregate"));
        if (!Array.isArray(pipeline))
            throw new TypeError("the pipeline of aggregate must be an array of stages");
        for (const stage of pipeline) checkDefined(stage?.$match, "$match of aggregate");
        checkValues(pipeline, "the pipeline of aggregate");
        const cursor = batchSize === undefined ? {} : { batchSize };
        const made = new Cursor(this.#database, {
            aggregate: this.collectionName,
            pipeline,
            cursor,
            ...given,
        });
        if (batchSize !== undefined) made._more.batchSize = batchSize;
        return made;
    }

    watch(pipeline, options) {
        return this.#database._watch(this.collectionName, pipeline, options);
    }

    /* ---- writing ---- */

    async insertOne(document) {
        checkDocument(document, "the argument of insertOne", "{n: 1}");
        checkValues(document, "the argument of insertOne");
        const { insertedIds } = await this.#insert([document], true);
        return { acknowledged: true, insertedId: insertedIds[0] };
    }

    async insertMany(documents, options) {
        const { ordered = true } = checked(options, INSERT_MANY, "insertMany");
        if (!Array.isArray(documents) || documents.length === 0)
            throw new TypeError(
                "the argument of insertMany must be an array of at least one document",
            );
        documents.forEach((document, i) => {
            checkDocument(document, `document ${i} of insertMany`, "{n: 1}");
            checkValues(document, `document ${i} of insertMany`);
        });
        return this.#insert(documents, ordered);
    }

    async #insert(documents, ordered) {
        const ids = documents.map(giveId);
        let failed;
        for (const batch of batchesOf(documents)) {
            const reply = await this.#run({
                insert: this.collectionName,
                documents: batch,
                ordered,
            });
            if (reply.writeErrors?.length > 0) failed ??= reply;
            if (failed && ordered) break;
        }
        if (failed) checkWrites(failed);
        return {
            acknowledged: true,
            insertedCount: documents.length,
            insertedIds: Object.fromEntries(ids.map((id, i) => [i, id])),
        };
    }

    async #update(statement) {
        const reply = await this.#write({ update: this.collectionName, updates: [statement] });
        const upserted = reply.upserted ?? [];
        return {
            acknowledged: true,
            matchedCount: reply.n - upserted.length,
            modifiedCount: reply.nModified,
            upsertedCount: upserted.length,
            upsertedId: upserted[0]?._id ?? null,
        };
    }

    async updateOne(filter, update, options) {
        const given = checked(options, UPDATE, "updateOne");
        return this.#update({
            q: filterOf(filter, "updateOne"),
            u: checkUpdate(update, "updateOne"),
            ...given,
        });
    }

    async updateMany(filter, update, options) {
        const given = checked(options, UPDATE, "updateMany");
        const q = filterOf(filter, "updateMany");
        return this.#update({ q, u: checkUpdate(update, "updateMany"), multi: true, ...given });
    }

    async replaceOne(filter, replacement, options) {
        const given = checked(options, REPLACE, "replaceOne");
        const q = filterOf(filter, "replaceOne");
        return this.#update({ q, u: checkReplacement(replacement, "replaceOne"), ...given });
    }

    async #delete(filter, limit, method, options) {
        const given = checked(options, DELETE, method);
        const q = filterOf(filter, method);
        const reply = await this.#write({
            delete: this.collectionName,
            deletes: [{ q, limit, ...given }],
        });
        return { acknowledged: true, deletedCount: reply.n };
    }

    deleteOne(filter, options) {
        return this.#delete(filter, 1, "deleteOne", options);
    }

    deleteMany(filter, options) {
        return this.#delete(filter, 0, "deleteMany", options);
    }

    async #findAndModify(filter, method, fields, options, known) {
        const { projection, sort, returnDocument, ...given } = checked(options, known, method);
        const command = {
            findAndModify: this.collectionName,
            query: filterOf(filter, method),
            ...fields,
            ...given,
        };
        if (projection !== undefined) command.fields = projection;
        if (sort !== undefined) command.sort = sortOf(sort);
        if (
            returnDocument !== undefined &&
            returnDocument !== "after" &&
            returnDocument !== "before"
        )
            throw new TypeError(
                `the option returnDocument of ${method} must be "before" or "after"`,
            );
        if (returnDocument === "after") command.new = true;
        return (await this.#write(command)).value ?? null;
    }

    async findOneAndUpdate(filter, update, options) {
        const fields = { update: checkUpdate(update, "findOneAndUpdate") };
        return this.#findAndModify(filter, "findOneAndUpdate", fields, options, MODIFY);
    }

    async findOneAndReplace(filter, replacement, options) {
        const fields = { update: checkReplacement(replacement, "findOneAndReplace") };
        return this.#findAndModify(filter, "findOneAndReplace", fields, options, MODIFY);
    }

    async findOneAndDelete(filter, options) {
        return this.#findAndModify(
            filter,
            "findOneAndDelete",
            { remove: true },
            options,
            FIND_AND_DELETE,
        );
    }

    /* ---- revisions ---- */

    async merge(document, options) {
        const given = checked(options, MERGE_OPTIONS, "merge");
        checkDocument(document, "the first argument of merge", '{_id: 1, title: "..."}');
        checkValues(document, "the first argument of merge");
        return this.#database._several(() =>
            mergeJson(this.#database, this.collectionName, document, given),
        );
    }

    /* ---- indexes ---- */

    async createIndex(keys, options) {
        const { name, ...given } = checked(options, INDEX, "createIndex");
        const key = sortOf(keys);
        if (!key || Object.keys(key).length === 0)
            throw new TypeError(
                'createIndex needs the fields of the index, such as {name: 1} or "name"',
            );
        const made =
            name ??
            Object.entries(key)
                .map((pair) => pair.join("_"))
                .join("_");
        await this.#run({
            createIndexes: this.collectionName,
            indexes: [{ key, name: made, ...given }],
        });
        return made;
    }

    listIndexes() {
        return new Cursor(this.#database, { listIndexes: this.collectionName });
    }

    indexes() {
        return this.listIndexes().toArray();
    }

    async dropIndex(name) {
        await this.#run({ dropIndexes: this.collectionName, index: name });
    }

    async drop() {
        await this.#run({ drop: this.collectionName });
        return true;
    }
}

module.exports = { Collection };
