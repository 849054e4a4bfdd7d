// Requests to the server, and the login.
import { num, parse, write } from './exact_numbers.js';

export const session = { database: '', access: {}, user: '' };

const STORED = 'truce.login';
let login = sessionStorage.getItem(STORED) ?? '';
try {
    session.user = JSON.parse(login).user;
} catch {
    login = '';
}

export class OpError extends Error {
    constructor(reply, http) {
        super(reply.errmsg ?? `the server replied with ${http}`);
        this.status = reply.status ?? '';
        this.codeName = reply.codeName ?? '';
        this.http = http;
    }
}
// The error of a server that did not reply.
export class OfflineError extends Error {}

export const hooks = { online() {}, login: async () => false };

function headers(action) {
    const all = { 'Content-Type': 'application/json' };
    if (login) all.Authorization = JSON.parse(login).header;
    if (action) all['X-Truce-Action'] = '1';
    return all;
}

export function setLogin(user, header) {
    login = header ? JSON.stringify({ user, header }) : '';
    session.user = login ? user : '';
    if (login) sessionStorage.setItem(STORED, login);
    else sessionStorage.removeItem(STORED);
}
export const hasLogin = () => login !== '';

const isJson = (response) => response.headers.get('Content-Type')?.startsWith('application/json');
async function send(path, options) {
    let response;
    try {
        response = await fetch(`../v1/${path}`, {
            credentials: 'same-origin',
            cache: 'no-store',
            ...options,
        });
    } catch (error) {
        if (error.name === 'AbortError') throw error;
        hooks.online(false);
        throw new OfflineError('The server does not reply.');
    }
    // A proxy replies in place of a server that does not.
    if ([502, 503, 504].includes(response.status) && !isJson(response)) {
        hooks.online(false);
        throw new OfflineError('The server does not reply.');
    }
    hooks.online(true);
    return response;
}

const memory = new Map();
// Runs an operation. With `action`, the user has started it, so the server logs it. With `ask`, the user is asked for
// a login if the server needs one.
export async function op(
    name,
    body = {},
    { database = session.database, action = false, ask = true, signal } = {},
) {
    const path = `${encodeURIComponent(database)}/${name}`;
    const request = () =>
        send(path, { method: 'POST', body: write(body), headers: headers(action), signal });
    let response = await request();
    while (response.status === 401 && ask && (await hooks.login())) response = await request();
    const reply = await response.text();
    let document;
    try {
        document = parse(reply);
    } catch {
        document = { errmsg: reply.slice(0, 300) };
    }
    if (action) memory.clear();
    if (!response.ok) throw new OpError(document, response.status);
    return document;
}

// The time limit of commands that read, so that no click is expensive.
export const READ_MS = 4000;

export async function find(collection, { limit = 50, ...options } = {}) {
    const reply = await op('find', {
        collection,
        limit,
        batchSize: limit, // otherwise 101
        singleBatch: true,
        maxTimeMS: READ_MS,
        ...options,
    });
    return reply.cursor.firstBatch;
}
export async function one(collection, filter, projection) {
    return (await find(collection, { filter, projection, limit: 1 }))[0];
}
export async function aggregate(collection, pipeline) {
    const reply = await op('aggregate', {
        collection,
        pipeline,
        cursor: { batchSize: 1000 },
        maxTimeMS: READ_MS,
    });
    return reply.cursor.firstBatch;
}

// Reads all documents of a collection, a batch at a time.
export async function* documents(collection, options) {
    let { cursor } = await op('find', { collection, batchSize: 1000, ...options });
    for (let batch = cursor.firstBatch; ; batch = cursor.nextBatch) {
        yield batch;
        if (!num(cursor.id)) return;
        ({ cursor } = await op('getMore', { cursor: cursor.id, collection, batchSize: 1000 }));
    }
}

// Counts up to COUNT_MAX. Returns COUNT_MAX + 1 if there are more, or if counting takes too long.
export const COUNT_MAX = 10000;
export async function count(collection, query) {
    try {
        const reply = await op('count', {
            collection,
            query,
            limit: COUNT_MAX + 1,
            maxTimeMS: READ_MS,
        });
        return reply.n;
    } catch (error) {
        if (error.http === 503) return COUNT_MAX + 1;
        throw error;
    }
}

// Reads server-sent events with fetch, because EventSource cannot send the login.
export async function watch(path, signal, onEvent, onOpen) {
    const response = await send(path, { headers: headers(false), signal });
    if (!response.ok) throw new OpError(parse(await response.text()), response.status);
    onOpen?.();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop();
        for (const block of blocks) {
            const fields = {};
            for (const line of block.split('\n')) {
                const at = line.indexOf(':');
                if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trim();
            }
            if (fields.data) onEvent(fields.event ?? 'message', parse(fields.data));
        }
    }
}

// The error of a screen whose object does not exist.
export const missing = (message) => Object.assign(new Error(message), { http: 404 });

// Returns the result of `read`, which runs at most once in `ms` for each key, and again after an action.
export function remember(key, ms, read) {
    const name = `${session.database}/${key}`,
        known = memory.get(name);
    if (known && Date.now() < known.until) return known.value;
    const value = read();
    memory.set(name, { value, until: Date.now() + ms });
    value.catch(() => memory.delete(name));
    return value;
}
// Returns undefined if the user may not read the data, or if the read takes too long.
export const optional = (promise) =>
    promise.catch((error) => {
        if (error.http === 403 || error.http === 503 || error.http === 404) return undefined;
        throw error;
    });
