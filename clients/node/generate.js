#!/usr/bin/env node
/*
 * Writes the generated files of the package, from the table of operations:
 *
 *     lib/operations.js      the command and the options of each method
 *     lib/operations.d.ts    their types and descriptions
 *
 *     clients/node/generate.js build/dev/truce            # writes them
 *     clients/node/generate.js --check build/dev/truce    # fails if they are not current
 *
 * The script reads the table over HTTP from a server in memory, so it needs no package.
 */
"use strict";
const { spawn } = require("node:child_process");
const { mkdtempSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");

const WIDTH = 100;
const TYPES = {
    string: "string",
    document: "Document",
    array: "readonly any[]",
    "document or array": "Document | readonly any[]",
    number: "number | Long",
    "true or false": "boolean",
    any: "any",
    ObjectId: "ObjectId | string", // with 24 hexadecimal digits
};
/* Arrays whose elements have one type. */
const ARRAYS = {
    "truceEnqueue.after": "readonly (ObjectId | string)[]",
    "truceQueue.ids": "readonly (ObjectId | string)[]",
    "truceFlow.jobs": "readonly FlowJob[]",
    "truceLedgerPost.entries": "readonly LedgerEntry[]",
    "truceLedgerPostMany.transactions": "readonly LedgerPostOptions[]",
};
const ELEMENTS = `
/** One of the jobs of flow. */
export interface FlowJob
  extends Omit<EnqueueOptions, "payloads" | "after" | "name" | "id" | "batch" | "open" | "onConflict"
    | "unique" | "uniquePayload" | "uniquePeriodMS" | "uniqueScope"> {
  /** unique in the workflow */
  name: string;
  /** absent: the queue of the workflow */
  queue?: string;
  /** the names of the jobs that it waits for */
  after?: readonly string[];
}

/** A change of the balance of an account. */
export interface LedgerEntry {
  account: string;
  /** in the smallest unit of the currency; negative for outgoing money */
  value: number | bigint | Long;
  type?: string;
}
`;
/* Targets that are not strings. */
const TARGETS = {
    changes: "readonly Document[]",
    cursor: "number | Long",
    job: "ObjectId | string",
    commit: "ObjectId | string",
};
/* These operations can be repeated if the caller gives an id or a key. */
const REPEATABLE_WITH = { truceCommit: "key", truceEnqueue: "id", truceTreePublish: "id" };
/* The name belongs to the commit builder. */
const METHODS = { truceCommit: "commitChanges" };

/* ---- the table ------------------------------------------------------------------------------- */

/* Starts a server, and resolves to its URL. */
function start(program, folder) {
    const server = spawn(
        program,
        [
            "serve",
            "memory:",
            "--socket",
            path.join(folder, "socket"),
            "--parent",
            String(process.pid),
            "--http",
            "0",
            "--json",
            "--quiet",
        ],
        { stdio: ["ignore", "pipe", "ignore"] },
    );
    return new Promise((resolve, reject) => {
        let text = "";
        server.stdout.on("data", (data) => {
            text += data;
            if (text.includes("\n")) resolve({ server, url: JSON.parse(text).http });
        });
        server.once("error", reject);
        server.once("exit", (code) => reject(new Error(`${program} serve ended with ${code}`)));
    });
}

async function readTable(program) {
    const folder = mkdtempSync(path.join(tmpdir(), "truce-generate-"));
    const { server, url } = await start(program, folder);
    const ask = async (body) => {
        const response = await fetch(`${url}/v1/test/truceHelp`, {
            method: "POST",
            body: JSON.stringify(body),
        });
        if (!response.ok) throw new Error(await response.text());
        return response.json();
    };
    try {
        const rows = [];
        for (const { name } of (await ask({})).commands) rows.push(await ask({ name }));
        return rows;
    } finally {
        server.removeAllListeners("exit");
        server.kill();
        rmSync(folder, { recursive: true, force: true });
    }
}

/* ---- names and types ------------------------------------------------------------------------- */

/* Operations that may find nothing, and have the same fields then. */
const ALWAYS_THE_SAME = new Set(["truceClaim"]);

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const methodName = (row) => METHODS[row.name] ?? row.name[5].toLowerCase() + row.name.slice(6);
const optionsName = (row) => `${capital(methodName(row))}Options`;
const isTime = (field) => field.help.includes("ms since 1970");
const isDuration = (field) => field.name.endsWith("MS") && !isTime(field);

function fieldType(row, field) {
    const array = ARRAYS[`${row.name}.${field.name}`];
    if (array) return array;
    if (field.words) return field.words.map((word) => JSON.stringify(word)).join(" | ");
    if (isTime(field)) return "Time";
    return isDuration(field) ? "Duration" : TYPES[field.type];
}

function bounds(field) {
    if (field.least === undefined || isTime(field)) return "";
    return field.most >= 2 ** 53 ? ` (from ${field.least})` : ` (${field.least} to ${field.most})`;
}

/* Returns a documentation comment of the paragraphs. */
function comment(paragraphs, indent) {
    const lines = [];
    for (const paragraph of paragraphs) {
        let line = "";
        for (const word of paragraph.replaceAll("*/", "* /").split(" ")) {
            if (line && indent.length + 3 + line.length + 1 + word.length > WIDTH) {
                lines.push(line);
                line = word;
            } else {
                line = line ? `${line} ${word}` : word;
            }
        }
        lines.push(line, "");
    }
    lines.pop();
    if (lines.length === 1 && indent.length + lines[0].length + 8 <= WIDTH)
        return [`${indent}/** ${lines[0]} */`];
    return [
        `${indent}/**`,
        ...lines.map((line) => `${indent} *${line && " "}${line}`),
        `${indent} */`,
    ];
}

/* ---- operations.js --------------------------------------------------------------------------- */

function tableModule(table) {
    const lines = [
        "// Generated by clients/node/generate.js from the table of operations. Do not edit.",
        '"use strict";',
        "",
        "/*",
        " * The rows by their methods. A property that is absent is false, or an empty list.",
        " *",
        " * target     the name of the first parameter",
        " * optional   the target may be 1 or absent",
        " * options    the names of the options",
        " * times      the options that are points in time",
        " * again      the operation may be repeated, or the option with which it may",
        " * commit     it can be a part of a commit",
        " * writes     it may change something",
        " */",
        "module.exports = {",
        ...table.flatMap(rowLines),
        "};",
        "",
    ];
    return lines.join("\n");
}

/* Returns the text in lines, which are broken at spaces. */
function wrapped(text, indent) {
    const lines = [];
    for (const word of text.split(" ")) {
        const line = `${lines.at(-1)} ${word}`;
        if (lines.length > 0 && line.length <= WIDTH) lines[lines.length - 1] = line;
        else lines.push(lines.length > 0 ? indent + word : word);
    }
    return lines.map((line) => line.replaceAll("\u00a0", " "));
}

/* Returns the entry of a row. A no-break space keeps the brackets at the words. */
function rowLines(row) {
    const properties = {
        command: row.name,
        target: row.target,
        optional: row.optional,
        again: REPEATABLE_WITH[row.name] ?? row.again,
        commit: row.commit,
        writes: row.writes,
        options: row.fields.length > 0 && row.fields.map((field) => field.name),
        times: row.fields.some(isTime) && row.fields.filter(isTime).map((field) => field.name),
    };
    const text = Object.entries(properties)
        .filter(([, value]) => value)
        .map(([name, value]) => `${name}:\u00a0${JSON.stringify(value).replaceAll('","', '", "')}`)
        .join(", ");
    return wrapped(`\u00a0\u00a0${methodName(row)}:\u00a0{ ${text}\u00a0},`, "    ");
}

/* ---- operations.d.ts ------------------------------------------------------------------------- */

/*
 * Returns the earlier row with the most fields that are the same as some of this row: at least three.
 * Its type describes them.
 */
function describedIn(row, earlier) {
    const found = { fields: [] };
    for (const other of earlier) {
        const known = new Set(other.fields.map((field) => JSON.stringify(field)));
        const fields = row.fields.filter((field) => known.has(JSON.stringify(field)));
        if (fields.length >= 3 && fields.length > found.fields.length)
            Object.assign(found, { row: other, fields });
    }
    return found;
}

function optionsType(row, index, rows) {
    const shared = describedIn(row, rows.slice(0, index));
    const names = shared.fields.map((field) => `"${field.name}"`).join(" | ");
    const pick = shared.row ? `extends Pick<${optionsName(shared.row)}, ${names}> ` : "";
    const lines = [
        ...comment([`The options of ${methodName(row)}.`], ""),
        ...wrapped(`export interface ${optionsName(row)} ${pick}{`, "    "),
    ];
    for (const field of row.fields.filter((field) => !shared.fields.includes(field))) {
        lines.push(
            ...comment([field.help + bounds(field)], "  "),
            `  ${field.name}${field.needed ? "" : "?"}: ${fieldType(row, field)};`,
        );
    }
    return [...lines, "}", ""];
}

function methodType(row) {
    const parameters = [],
        needed = row.fields.some((field) => field.needed);
    if (row.optional) parameters.push(`${row.target}${needed ? "" : "?"}: string | 1`);
    else if (row.target) parameters.push(`${row.target}: ${TARGETS[row.target] ?? "string"}`);
    if (row.fields.length > 0)
        parameters.push(`options${needed ? "" : "?"}: ${optionsName(row)}`);
    const described = [`${capital(row.help)}.`];
    if (row.target && row.value !== `the ${row.target}`)
        described.push(`${row.target}: ${row.value}`);
    described.push(`Reply: ${row.answer}`);
    const finds = row.answer.includes('"not found"') && !ALWAYS_THE_SAME.has(row.name);
    const reply = finds ? "M" : "R";
    const method = `  ${methodName(row)}(${parameters.join(", ")}): ${reply};`;
    return [...comment(described, "  "), method, ""];
}

function typesModule(table) {
    const lines = [
        "// Generated by clients/node/generate.js from the table of operations. Do not edit.",
        'import type { Document, Long, ObjectId } from "bson";',
        "",
        "/** Milliseconds. */",
        "export type Duration = number;",
        "/** A point in time, or the milliseconds since 1970. */",
        "export type Time = number | Date;",
        "",
        ...table.filter((row) => row.fields.length > 0).flatMap(optionsType),
        ...ELEMENTS.trim().split("\n"),
        "",
        "/** The operations that can be part of a commit. M is the reply of an operation that may find nothing. */",
        "export interface CommitOperations<R, M = R> {",
        ...table
            .filter((row) => row.commit)
            .flatMap(methodType)
            .slice(0, -1),
        "}",
        "",
        "/** All operations. */",
        "export interface Operations<R, M = R> extends CommitOperations<R, M> {",
        ...table
            .filter((row) => !row.commit)
            .flatMap(methodType)
            .slice(0, -1),
        "}",
        "",
    ];
    return lines.join("\n");
}

/* ---- main ------------------------------------------------------------------------------------ */

function read(file) {
    try {
        return readFileSync(file, "utf8");
    } catch {
        return "";
    }
}

async function main() {
    const check = process.argv.includes("--check");
    const [program, ...more] = process.argv.slice(2).filter((argument) => argument !== "--check");
    if (!program || more.length > 0) throw new Error("usage: generate.js [--check] TRUCE");
    const table = await readTable(program);
    const files = { "operations.js": tableModule(table), "operations.d.ts": typesModule(table) };
    const stale = Object.keys(files).filter(
        (name) => read(path.join(__dirname, "lib", name)) !== files[name],
    );
    if (check && stale.length > 0)
        throw new Error(
            `${stale.join(" and ")} are not current: run clients/node/generate.js ${program}`,
        );
    if (!check)
        for (const name of stale) writeFileSync(path.join(__dirname, "lib", name), files[name]);
}

main().catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
