"use strict";
/* The changes of a commit: documents by the methods here, operations by their own names. */
const errors = require("./errors.js");
const { addOperations } = require("./operations_base.js");
const {
    checkValues,
    checkCount,
    checked,
    checkDefined,
    checkDocument,
    checkFunction,
    checkText,
} = require("./options.js");

const WHERE = ["where"];
/* For each kind of change: the name of its document, and an example of the document. */
const WITH = {
    insert: ["document", "{n: 1}"],
    update: ["operators", "{$set: {n: 1}}"],
    replace: ["document", "{n: 1}"],
    change: ["old and new values", "{n: [1, 2]}"],
};

/* Throws the error of a change that comes after the changes were sent: it would be lost. */
function throwLate(method) {
    throw new errors.Invalid(
        `a change was added after the end of the function of ${method}: await each call in it ` +
            "(forEach does not wait for an async function: use for...of)",
    );
}

/* Each method adds a change and returns its number. */
class Changes {
    list = [];
    /* The method whose function has ended. */
    #ended;

    /* Adds a change. The methods of the operations call this method. */
    _run(document) {
        if (this.#ended) throwLate(this.#ended);
        return this.list.push(document);
    }

    /* The function of `method` has ended: further changes are errors. */
    _end(method) {
        this.#ended = method;
    }

    #add(kind, collection, fields, options) {
        checkText(collection, `the collection of ${kind}`);
        const { where } = checked(options, WHERE, kind);
        const what = `${kind} in ${collection}`;
        if (options !== undefined && "where" in options && where === undefined)
            throw new TypeError(
                `the option where of ${what} is undefined: give it a condition, or omit it`,
            );
        if ("id" in fields && fields.id === undefined)
            throw new TypeError(`the _id of ${what} is undefined`);
        checkDefined(fields.id, `the _id of ${what}`);
        if (where !== undefined) checkDocument(where, `the option where of ${what}`, "{n: 1}");
        checkDefined(where, `the condition of ${what}`);
        if (kind in WITH) {
            const [name, example] = WITH[kind];
            checkDocument(fields.with, `the ${name} of ${what}`, example);
            checkValues(fields.with, `the ${name} of ${what}`);
        }
        return this._run({ [kind]: collection, ...fields, ...(where && { if: where }) });
    }

    insert(collection, document) {
        return this.#add("insert", collection, { with: document });
    }

    update(collection, id, operators, options) {
        return this.#add("update", collection, { id, with: operators }, options);
    }

    replace(collection, id, document, options) {
        return this.#add("replace", collection, { id, with: document }, options);
    }

    remove(collection, id, options) {
        return this.#add("remove", collection, { id }, options);
    }

    require(collection, id, options) {
        return this.#add("require", collection, { id }, options);
    }

    hold(collection, id, options) {
        return this.#add("hold", collection, { id }, options);
    }

    missing(collection, id) {
        return this.#add("missing", collection, { id });
    }

    change(collection, id, oldAndNew) {
        return this.#add("change", collection, { id, with: oldAndNew });
    }
}

/* Refuses arguments that a method does not have, such as a condition of insert. */
for (const kind of ["insert", "update", "replace", "remove", "require", "hold", "missing", "change"]) {
    const add = Changes.prototype[kind];
    Changes.prototype[kind] = function (...given) {
        checkCount(kind, given, add.length);
        return add.apply(this, given);
    };
}

addOperations(Changes.prototype, (row) => row.commit);

/* Returns the changes that `fill(changes)` adds. */
async function changesOf(fill, method) {
    checkFunction(fill, `the first argument of ${method}`);
    const changes = new Changes();
    try {
        await fill(changes);
    } finally {
        changes._end(method);
    }
    return changes.list;
}

module.exports = { Changes, changesOf, throwLate };
