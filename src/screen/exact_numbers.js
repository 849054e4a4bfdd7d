// JSON without loss. A number that a double may not represent, or that has a point or an exponent,
// becomes an Exact, which keeps its digits; so 9007199254740993 stays itself, and 1.0 does not
// become the integer 1. A key that looks like an array index would lose its position in an object,
// so it gets the prefix NUL, which no key of a document can contain.

export class Exact {
    constructor(text) {
        this.text = text;
    }
    toString() {
        return this.text;
    }
}

// Returns the position of the quote that ends the string that begins at `from`.
function endOfString(text, from) {
    for (let end = text.indexOf('"', from); end >= 0; end = text.indexOf('"', end + 1)) {
        let escapes = 0;
        while (text[end - 1 - escapes] === '\\') escapes++;
        if (escapes % 2 === 0) return end;
    }
    return text.length;
}

// A regular expression for whole strings would exhaust its stack with the escapes of a large one.
const QUOTE_OR_NUMBER = /"|-?\d[\d.eE+-]*/g;

export function parse(text) {
    const parts = [];
    let done = 0;
    const replace = (from, to, by) => {
        parts.push(text.slice(done, from), by);
        done = to;
    };
    QUOTE_OR_NUMBER.lastIndex = 0;
    for (let found; (found = QUOTE_OR_NUMBER.exec(text));) {
        const [token] = found,
            at = found.index;
        if (token === '"') {
            const end = endOfString(text, at + 1);
            QUOTE_OR_NUMBER.lastIndex = end + 1;
            if (/^\d$/.test(text[at + 1]) && /^\d+$/.test(text.slice(at + 1, end)))
                if (/^\s*:/.test(text.slice(end + 1, end + 20))) replace(at, at + 1, '"\\u0000');
        } else if (!/^-?\d{1,15}$/.test(token)) {
            replace(at, at + token.length, `{"\\u0000":"${token}"}`);
        }
    }
    return withExact(JSON.parse(parts.join('') + text.slice(done)));
}
// Replaces the marks of numbers. (A reviver of JSON.parse is several times slower with a large document.)
function withExact(value) {
    if (value === null || typeof value !== 'object') return value;
    if (typeof value['\0'] === 'string') return new Exact(value['\0']);
    if (Array.isArray(value)) {
        for (let i = 0; i < value.length; i++)
            if (typeof value[i] === 'object') value[i] = withExact(value[i]);
    } else {
        for (const key in value)
            if (typeof value[key] === 'object') value[key] = withExact(value[key]);
    }
    return value;
}

// Parses JSON that the user has typed. `what` names it in the error.
export function parseInput(string, what) {
    try {
        return parse(string);
    } catch (error) {
        let reason = error.message;
        try {
            JSON.parse(string); // for the right position
        } catch (plain) {
            reason = plain.message;
        }
        throw new Error(`${what} is not JSON: ${reason}`);
    }
}

export const keyName = (key) => (key[0] === '\0' ? key.slice(1) : key);
// Returns the key under which a parsed document or array has the name.
export const keyIn = (parent, name) =>
    /^\d+$/.test(name) && !Array.isArray(parent) ? `\0${name}` : name;

// Returns the text of a value, with `indent` spaces for each level. 0 means one line.
export function write(value, indent = 0, level = 0) {
    if (value instanceof Exact) return value.text;
    if (typeof value === 'bigint') return String(value);
    if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
    const list = Array.isArray(value);
    const parts = list
        ? value.map((part) => write(part, indent, level + 1))
        : Object.entries(value)
              .filter(([, part]) => part !== undefined)
              .map(
                  ([key, part]) =>
                      `${JSON.stringify(keyName(key))}: ${write(part, indent, level + 1)}`,
              );
    const [open, close] = list ? '[]' : '{}';
    if (!parts.length) return open + close;
    if (!indent) return open + parts.join(', ') + close;
    const pad = '\n' + ' '.repeat(indent * (level + 1));
    return open + pad + parts.join(',' + pad) + '\n' + ' '.repeat(indent * level) + close;
}

// Returns the beginning of the text of a value, without writing all of a large one.
export function brief(value, most) {
    let text = '';
    const add = (one) => {
        if (one === null || typeof one !== 'object' || one instanceof Exact) {
            text += typeof one === 'string' ? JSON.stringify(one.slice(0, most)) : write(one);
            return;
        }
        const list = Array.isArray(one);
        let between = '';
        text += list ? '[' : '{';
        for (const key in one) {
            text += between + (list ? '' : `${JSON.stringify(keyName(key))}: `);
            between = ', ';
            add(one[key]);
            if (text.length > most) return;
        }
        text += list ? ']' : '}';
    };
    add(value);
    return text.length > most ? `${text.slice(0, most)}…` : text;
}

// Returns a number for computations and charts, which may be rounded.
export function num(value) {
    if (value === null || value === undefined) return 0;
    if (typeof value === 'number') return value;
    if (value instanceof Exact) return Number(value.text);
    return Number(value.$numberLong ?? value.$numberDecimal ?? value.$numberDouble ?? value) || 0;
}

// Returns ms since 1970 of a date, or undefined.
export function time(value) {
    const date = value?.$date;
    if (date === undefined) return undefined;
    return typeof date === 'string' ? Date.parse(date) : num(date);
}

// Returns the number that the user has typed, with all digits.
export function whole(string) {
    if (!/^-?\d+$/.test(string)) throw new Error(`"${string}" is not a whole number.`);
    return new Exact(string);
}

// Returns a short text of an _id or of another scalar.
export function text(value) {
    if (value === undefined) return '';
    if (typeof value === 'string') return value;
    if (value && typeof value === 'object' && typeof value.$oid === 'string') return value.$oid;
    if (
        value &&
        typeof value === 'object' &&
        value.$date !== undefined &&
        typeof value.$date === 'string'
    )
        return value.$date;
    return write(value);
}
