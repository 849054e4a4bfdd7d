// Elements, tables, dialogs, and charts. Data becomes text nodes only; there is no innerHTML.
import { num, write, keyName, Exact } from './exact_numbers.js';
import { op, watch, session, OpError, COUNT_MAX } from './api.js';

// Makes characters visible that would change the appearance or the direction of other text.
const HIDDEN =
    /[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
export const clean = (string) =>
    String(string).replace(
        HIDDEN,
        (char) =>
            `\u27e8U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`,
    );

const SVG = new Set([
    'svg',
    'g',
    'rect',
    'path',
    'circle',
    'line',
    'text',
    'title',
    'polyline',
    'defs',
    'marker',
]);

// h('td.num.muted', {title: 'x', onclick: f}, child, ...)
export function h(name, ...rest) {
    const [tag, ...classes] = name.split('.');
    const svg = SVG.has(tag);
    const element = svg
        ? document.createElementNS('http://www.w3.org/2000/svg', tag)
        : document.createElement(tag || 'div');
    if (classes.length) element.setAttribute('class', classes.join(' '));
    if (rest[0] && Object.getPrototypeOf(rest[0]) === Object.prototype) {
        for (const [key, value] of Object.entries(rest.shift())) {
            if (value === undefined || value === null || value === false) continue;
            if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
            else if (key === 'value') element.value = value;
            else element.setAttribute(key, value === true ? '' : clean(value));
        }
    }
    add(element, rest);
    return element;
}
export function add(element, children) {
    for (const child of children.flat(9)) {
        if (child === undefined || child === null || child === false) continue;
        element.append(child instanceof Node ? child : clean(child));
    }
}

// ---- words ------------------------------------------------------------------------------------

export const grouped = (value) => {
    const string = value instanceof Exact ? value.text : String(value ?? '');
    return /^-?\d+$/.test(string) ? string.replace(/\B(?=(\d{3})+$)/g, '\u2009') : string;
};
// Writes an amount with the digits of its currency, without loss.
export function money(value, digits) {
    const raw =
        value !== null && typeof value === 'object' && !(value instanceof Exact)
            ? String(value.$numberDecimal ?? value.$numberLong ?? '')
            : String(value ?? '');
    if (!/^-?\d+$/.test(raw)) return raw;
    const minus = raw[0] === '-',
        all = raw.replace('-', '').padStart(digits + 1, '0'),
        split = all.length - digits;
    return `${minus ? '\u2212' : ''}${grouped(all.slice(0, split))}${digits ? `.${all.slice(split)}` : ''}`;
}
export const amount = (value, digits) =>
    h(num(value) < 0 ? 'span.minus' : 'span', money(value, digits));
// Formats a count. COUNT_MAX + 1 means that counting ended at its maximum.
export const capped = (n) => (n === COUNT_MAX + 1 ? `${grouped(COUNT_MAX)}+` : grouped(n));
// Returns the noun for n things, such as "job" or "jobs", and "entry" or "entries".
export const noun = (n, word, many = `${word.replace(/([^aeiou])y$/, '$1ie')}s`) =>
    n === 1 ? word : many;
export const plural = (n, word) => `${capped(n)} ${noun(n, word)}`;

export function duration(ms) {
    if (ms === undefined || Number.isNaN(ms)) return '';
    const steps = [
        [86400e3, 'd'],
        [3600e3, 'h'],
        [60e3, 'min'],
        [1e3, 's'],
    ];
    const size = Math.abs(ms);
    for (const [length, unit] of steps)
        if (size >= length) {
            const amount = size / length;
            return `${amount < 10 && unit !== 'min' ? Math.round(amount * 10) / 10 : Math.round(amount)} ${unit}`;
        }
    return `${Math.round(size)} ms`;
}
export function bytes(n) {
    let unit = 0;
    for (; n >= 1024 && unit < 4; unit++) n /= 1024;
    return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${['B', 'kB', 'MB', 'GB', 'TB'][unit]}`;
}
const stamp = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
export const when = (ms) =>
    ms === undefined ? '' : Math.abs(ms) > 8e15 ? String(ms) : stamp.format(ms);
export const iso = (ms) =>
    ms === undefined || Math.abs(ms) > 8e15 ? '' : new Date(ms).toISOString();
export function ago(ms) {
    if (ms === undefined) return '';
    const passed = Date.now() - ms;
    const words =
        Math.abs(passed) < 1000
            ? 'now'
            : passed > 0
              ? `${duration(passed)} ago`
              : `in ${duration(passed)}`;
    return h('time', { datetime: iso(ms), title: iso(ms) }, words);
}

// ---- links and small parts --------------------------------------------------------------------

export function href(parts, query = {}) {
    const search = new URLSearchParams(
        Object.entries(query).filter(([, value]) => value !== undefined && value !== ''),
    );
    const tail = search.toString();
    return `#/${[session.database, ...parts].map(encodeURIComponent).join('/')}${tail ? `?${tail}` : ''}`;
}
export const a = (parts, ...children) => h('a', { href: href(parts) }, children);
export const code = (value) => h('code', value);
// An _id in a path is its Extended JSON.
export const idPart = (id) => write(id);
export const state = (name) => h('span.state', { 'data-state': name }, name);
export const empty = (...children) => h('p.empty', children);
export function card(title, ...children) {
    return h('section.card', title && h('h2', title), children);
}
export const note = (kind, ...children) => h(`p.note.${kind}`, children);
export function facts(pairs) {
    return h(
        'dl.facts',
        pairs
            .filter(
                ([, value]) =>
                    value !== undefined &&
                    value !== '' &&
                    value !== null &&
                    value !== false &&
                    value?.length !== 0,
            )
            .map(([name, value]) => h('div', h('dt', name), h('dd', value))),
    );
}
export function copyButton(string) {
    const button = h(
        'button.quiet',
        {
            type: 'button',
            onclick: async () => {
                try {
                    await navigator.clipboard.writeText(string());
                    button.textContent = 'Copied';
                } catch {
                    button.textContent = 'Not allowed';
                }
                setTimeout(() => {
                    button.textContent = 'Copy';
                }, 1500);
            },
        },
        'Copy',
    );
    return button;
}

// The number of rows of a list that has no pages. Its reads ask for one more.
export const LIST_MAX = 200;
const onlyFirst = (most) => h('p.muted', `Only the first ${grouped(most)} are shown.`);
// A table. A column is {name, cell(row), kind}, and its kind is `num` or `wide`.
export function table(label, columns, rows, none = 'Nothing to show.', most = Infinity) {
    if (!rows.length) return empty(none);
    if (rows.length > most) return [table(label, columns, rows.slice(0, most)), onlyFirst(most)];
    return h(
        'div.table',
        { tabindex: 0, role: 'region', 'aria-label': label },
        h(
            'table',
            h(
                'thead',
                h(
                    'tr',
                    columns.map((column) =>
                        h(
                            `th${column.kind ? `.${column.kind}` : ''}`,
                            { scope: 'col' },
                            column.name,
                        ),
                    ),
                ),
            ),
            h(
                'tbody',
                rows.map((row) =>
                    h(
                        'tr',
                        columns.map((column) =>
                            h(
                                `td${column.kind ? `.${column.kind}` : ''}`,
                                {
                                    'data-name':
                                        typeof column.name === 'string' ? column.name : undefined,
                                },
                                column.cell(row),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    );
}

// ---- values -----------------------------------------------------------------------------------

const CHILDREN = 100;
const shortened = (name) => (name.length > 500 ? `${name.slice(0, 500)}…` : name);
function scalar(value) {
    const kind =
        typeof value === 'string'
            ? 'string'
            : value === null || typeof value === 'boolean'
              ? 'word'
              : 'number';
    const whole = write(value);
    return h(
        `span.v.${kind}`,
        whole.length > 2000
            ? `${whole.slice(0, 2000)}… (${grouped(whole.length)} characters)`
            : whole,
    );
}
const isTyped = (value) => Object.keys(value).length <= 2 && Object.keys(value)[0]?.startsWith('$');
function branch(entries, list, from = 0) {
    const part = entries.slice(from, from + CHILDREN);
    const nodes = part.map(([key, value]) =>
        h('li', !list && h('span.k', shortened(keyName(key))), !list && ': ', node(value, 1)),
    );
    if (from + CHILDREN < entries.length)
        nodes.push(
            h(
                'li',
                h(
                    'button.quiet',
                    {
                        type: 'button',
                        onclick: (event) =>
                            event.target
                                .closest('li')
                                .replaceWith(...branch(entries, list, from + CHILDREN)),
                    },
                    `Show ${grouped(entries.length - from - CHILDREN)} more`,
                ),
            ),
        );
    return nodes;
}
// Returns the number of `left` characters that remain after the text of a value. It is negative if the text is longer.
function roomAfter(value, left) {
    if (value === null || typeof value !== 'object' || value instanceof Exact)
        return left - (typeof value === 'string' ? value.length : 8);
    for (const key in value) {
        left = roomAfter(value[key], left - key.length);
        if (left < 0) break;
    }
    return left;
}
function node(value, level) {
    if (
        value === null ||
        typeof value !== 'object' ||
        value instanceof Exact ||
        (!Array.isArray(value) && isTyped(value))
    )
        return scalar(value);
    const list = Array.isArray(value),
        entries = Object.entries(value);
    if (!entries.length) return scalar(value);
    const details = h(
        'details',
        h(
            'summary',
            { onclick: () => details.setAttribute('data-used', '') },
            list ? `[ ${grouped(entries.length)} ]` : `{ ${plural(entries.length, 'field')} }`,
        ),
    );
    const fill = () => {
        if (details.open && details.children.length === 1)
            details.append(h('ul', branch(entries, list)));
    };
    details.addEventListener('toggle', fill);
    if (level < 1 || roomAfter(value, 200) >= 0) {
        details.open = true;
        fill();
    }
    return details;
}
// A document as a tree that opens and closes.
export const json = (value) =>
    h(
        'div.json',
        h(
            'div.tools',
            copyButton(() => write(value, 2)),
        ),
        node(value, 0),
    );

// ---- dialogs and actions ----------------------------------------------------------------------

export function toast(message, bad = false) {
    const line = h(`p.toast${bad ? '.bad' : ''}`, message);
    document.getElementById('toasts').append(line);
    setTimeout(() => line.remove(), bad ? 12000 : 5000);
}
const REASONS = {
    403: ' (your user lacks the role)',
    503: ' (the server may be busy, or this reads too much: use a narrower filter)',
};
export const explainError = (error) =>
    error instanceof OpError ? `${error.message}${REASONS[error.http] ?? ''}` : error.message;

// Shows a dialog with fields. Resolves to their values, or null. `run` gets the values. The dialog stays open, and
// shows the error, until `run` succeeds. The result of `run` is returned.
export function ask(title, { body = [], fields = [], confirm = 'OK', danger = false, run } = {}) {
    return new Promise((resolve) => {
        const inputs = fields.map((field) => {
            const id = `ask-${field.name}`;
            const input = field.choices
                ? h(
                      'select',
                      { id, name: field.name },
                      field.choices.map((choice) => h('option', { value: choice }, choice)),
                  )
                : field.rows
                  ? h('textarea', { id, name: field.name, rows: field.rows, spellcheck: 'false' })
                  : h('input', {
                        id,
                        name: field.name,
                        type: field.type ?? 'text',
                        autocomplete: field.autocomplete ?? 'off',
                        placeholder: field.hint,
                    });
            if (field.value !== undefined) input.value = field.value;
            return h('label', { for: id }, field.label, input);
        });
        const close = (values) => {
            dialog.close();
            dialog.remove();
            resolve(values);
        };
        const fault = h('div', { role: 'alert' });
        let busy = false;
        const submit = async (values) => {
            if (busy) return;
            busy = true;
            try {
                close(run ? await run(values) : values);
            } catch (error) {
                fault.replaceChildren(note('bad', explainError(error)));
            }
            busy = false;
        };
        const form = h(
            'form',
            {
                method: 'dialog',
                onsubmit: (event) => {
                    event.preventDefault();
                    submit(Object.fromEntries(new FormData(form)));
                },
            },
            h('h2', { id: 'ask-title' }, title),
            body.map((part) => (part instanceof Node ? part : h('p', part))),
            inputs,
            fault,
            h(
                'div.row.end',
                h('button', { type: 'button', onclick: () => close(null) }, 'Close'),
                h(`button.${danger ? 'danger' : 'primary'}`, { type: 'submit' }, confirm),
            ),
        );
        const dialog = h(
            'dialog',
            {
                'aria-labelledby': 'ask-title',
                oncancel: (event) => {
                    event.preventDefault();
                    close(null);
                },
            },
            form,
        );
        document.body.append(dialog);
        dialog.showModal();
    });
}

// A button that changes the store. `run` returns a message, or null if no region must be read again. `may` is the
// right that it needs, or null. `after` runs instead of reading the regions again.
export function action(
    label,
    run,
    { confirm, danger = false, may = 'write', primary = false, after } = {},
) {
    const allowed = may === null || session.access[may];
    const button = h(
        `button${danger ? '.danger' : primary ? '.primary' : ''}`,
        {
            type: 'button',
            disabled: !allowed,
            title: allowed ? undefined : 'Your user may only read here.',
            onclick: async () => {
                if (button.hasAttribute('aria-busy')) return;
                if (
                    confirm &&
                    (await ask(label, {
                        body: [typeof confirm === 'function' ? confirm() : confirm],
                        confirm: label,
                        danger,
                    })) === null
                )
                    return;
                // The button is not disabled, so that it keeps the focus.
                button.setAttribute('aria-busy', 'true');
                try {
                    const message = await run();
                    if (message) toast(message);
                    if (message !== null) (after ?? refresh)();
                } catch (error) {
                    toast(explainError(error), true);
                }
                button.removeAttribute('aria-busy');
            },
        },
        label,
    );
    return button;
}
export const act = (name, body, options) => op(name, body, { action: true, ...options });

// ---- regions that change while they are shown -------------------------------------------------

const regions = new Set();
let paused = false;
export const isPaused = () => paused;
export function setPaused(value) {
    paused = value;
    if (!paused) refresh();
}
// Begins a screen that shows these collections.
export function forget(collections) {
    regions.clear();
    watched = collections;
    begun = 0;
}

// A region is not replaced while the user works in it.
const USED = 'input:focus, textarea:focus, select:focus, input:checked, details[data-used]';

// Shows the data again, unless the user works in the region. Equal data is also shown again, because ages change.
function show(region) {
    if (region.shown && region.element.isConnected && !region.element.querySelector(USED))
        fill(region, region.show(region.data));
}
async function update(region, force) {
    region.again ||= region.busy && force;
    if (region.busy) return;
    region.busy = true;
    try {
        const data = await region.read();
        region.data = data;
        if (force || !region.shown) fill(region, region.show(data));
        else show(region);
        region.shown = true;
        region.element.querySelector('.stale')?.remove();
    } catch (error) {
        if (!region.shown) {
            fill(region, [note('bad', explainError(error))]);
        } else if (!region.element.querySelector('.stale')) {
            const message = `This part is not up to date: ${explainError(error)}`;
            region.element.prepend(note('warn.stale', message));
        }
    }
    region.element.removeAttribute('aria-busy');
    region.busy = false;
    if (region.again) {
        region.again = false;
        await update(region, true);
    }
}
function fill(region, nodes) {
    const focused = region.element.contains(document.activeElement) ? document.activeElement : null;
    const alike = (element) =>
            element.tagName === focused.tagName &&
            element.getAttribute('href') === focused.getAttribute('href') &&
            element.textContent === focused.textContent,
        likeFocused = () =>
            [...region.element.querySelectorAll('a, button, summary')].filter(alike);
    const place = focused ? likeFocused().indexOf(focused) : -1;
    const parts = () => [...region.element.querySelectorAll('details:not(.json details)')],
        opened = parts().map((one) => one.open);
    region.element.replaceChildren();
    add(region.element, [nodes]);
    if (parts().length === opened.length)
        parts().forEach((one, i) => {
            one.open = opened[i];
        });
    if (place >= 0) likeFocused()[place]?.focus();
}
// A part of a screen that is read again while it is visible: read() returns data, and show(data) nodes. `first` is data
// that was read before. With `timed`, only time changes the data, so events of the server do not matter.
export function live(read, show, every = 5000, first = undefined, timed = false) {
    const region = {
        read,
        show,
        every,
        timed,
        next: Date.now() + every,
        turn: 0,
        shown: first !== undefined,
        data: first,
        element: h(
            'div.live',
            { 'aria-busy': first === undefined ? 'true' : undefined },
            first === undefined ? h('p.loading', 'Loading…') : show(first),
        ),
    };
    regions.add(region);
    if (first === undefined) queueMicrotask(() => update(region, true));
    return region.element;
}
export function refresh() {
    for (const region of regions) update(region, true);
}

// The server reports by events that a process has written to the collections of the screen. The regions are then read
// again, at most once in 2 s. Without events, they are read after their time.
const SPACE_MS = 2000,
    AGAIN_MS = 5000,
    SLOWER = 6; // with events, the regions are read this much less often, for what only time changes
let watched = [],
    stream = null,
    streams = false,
    noticed = false,
    begun = 0,
    spoken = 0,
    refused = '';
const streamName = () => JSON.stringify([session.user, session.database, watched]);

async function follow() {
    const own = (stream = new AbortController()),
        name = streamName();
    own.signal.streamName = name;
    begun = Date.now();
    try {
        await watch(
            `${encodeURIComponent(session.database)}/watch?${watched.map((one) => `notify=${encodeURIComponent(one)}`).join('&')}`,
            own.signal,
            () => {
                noticed = true;
            },
            () => {
                streams = true;
                noticed = true; // what changed before is not reported
            },
        );
    } catch (error) {
        if (error instanceof OpError) refused = name;
    }
    if (stream === own) unfollow();
}
function unfollow() {
    stream?.abort();
    stream = null;
    streams = false;
}
setInterval(() => {
    if (document.hidden || paused || stream?.signal.streamName !== streamName()) unfollow();
    if (document.hidden || paused) return;
    const now = Date.now();
    if (
        !stream &&
        watched.length &&
        session.access.database &&
        refused !== streamName() &&
        now >= begun + AGAIN_MS
    )
        follow();
    if (document.querySelector('dialog[open]')) return;
    if (noticed && now >= spoken + SPACE_MS) {
        noticed = false;
        spoken = now;
        for (const region of regions) if (region.every && !region.timed) region.next = 0;
    }
    for (const region of regions)
        if (region.every && now >= region.next) {
            region.turn = streams && region.next && !region.timed ? (region.turn + 1) % SLOWER : 0;
            region.next = now + region.every;
            if (region.turn) show(region);
            else update(region, false);
        }
}, 500);
document.addEventListener('visibilitychange', () => {
    if (!document.hidden) begun = 0;
});

// ---- charts -----------------------------------------------------------------------------------

// Stacked bars. `series` is [{name, values}], drawn in the colour of the state with that name. `ends` has the labels
// below the first bar, the middle, and the last bar.
export function bars(label, series, { height = 60, width = 360, ends = [] } = {}) {
    const length = series[0]?.values.length ?? 0;
    const sums = Array.from({ length }, (_, i) =>
        series.reduce((sum, one) => sum + one.values[i], 0),
    );
    const most = Math.max(1, ...sums),
        step = width / Math.max(1, length);
    const shapes = [];
    for (let i = 0; i < length; i++) {
        let top = height;
        for (const { name, values } of series) {
            if (!values[i]) continue;
            const size = Math.max(1, (values[i] / most) * (height - 2));
            top -= size;
            shapes.push(
                h('rect', {
                    x: (i * step + 0.5).toFixed(2),
                    y: top.toFixed(2),
                    width: Math.max(1, step - 1).toFixed(2),
                    height: size.toFixed(2),
                    rx: 1,
                    'data-state': name,
                }),
            );
        }
    }
    return [
        h(
            'svg.bars',
            {
                viewBox: `0 0 ${width} ${height}`,
                role: 'img',
                'aria-label': label,
                preserveAspectRatio: 'none',
            },
            h('line.axis', { x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
            shapes,
        ),
        h(
            'div.ends',
            ends.map((words) => h('span', words)),
        ),
    ];
}
export const legend = (pairs) =>
    h(
        'div.legend',
        pairs.map(([name, label]) => h('span.state', { 'data-state': name }, label)),
    );

// Nodes by level, with arrows. `nodes` is [{id, label, state, level, after: [id], link}].
export function graph(label, nodes) {
    const W = 150,
        H = 34,
        GX = 46,
        GY = 12,
        levels = new Map(),
        places = new Map();
    for (const one of nodes) {
        const row = levels.get(one.level) ?? 0;
        levels.set(one.level, row + 1);
        places.set(one.id, [one.level * (W + GX) + 2, row * (H + GY) + 2]);
    }
    const width = (Math.max(0, ...levels.keys()) + 1) * (W + GX) - GX + 4,
        height = Math.max(1, ...levels.values()) * (H + GY) - GY + 4;
    const edges = [],
        boxes = [];
    for (const one of nodes) {
        const [x, y] = places.get(one.id);
        for (const id of one.after) {
            if (!places.has(id)) continue;
            const [fromX, fromY] = places.get(id),
                x1 = fromX + W,
                y1 = fromY + H / 2,
                y2 = y + H / 2,
                middle = (x1 + x) / 2;
            edges.push(
                h('path.edge', { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x} ${y2}` }),
            );
        }
        const name = one.label.length > 18 ? `${one.label.slice(0, 17)}…` : one.label;
        const box = h(
            'g',
            h('title', `${one.label}: ${one.state}`),
            h('rect.box', { x, y, width: W, height: H, rx: 7, 'data-state': one.state }),
            h('circle', { cx: x + 14, cy: y + H / 2, r: 4.5, 'data-state': one.state }),
            h('text', { x: x + 25, y: y + H / 2 + 4 }, name),
        );
        const link = document.createElementNS('http://www.w3.org/2000/svg', 'a');
        link.setAttribute('href', one.link);
        link.setAttribute('aria-label', clean(`${one.label}: ${one.state}`));
        link.append(box);
        boxes.push(link);
    }
    let zoom = 1;
    const svg = h(
        'svg.graph',
        { viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': label },
        edges,
        boxes,
    );
    const scale = (factor) => {
        zoom = Math.min(3, Math.max(0.2, zoom * factor));
        svg.setAttribute('width', width * zoom);
        svg.setAttribute('height', height * zoom);
    };
    return h(
        'div',
        h(
            'div.row.tools',
            h('button.quiet', { type: 'button', onclick: () => scale(1 / 1.3) }, 'Zoom out'),
            h('button.quiet', { type: 'button', onclick: () => scale(1.3) }, 'Zoom in'),
        ),
        h('div.table.plain', { tabindex: 0, role: 'region', 'aria-label': label }, svg),
    );
}

// ---- input ------------------------------------------------------------------------------------

// A form of filters, which are the query of the address.
export function filters(parts, query, fields, button = 'Filter') {
    const form = h(
        'form.filters',
        {
            role: 'search',
            'aria-label': button,
            onsubmit: (event) => {
                event.preventDefault();
                location.hash = href(parts, {
                    ...query,
                    before: '',
                    skip: '',
                    ...Object.fromEntries(new FormData(form)),
                });
            },
        },
        fields.map((field) => {
            const id = `filter-${field.name}`;
            if (field.choices) {
                const choices = field.choices.map((choice) => {
                    const [value, label] = Array.isArray(choice) ? choice : [choice, choice];
                    return h(
                        'option',
                        { value, selected: value === (query[field.name] ?? '') },
                        label,
                    );
                });
                return h(
                    'label',
                    { for: id },
                    field.label,
                    h(
                        'select',
                        { id, name: field.name, onchange: () => form.requestSubmit() },
                        choices,
                    ),
                );
            }
            return h(
                `label${field.wide ? '.wide' : ''}`,
                { for: id },
                field.label,
                h('input', {
                    id,
                    name: field.name,
                    value: query[field.name] ?? '',
                    placeholder: field.hint,
                    spellcheck: 'false',
                    autocomplete: 'off',
                }),
            );
        }),
        h('button', { type: 'submit' }, button),
    );
    return form;
}
