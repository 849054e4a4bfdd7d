// A book as a whole: a report with charts, and its export as a file.
import { aggregate, documents, optional } from './api.js';
import { num, text, time, write } from './exact_numbers.js';
import {
    h,
    action,
    amount,
    bars,
    card,
    filters,
    grouped,
    iso,
    legend,
    live,
    money,
    note,
    plural,
    table,
} from './dom.js';

// ---- the report -------------------------------------------------------------------------------

const PERIODS = { month: 12, week: 13, day: 31 };
const escaped = (string) => string.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

function periods(unit) {
    const now = new Date(),
        list = [];
    for (let i = PERIODS[unit] - 1; i >= 0; i--) {
        const [year, month, day] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
        const monday = day - ((now.getUTCDay() + 6) % 7);
        list.push(
            unit === 'month'
                ? Date.UTC(year, month - i, 1)
                : Date.UTC(year, month, unit === 'week' ? monday - 7 * i : day - i),
        );
    }
    return list;
}

// Returns [{begin, currency, credit, debit}] of the accounts below a prefix, in the order of time.
async function changes(ledger, prefix, unit) {
    const begins = periods(unit);
    const rows = await aggregate(ledger, [
        { $match: { state: 'VALID', ts: { $gte: { $date: iso(begins[0]) } } } },
        { $unwind: '$changes' },
        {
            $match: {
                'changes.value': { $type: 'number', $ne: 0 },
                ...(prefix && { 'changes.account': { $regex: `^${escaped(prefix)}(:|$)` } }),
            },
        },
        {
            $group: {
                _id: {
                    begin: { $dateTrunc: { date: '$ts', unit, startOfWeek: 'monday' } },
                    currency: '$changes.currency',
                    credit: { $gt: ['$changes.value', 0] },
                },
                sum: { $sum: '$changes.value' },
            },
        },
        { $limit: 1000 },
    ]);
    const sums = new Map();
    for (const { _id, sum } of rows)
        sums.set(`${time(_id.begin)} ${text(_id.currency)} ${_id.credit}`, sum);
    const currencies = [...new Set(rows.map(({ _id }) => text(_id.currency)))].sort();
    return currencies.flatMap((currency) =>
        begins.map((begin) => ({
            begin,
            currency,
            credit: sums.get(`${begin} ${currency} true`),
            debit: sums.get(`${begin} ${currency} false`),
        })),
    );
}

export function report(ledger, query, digits) {
    const unit = Object.hasOwn(PERIODS, query.period ?? '') ? query.period : 'month',
        prefix = query.prefix ?? '';
    const name = (begin) => iso(begin).slice(0, unit === 'month' ? 7 : 10);
    const chart = (currency, rows) => [
        bars(
            `Credits and debits in ${currency} for each ${unit}`,
            [
                { name: 'ready', values: rows.map((one) => num(one.credit)) },
                { name: 'cancelled', values: rows.map((one) => -num(one.debit)) },
            ],
            { width: 900, height: 90, ends: [name(rows[0].begin), name(rows.at(-1).begin)] },
        ),
        legend([
            ['ready', 'Credits'],
            ['cancelled', 'Debits'],
        ]),
        table(
            `Report in ${currency}`,
            [
                { name: unit[0].toUpperCase() + unit.slice(1), cell: (one) => name(one.begin) },
                ...['credit', 'debit'].map((side) => ({
                    name: `${side === 'credit' ? 'Credits' : 'Debits'} in ${currency}`,
                    kind: 'num',
                    cell: (one) => one[side] !== undefined && amount(one[side], digits(currency)),
                })),
            ],
            rows.filter((one) => one.credit !== undefined || one.debit !== undefined).reverse(),
        ),
    ];
    return card(
        'Report',
        filters(
            ['ledgers', ledger],
            query,
            [{ name: 'period', label: 'Report for each', choices: Object.keys(PERIODS) }],
            'Show',
        ),
        live(
            () => optional(changes(ledger, prefix, unit)),
            (rows) => {
                if (!rows) return note('', 'There are too many transactions to add up here.');
                if (!rows.length)
                    return note('', `Nothing was booked in the last ${PERIODS[unit]} ${unit}s.`);
                return [...new Set(rows.map((one) => one.currency))].slice(0, 8).map((currency) =>
                    chart(
                        currency,
                        rows.filter((one) => one.currency === currency),
                    ),
                );
            },
            60000,
        ),
    );
}

// ---- the export -------------------------------------------------------------------------------

const EXPORT_MAX = 200000;
const COLUMNS = [
    'id',
    'kind',
    'of',
    'part',
    'date',
    'expires',
    'account',
    'amount',
    'currency',
    'type',
    'meta',
];

// A cell as `truce ledger export` writes it: quotes mark a string that could be another value.
function cell(value) {
    if (value === undefined) return '';
    const string =
        typeof value === 'string' || value?.$oid || value?.$date ? text(value) : write(value);
    return string === '' ||
        (typeof value === 'string' && /^[-\d]|^(true|null|false)$/.test(string)) ||
        /^ | $|[,"\n\r]/.test(string)
        ? `"${string.replaceAll('"', '""')}"`
        : string;
}

const kindOf = (one) =>
    one.kind === 'expire' ? 'void' : one.kind || (one.state === 'PENDING' ? 'pending' : 'transfer');

// The records of a stored transaction: {COLUMN: value}, one for each line.
function lines(one, digits, isOpen) {
    const changed = one.changes ?? [],
        plain = (value, currency) =>
            money(value, digits(text(currency)))
                .replace('\u2212', '-')
                .replaceAll('\u2009', '');
    if (one.kind === 'open' || one.kind === 'rules') {
        const { currency, min, max, ...set } = changed[0]?.set ?? {},
            meta = {};
        if (min !== undefined) meta.min = plain(min, currency);
        if (max !== undefined) meta.max = plain(max, currency);
        for (const name of ['debitOnly', 'creditOnly', 'closed']) if (set[name]) meta[name] = true;
        return [
            { kind: one.kind, account: text(changed[0]?.account), currency, meta: write(meta) },
        ];
    }
    if (!['VALID', 'PENDING'].includes(one.state) && !(one.state === 'VOID' && one.kind)) return [];
    const kind = kindOf(one),
        first = {
            id: one._id,
            kind,
            of: one.resolves,
            part: one.part,
            date: one.effective ?? one.ts,
            expires: isOpen(one) ? one.expires : undefined,
            meta: one.meta && write(one.meta),
        };
    const entries = changed
        .filter((each) => kind !== 'void' && num(each.value) !== 0)
        .filter(() => one.resolves === undefined || one.part !== undefined)
        .map((each) => ({
            account: text(each.account),
            amount: plain(each.value, each.currency),
            currency: text(each.currency),
            type: ['withdraw', 'deposit'].includes(each.type) ? undefined : each.type,
        }));
    return entries.length ? [{ ...first, ...entries.shift() }, ...entries] : [first];
}

async function csv(ledger, currencies, digits, progress) {
    const parts = [COLUMNS.join(',')],
        resolved = new Set(),
        all = [];
    for await (const batch of documents(ledger, { sort: { ts: 1 }, allowDiskUse: true })) {
        for (const one of batch) {
            if (one.resolves !== undefined) resolved.add(write(one.resolves));
            all.push(one);
        }
        if (all.length > EXPORT_MAX)
            throw new Error(
                `The book has more than ${grouped(EXPORT_MAX)} transactions: run truce ledger export.`,
            );
        progress(all.length);
    }
    const isOpen = (one) => one.open !== undefined && !resolved.has(write(one._id));
    for (const currency of currencies)
        parts.push(row({ kind: 'currency', currency, meta: `{"digits": ${digits(currency)}}` }));
    for (const one of all) for (const line of lines(one, digits, isOpen)) parts.push(row(line));
    return `${parts.join('\r\n')}\r\n`;
}
const row = (line) =>
    COLUMNS.map((name) => {
        // The metadata is already a string.
        if (name === 'meta' && line.meta) return `"${line.meta.replaceAll('"', '""')}"`;
        return cell(line[name]);
    }).join(',');

export const exportButton = (ledger, currencies, digits) => {
    const words = h('span.muted', { role: 'status' });
    return [
        words,
        action(
            'Export as CSV',
            async () => {
                try {
                    const file = await csv(ledger, currencies, digits, (count) => {
                        words.textContent = `${plural(count, 'transaction')}…`;
                    });
                    const link = h('a', {
                        href: URL.createObjectURL(new Blob([file], { type: 'text/csv' })),
                        download: `${ledger}.csv`,
                    });
                    link.click();
                    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
                } finally {
                    words.textContent = '';
                }
                return null;
            },
            { may: null },
        ),
    ];
};
