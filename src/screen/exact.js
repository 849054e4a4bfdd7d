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

const TOKEN = /"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?|-?\d[\d.eE+-]*/g;

export function parse(text) {
    const marked = text.replace(TOKEN, (token, string, colon) => {
        if (string !== undefined)
            return colon && /^\d+$/.test(string) ? `"\\u0000${string}"${colon}` : token;
        return /^-?\d{1,15}$/.test(token) ? token : `{"\\u0000":"${token}"}`;
    });
    return JSON.parse(marked, (key, value) =>
        value && typeof value === 'object' && typeof value['\0'] === 'string'
            ? new Exact(value['\0'])
            : value,
    );
}

export const keyName = (key) => (key[0] === '\0' ? key.slice(1) : key);

// Returns the text of a value; `indent` spaces for each level, 0: one line.
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

// Returns the number that a person wrote, with all digits.
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
