// Ledgers: accounts as a tree with sums, statements, transactions, and the checks of a book.
import { op, find, one as findOne, missing, optional, remember } from './api.js';
import { Exact, num, parse, parseInput, text, write, time } from './exact_numbers.js';
import { exportButton, report } from './book.js';
import {
    h,
    a,
    act,
    action,
    ago,
    amount,
    ask,
    bars,
    card,
    code,
    copyButton,
    facts,
    filters,
    grouped,
    href,
    iso,
    json,
    live,
    money,
    note,
    plural,
    table,
    when,
    LIST_MAX,
} from './dom.js';

async function book(ledger) {
    const found = await findOne('truce_ledgers', { _id: ledger });
    if (!found) throw missing(`There is no ledger "${ledger}".`);
    return {
        digits: (currency) => num(found.currencies?.[currency]),
        currencies: Object.keys(found.currencies ?? {}),
    };
}

function list(head) {
    return [
        head('Ledgers'),
        live(
            () => find('truce_ledgers', { sort: { _id: 1 }, limit: LIST_MAX + 1 }),
            (all) =>
                table(
                    'Ledgers',
                    [
                        {
                            name: 'Ledger',
                            cell: (one) => a(['ledgers', text(one._id)], text(one._id)),
                        },
                        {
                            name: 'Currencies',
                            cell: (one) => Object.keys(one.currencies ?? {}).join(', '),
                        },
                    ],
                    all,
                    'There are no ledgers in this database.',
                    LIST_MAX,
                ),
        ),
    ];
}

// Groups the accounts below a prefix by the next part of their names.
const MOST = 20000;
async function below(ledger, prefix) {
    const all = [];
    let after,
        more = true;
    while (more && all.length < MOST) {
        const reply = await op('truceLedgerAccounts', {
            ledger,
            prefix: prefix || undefined,
            after,
            limit: 1000,
        });
        all.push(...reply.accounts);
        more = reply.more;
        after = all.at(-1)?.account;
    }
    const skip = prefix ? prefix.length + 1 : 0,
        groups = new Map();
    for (const account of all) {
        const rest = account.account.slice(skip),
            part = rest.split(':')[0];
        const name = prefix && !rest ? prefix : (prefix ? `${prefix}:` : '') + part,
            key = `${name} ${account.currency}`;
        const group = groups.get(key) ?? {
            name,
            currency: account.currency,
            sum: 0n,
            whole: true,
            count: 0,
            leaf: false,
        };
        if (account.account === name) {
            group.leaf = true;
            group.own = account;
        } else group.deeper = true;
        try {
            group.sum += BigInt(text(account.balance));
        } catch {
            group.whole = false;
        }
        group.count++;
        groups.set(key, group);
    }
    return { groups: [...groups.values()], more, count: all.length };
}

const magnitude = (sum) => (sum < 0n ? -sum : sum);

// A bar whose length is the ratio of the sum to the largest sum.
function share(sum, most) {
    if (!sum) return undefined;
    const part = Number((magnitude(sum) * 1000n) / most) / 10;
    return h(
        'svg.share',
        { viewBox: '0 0 100 8', role: 'img', 'aria-label': `${part} % of the largest sum` },
        h('rect', {
            width: part,
            height: 8,
            rx: 2,
            'data-state': sum < 0n ? 'cancelled' : 'ready',
        }),
    );
}

function tree(ledger, prefix, digits) {
    return live(
        () => remember(`tree/${ledger}/${prefix}`, 10000, () => below(ledger, prefix)),
        ({ groups, more }) => {
            const shown = groups.slice(0, 200),
                most = shown.reduce(
                    (top, one) => (magnitude(one.sum) > top ? magnitude(one.sum) : top),
                    1n,
                );
            return [
                more &&
                    note(
                        'warn',
                        `Only the first ${grouped(MOST)} accounts are added up here. Open a branch to see the others.`,
                    ),
                table(
                    'Accounts',
                    [
                        {
                            name: 'Account',
                            cell: (one) => [
                                one.deeper
                                    ? h(
                                          'a',
                                          { href: href(['ledgers', ledger], { prefix: one.name }) },
                                          one.name,
                                      )
                                    : a(['ledgers', ledger, 'account', one.name], one.name),
                                one.deeper && h('div.muted', plural(one.count, 'account')),
                                one.deeper &&
                                    one.leaf &&
                                    h(
                                        'div',
                                        a(['ledgers', ledger, 'account', one.name], 'Statement'),
                                    ),
                            ],
                        },
                        {
                            name: 'Share',
                            cell: (one) => share(one.sum, most),
                        },
                        {
                            name: 'Balance',
                            kind: 'num',
                            cell: (one) =>
                                one.whole
                                    ? amount(new Exact(String(one.sum)), digits(one.currency))
                                    : 'decimals',
                        },
                        { name: 'Currency', cell: (one) => one.currency },
                    ],
                    shown,
                    'There are no accounts here.',
                ),
                groups.length > shown.length &&
                    h('p.muted', `${grouped(groups.length - shown.length)} more`),
            ];
        },
        15000,
    );
}

const entries = (ledger, changes, digits) =>
    table(
        'Entries',
        [
            {
                name: 'Account',
                cell: (one) =>
                    a(['ledgers', ledger, 'account', text(one.account)], text(one.account)),
            },
            { name: 'Type', cell: (one) => text(one.type) },
            {
                name: 'Amount',
                kind: 'num',
                cell: (one) => amount(one.value, digits(text(one.currency))),
            },
            { name: 'Currency', cell: (one) => text(one.currency) },
            { name: 'Number', kind: 'num', cell: (one) => grouped(one.seqId) },
        ],
        changes,
    );
const transactionLink = (ledger, id) =>
    a(['ledgers', ledger, 'transaction', write(id)], code(text(id).slice(0, 60)));

async function statement({ ledger, account, query, head, digits, crumbs }) {
    const found = (await op('truceLedgerAccounts', { ledger, prefix: account, limit: 1 }))
        .accounts[0];
    if (found?.account !== account) throw missing(`There is no account "${account}" in ${ledger}.`);
    const size = digits(found.currency),
        range = (lines) => {
            const order = lines.map((line) => line.balance).sort((x, y) => num(x) - num(y));
            return `${money(order[0], size)} to ${money(order.at(-1), size)} ${found.currency}`;
        },
        last = num(found.number),
        PAGE = 50,
        end = query.end ? Number(query.end) : last,
        begin = Math.max(0, end - PAGE);
    return [
        head(account, { crumbs }),
        card(
            null,
            facts([
                ['Balance', [amount(found.balance, size), ` ${found.currency}`]],
                ['Available', amount(found.available, size)],
                ['Pending out', money(found.out, size)],
                ['Pending in', money(found.in, size)],
                ['Minimum', found.min !== undefined && money(found.min, size)],
                ['Maximum', found.max !== undefined && money(found.max, size)],
                ['Closed', found.closed && 'yes'],
            ]),
        ),
        live(
            () =>
                op('truceLedgerStatement', {
                    ledger,
                    account,
                    after: begin,
                    last: end || undefined,
                    limit: PAGE,
                }),
            ({ lines }) => [
                lines.length > 1 &&
                    card(
                        'Running balance',
                        bars(
                            `Balance of ${account}`,
                            [
                                {
                                    name: 'ready',
                                    values: lines.map((line) => Math.max(0, num(line.balance))),
                                },
                                {
                                    name: 'cancelled', // below zero
                                    values: lines.map((line) => Math.max(0, -num(line.balance))),
                                },
                            ],
                            {
                                width: 900,
                                height: 70,
                                ends: [
                                    `number ${text(lines[0].number)}`,
                                    range(lines),
                                    `number ${text(lines.at(-1).number)}`,
                                ],
                            },
                        ),
                    ),
                table(
                    'Statement',
                    [
                        { name: 'Number', kind: 'num', cell: (line) => grouped(line.number) },
                        {
                            name: 'Booked',
                            cell: (line) =>
                                h(
                                    'time',
                                    {
                                        datetime: iso(num(line.bookedMS)),
                                        title: iso(num(line.bookedMS)),
                                    },
                                    when(num(line.bookedMS)),
                                ),
                        },
                        { name: 'Transaction', cell: (line) => transactionLink(ledger, line.id) },
                        { name: 'Type', cell: (line) => text(line.type) },
                        { name: 'Amount', kind: 'num', cell: (line) => amount(line.value, size) },
                        {
                            name: 'Balance',
                            kind: 'num',
                            cell: (line) => amount(line.balance, size),
                        },
                    ],
                    [...lines].reverse(),
                    'No entry yet.',
                ),
                h(
                    'div.pager',
                    end < last &&
                        h(
                            'a',
                            {
                                href: href(['ledgers', ledger, 'account', account], {
                                    end: Math.min(last, end + PAGE),
                                }),
                                'data-previous': true,
                            },
                            'Newer',
                        ),
                    begin > 0 &&
                        h(
                            'a',
                            {
                                href: href(['ledgers', ledger, 'account', account], { end: begin }),
                                'data-next': true,
                            },
                            'Older',
                        ),
                ),
            ],
        ),
    ];
}

async function transaction({ ledger, id, head, digits, crumbs }) {
    let key;
    try {
        key = parse(id);
    } catch {
        throw missing(`"${id}" is not the id of a transaction.`);
    }
    const found = await findOne(ledger, { _id: key });
    if (!found) throw missing(`There is no transaction ${id} in ${ledger}.`);
    const pending =
        found.kind === 'pending' &&
        (await op('truceLedgerPending', { ledger, limit: 1000 })).transactions.some(
            (one) => write(one._id) === write(key),
        );
    const settle = (kind, label, confirm) =>
        action(
            label,
            async () => {
                await act('truceLedgerPost', { ledger, id: `${text(key)} ${kind}`, kind, of: key });
                return `${label}: booked as "${text(key)} ${kind}".`;
            },
            { confirm, danger: kind === 'void' },
        );
    return [
        head(text(key), {
            crumbs,
            side: pending && [
                settle('settle', 'Settle', 'The pending amounts are booked.'),
                settle('void', 'Void', 'The pending amounts are released.'),
            ],
        }),
        card(
            null,
            facts([
                ['Booked', when(time(found.ts))],
                ['Kind', text(found.kind)],
                ['State', text(found.state)],
                [
                    'Resolves',
                    found.resolves !== undefined && transactionLink(ledger, found.resolves),
                ],
                ['Value date', found.effective && when(time(found.effective))],
                ['Expires', found.expires && ago(time(found.expires))],
            ]),
        ),
        card('Entries', entries(ledger, found.changes ?? [], digits)),
        found.meta && card('Metadata', json(found.meta)),
    ];
}

function checks(ledger) {
    const result = h('div', { role: 'status' });
    return card(
        'Checks',
        h(
            'div.row',
            action(
                'Verify',
                async () => {
                    const reply = await op('truceLedgerVerify', { ledger });
                    result.replaceChildren(
                        num(reply.found)
                            ? note(
                                  'bad',
                                  `${plural(num(reply.found), 'fault')} in ${plural(num(reply.accounts), 'account')}`,
                              )
                            : note(
                                  'good',
                                  `${plural(num(reply.accounts), 'account')} and ${plural(num(reply.entries), 'entry')} are correct.`,
                              ),
                        ...(num(reply.found)
                            ? [
                                  table(
                                      'Faults',
                                      [
                                          { name: 'Rule', cell: (one) => text(one.rule) },
                                          { name: 'Account', cell: (one) => text(one.account) },
                                          { name: 'Fault', cell: (one) => text(one.text) },
                                      ],
                                      reply.findings,
                                  ),
                              ]
                            : []),
                    );
                    return null;
                },
                { may: null },
            ),
            action(
                'Seal',
                async () => {
                    const reply = await op('truceLedgerSeal', { ledger }),
                        whole = write(reply.parts);
                    result.replaceChildren(
                        note(
                            'good',
                            'This is the seal of the current book. Store it elsewhere; a later check compares the book with it.',
                        ),
                        h(
                            'div.row',
                            copyButton(() => whole),
                            h('span.muted', `${grouped(whole.length)} characters`),
                        ),
                    );
                    return null;
                },
                { may: null },
            ),
            action(
                'Verify against a seal',
                () =>
                    ask('Verify against a seal', {
                        confirm: 'Verify',
                        fields: [{ name: 'seal', label: 'The seal', rows: 8 }],
                        run: async (given) => {
                            const reply = await op('truceLedgerVerify', {
                                ledger,
                                seal: parseInput(given.seal, 'The seal'),
                            });
                            result.replaceChildren(
                                num(reply.found)
                                    ? note(
                                          'bad',
                                          plural(num(reply.found), 'fault'),
                                          ': ',
                                          text(reply.findings[0]?.text),
                                      )
                                    : note('good', 'The book continues the sealed one.'),
                            );
                            return null;
                        },
                    }),
                { may: null },
            ),
        ),
        result,
    );
}

function readMeta(string) {
    if (!string) return undefined;
    try {
        const value = parse(string);
        if (value && typeof value === 'object') return value;
    } catch {
        /* below */
    }
    const at = string.indexOf(':');
    if (at < 0) return { [string]: { $exists: true } };
    const value = string.slice(at + 1).trim();
    return { [string.slice(0, at).trim()]: /^-?\d+$/.test(value) ? new Exact(value) : value };
}

export async function show({ args: [ledger, kind, ...rest], query, head }) {
    if (ledger === undefined) return list(head);
    const { digits, currencies } = await book(ledger),
        home = [a(['ledgers'], 'Ledgers'), ' / ', a(['ledgers', ledger], ledger)];
    if (kind === 'account')
        return statement({ ledger, account: rest[0], query, head, digits, crumbs: home });
    if (kind === 'transaction')
        return transaction({ ledger, id: rest[0], head, digits, crumbs: home });
    const parts = (query.prefix ?? '').split(':').filter(Boolean);
    const crumbs = [
        a(['ledgers'], 'Ledgers'),
        ' / ',
        parts.length ? a(['ledgers', ledger], ledger) : ledger,
        parts.map((part, i) => [
            ' / ',
            h(
                'a',
                { href: href(['ledgers', ledger], { prefix: parts.slice(0, i + 1).join(':') }) },
                part,
            ),
        ]),
    ];
    return [
        head(query.prefix || ledger, {
            crumbs,
            sub: `Currencies: ${currencies.join(', ')}`,
            side: exportButton(ledger, currencies, digits),
        }),
        tree(ledger, query.prefix ?? '', digits),
        report(ledger, query, digits),
        !query.prefix && [
            card(
                'Pending transactions',
                live(
                    () => optional(op('truceLedgerPending', { ledger, limit: 50 })),
                    (reply) =>
                        table(
                            'Pending transactions',
                            [
                                {
                                    name: 'Transaction',
                                    cell: (one) => transactionLink(ledger, one._id),
                                },
                                { name: 'Expires', cell: (one) => ago(time(one.expires)) },
                                {
                                    name: 'Entries',
                                    cell: (one) =>
                                        (one.changes ?? []).map((each) =>
                                            h(
                                                'div',
                                                text(each.account),
                                                ' ',
                                                amount(each.value, digits(text(each.currency))),
                                            ),
                                        ),
                                },
                            ],
                            reply?.transactions ?? [],
                            'No transaction is pending.',
                        ),
                ),
            ),
            h('h2', 'Transactions'),
            filters(['ledgers', ledger], query, [
                { name: 'meta', label: 'Metadata', hint: 'order: 17', wide: true },
                { name: 'account', label: 'Account' },
            ]),
            live(
                () =>
                    op('truceLedgerSearch', {
                        ledger,
                        meta: readMeta(query.meta),
                        account: query.account || undefined,
                        limit: 50,
                    }),
                ({ transactions, more }) => [
                    table(
                        'Transactions',
                        [
                            {
                                name: 'Transaction',
                                cell: (one) => transactionLink(ledger, one._id),
                            },
                            { name: 'Booked', cell: (one) => when(time(one.ts)) },
                            { name: 'Kind', cell: (one) => text(one.kind) },
                            {
                                name: 'Entries',
                                cell: (one) =>
                                    (one.changes ?? [])
                                        .slice(0, 4)
                                        .map((each) =>
                                            h(
                                                'div',
                                                text(each.account),
                                                ' ',
                                                amount(each.value, digits(text(each.currency))),
                                            ),
                                        ),
                            },
                        ],
                        transactions,
                        'No transaction matches.',
                    ),
                    more &&
                        h('p.muted', 'Others match, too. The oldest are shown; use the filter.'),
                ],
                15000,
            ),
            checks(ledger),
        ],
    ];
}
