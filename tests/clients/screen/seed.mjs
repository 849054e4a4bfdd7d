// Fills a store through HTTP: queues with many jobs, a ledger, conflicts, commits in flight, trees,
// sets, copies, and hostile content in every field.
const HOSTILE =
    '<img src=x onerror="window.hacked=1">\u202egnp.exe\u0001' + '{{7*7}}${7*7}\u200b"\'&lt;';

export function client(base, headers = {}) {
    return async (database, name, body = {}) => {
        const response = await fetch(`${base}/v1/${database}/${name}`, {
            method: 'POST',
            headers,
            body: JSON.stringify(body),
        });
        const reply = await response.json();
        if (!response.ok || reply.writeErrors)
            throw new Error(`${name}: ${reply.errmsg ?? reply.writeErrors[0].errmsg}`);
        return reply;
    };
}
export { HOSTILE };

// Commits whose process is gone, and one that lives.
export const HALF = {
    decided: 'c0c0c0c0c0c0c0c0c0c0c0c1',
    pending: 'c0c0c0c0c0c0c0c0c0c0c0c2',
    alive: 'c0c0c0c0c0c0c0c0c0c0c0c3',
};
async function halfApplied(op) {
    const past = Date.now() - 600000,
        leaseMS = 600000, // a lease that ends later than that comes from a wrong clock
        of = (name) => ({ ns: 'held', id: name });
    const states = {
        decided: {
            state: 'committed',
            post: [{ ...of('decided'), op: 'set', changes: [{ p: 'balance', v: 7 }] }],
        },
        pending: { state: 'pending' },
        alive: { state: 'pending' },
    };
    for (const [name, id] of Object.entries(HALF)) {
        await op('insert', {
            collection: 'truce_commits',
            documents: [
                {
                    _id: { $oid: id },
                    ...states[name],
                    lease: {
                        owner: name === 'alive' ? 'app-2:12' : 'app-1:4711',
                        ms: name === 'alive' ? leaseMS : 10000,
                        until: name === 'alive' ? Date.now() + leaseMS : past,
                    },
                    writes: [of(name)],
                    created: { $date: new Date(past).toISOString() },
                },
            ],
        });
        await op('insert', {
            collection: 'held',
            documents: [{ _id: name, balance: 5, _intent: { c: { $oid: id } } }],
        });
    }
}

async function inParallel(count, wide, run) {
    let next = 0;
    await Promise.all(
        Array.from({ length: wide }, async () => {
            while (next < count) await run(next++);
        }),
    );
}

export async function seed(
    base,
    { jobs = 100000, accounts = 10000, database = 'test', hostile = true } = {},
) {
    const raw = client(base),
        op = (name, body) => raw(database, name, body);

    // queues
    const queues = { mail: 0.5, reports: 0.3, thumbnails: 0.2 };
    for (const [queue, share] of Object.entries(queues))
        for (let left = Math.floor(jobs * share); left > 0; left -= 10000)
            await op('truceEnqueue', {
                queue,
                payloads: Array.from({ length: Math.min(left, 10000) }, (_, i) => ({
                    to: `user${i}@example.org`,
                    user: { id: i % 500 },
                    template: 'welcome',
                })),
                tags: i2tags(queue),
            });
    const claimed = async (queue, most, worker, leaseMS = 3600000) =>
        (await op('truceClaim', { queue, most, worker, leaseMS })).jobs;
    const each = async (list, run) => inParallel(list.length, 16, (i) => run(list[i]));
    await each(await claimed('mail', 400, 'worker-1:4711'), (job) =>
        op('truceDone', {
            queue: 'mail',
            id: job._id,
            token: job.token,
            result: { sent: true, ms: 12.5 },
        }),
    );
    await each(await claimed('reports', 120, 'worker-2:99'), (job) =>
        op('truceDone', { queue: 'reports', id: job._id, token: job.token }),
    );
    const errors = [
        'SMTP 451: try again later',
        'connect ECONNREFUSED 10.0.0.7:25',
        'Template "welcome" has no field "name"',
    ];
    await op('truceEnqueue', {
        queue: 'mail',
        payloads: Array.from({ length: 60 }, (_, i) => ({ to: `dead${i}@example.org` })),
        attempts: 1,
        priority: 9,
    });
    let n = 0;
    await each(await claimed('mail', 60, 'worker-1:4711'), (job) =>
        op('truceFail', { queue: 'mail', id: job._id, token: job.token, error: errors[n++ % 3] }),
    );
    await each(await claimed('mail', 12, 'worker-3:12'), (job) =>
        op('truceFail', {
            queue: 'mail',
            id: job._id,
            token: job.token,
            error: errors[0],
            delayMS: 900000,
        }),
    );
    await claimed('mail', 4, 'worker-1:4711');
    await claimed('thumbnails', 3, 'worker-2:99');
    for (let i = 0; i < 5; i++)
        for (let k = 0; k < 4; k++)
            await op('truceEnqueue', {
                queue: 'shop',
                payload: { order: i },
                lane: `customer-${i}`,
                tags: ['billing', 'eu'],
            });
    await op('truceQueueLimit', { queue: 'mail', running: 50, rate: 1000, perMS: 60000 });
    await op('truceQueue', { queue: 'shop', action: 'pause' });
    const flow = await op('truceFlow', {
        queue: 'web',
        jobs: [
            { name: 'fetch', payload: { url: 1 } },
            { name: 'parse', payload: {}, after: ['fetch'] },
            { name: 'count words', payload: {}, after: ['parse'] },
            { name: 'find links', payload: {}, after: ['parse'] },
            { name: 'index', payload: {}, after: ['count words', 'find links'] },
            { name: 'notify', payload: {}, after: ['index'], failure: 'goOn' },
        ],
    });
    const [first] = await claimed('web', 1, 'worker-2:99');
    await op('truceDone', {
        queue: 'web',
        id: first._id,
        token: first.token,
        result: { bytes: 4711 },
    });
    await op('truceCronSet', {
        cron: 'nightly report',
        queue: 'reports',
        line: '0 3 * * *',
        zone: 'Europe/Berlin',
        payload: { report: 'sales' },
    });
    await op('truceCronSet', { cron: 'pulse', queue: 'mail', line: '@every 90s', payload: {} });

    // a ledger
    const ledger = 'book';
    await op('truceLedgerOpen', { ledger, currency: 'EUR', digits: 2 });
    await op('truceLedgerOpen', { ledger, currency: 'EUR', account: 'income:sales' });
    await op('truceLedgerOpen', { ledger, currency: 'EUR', account: 'assets:cash' });
    await op('truceLedgerOpen', { ledger, currency: 'EUR', account: 'assets:bank:main', min: 0 });
    await inParallel(Math.ceil(accounts / 200), 8, (part) =>
        op('truceCommit', {
            changes: Array.from({ length: Math.min(200, accounts - part * 200) }, (_, i) => ({
                truceLedgerOpen: ledger,
                currency: 'EUR',
                account: `liabilities:customers:${String(part * 200 + i).padStart(5, '0')}`,
            })),
        }),
    );
    await op('truceLedgerPostMany', {
        ledger,
        transactions: Array.from({ length: 500 }, (_, i) => ({
            id: `order-${i}`,
            meta: { order: i, shop: i % 7 },
            entries: [
                { account: 'assets:bank:main', value: 1990 + i },
                {
                    account:
                        i % 5
                            ? 'income:sales'
                            : `liabilities:customers:${String(i % 100).padStart(5, '0')}`,
                    value: -1990 - i,
                },
            ],
        })),
    });
    await op('truceLedgerPost', {
        ledger,
        id: 'reservation-1',
        kind: 'pending',
        entries: [
            { account: 'assets:bank:main', value: -5000 },
            { account: 'assets:cash', value: 5000 },
        ],
        expiresMS: Date.now() + 86400000,
    });

    // documents, revisions, conflicts
    await op('insert', {
        collection: 'people',
        documents: Array.from({ length: 300 }, (_, i) => ({
            _id: i,
            name: ['Ada', 'Bob', 'Cid', 'Dora'][i % 4],
            year: 1 + (i % 4),
            seen: { $date: new Date(1.77e12 + i * 1e7).toISOString() },
        })),
    });
    await fetch(`${base}/v1/${database}/insert`, {
        method: 'POST',
        body: '{"collection": "people", "documents": [{"_id": "exact", "big": 9007199254740993, "one": 1.0, "10": "ten", "9": "nine"}]}',
    });
    for (let i = 0; i < 4; i++) {
        const id = `post-${i}`,
            document = { _id: id, title: 'Hello', body: 'Dear reader', tags: ['a'], views: 1 };
        const saved = await op('truceRevision', { collection: 'posts', save: document, keep: 10 });
        const base = saved.document;
        await op('truceRevision', {
            collection: 'posts',
            save: { ...base, title: 'Hello, world', tags: ['a', 'b'] },
            version: saved.version,
            base,
            keep: 10,
        });
        await op('truceRevision', {
            collection: 'posts',
            merge: {
                ...base,
                title: i === 3 ? HOSTILE : 'Good morning',
                body: 'Dear reader of this page',
            },
            version: saved.version,
            base,
            inbox: true,
            keep: 10,
        });
    }

    // sets, copies, trees, sequences, transfers, commits
    for (let i = 1; i <= 6; i++)
        await op('truceSet', {
            collection: 'students',
            field: 'classes',
            name: 'name',
            key: { student_id: i },
            add: { name: 'CS 101', room: i },
            seq: 1000 + i * 2,
            consumer: 'c1',
        });
    const list = { collection: 'students', field: 'classes', name: 'name' };
    await op('truceSet', {
        ...list,
        key: { student_id: 1 },
        remove: { name: 'CS 101' },
        seq: 1013,
        consumer: 'c1',
    });
    await op('truceSetSource', { ...list, key: 'student_id', idle: 1014 });
    await op('truceSetCollect', { ...list, key: 'student_id', collect: true });
    await op('truceSet', {
        ...list,
        key: { student_id: 1 },
        add: { name: 'late course' },
        seq: 1003,
        consumer: 'c1',
    });
    await op('truceSyncDeclare', {
        rule: 'author',
        source: 'users',
        dependent: 'comments',
        reference: 'user',
        copies: { author: 'name' },
        settleMS: 1,
    });
    await op('truceSyncInsert', { collection: 'users', document: { _id: 17, name: 'Ada' } });
    await op('truceSyncInsert', {
        collection: 'comments',
        document: { _id: 1, user: 17, text: 'first' },
    });
    await op('truceSyncInsert', { collection: 'users', document: { _id: 18, name: 'Ada' } });
    for (const [id, user] of [
        [2, 18],
        [3, 17],
    ])
        await op('truceSyncInsert', { collection: 'comments', document: { _id: id, user } });
    await op('update', {
        collection: 'comments',
        updates: [{ q: {}, u: { $set: { author: 'Eve' } }, multi: true }],
    });
    await op('truceTreePublish', {
        tree: 'site',
        collection: 'pages',
        parent: 'up',
        changes: [
            { put: { itemId: 'home', title: 'Home' } },
            { put: { itemId: 'about', up: 'home', title: 'About' } },
        ],
        message: 'the first pages',
        author: 'ada',
    });
    await op('truceTreePublish', {
        tree: 'site',
        changes: [
            { put: { itemId: 'about', up: 'home', title: 'About us' } },
            { put: { itemId: 'jobs', up: 'home', title: 'Jobs' } },
        ],
        message: 'jobs',
        author: 'bob',
    });
    await op('truceTree', { tree: 'site', tag: 'launch', version: 1 });
    await op('truceSequence', { sequence: 'orders', take: 42 });
    await op('insert', {
        collection: 'accounts',
        documents: [
            { _id: 'a', balance: 100 },
            { _id: 'b', balance: 0 },
        ],
    });
    await op('truceTransfer', {
        collection: 'payments',
        id: 1,
        source: 'a',
        destination: 'b',
        amount: 30,
        accounts: 'accounts',
    });
    await op('insert', {
        collection: 'payments',
        documents: ['stalled', 'doubtful'].map((id) => ({
            _id: id,
            source: 'a',
            destination: 'b',
            value: 10,
            state: 'initial',
            lastModified: { $date: new Date(Date.now() - 7200000).toISOString() },
        })),
    });
    await halfApplied(op);
    const now = { $date: new Date().toISOString() };
    await op('insert', {
        collection: 'truce_consumers',
        documents: [
            {
                _id: 'enrolments',
                source: 'amqp://localhost/enrolments',
                into: 'set:students.classes',
                received: 1204,
                redelivered: 3,
                applied: 1190,
                duplicate: 3,
                stale: 9,
                rejected: 2,
                quarantined: 0,
                reconnects: 1,
                lastMessage: now,
                updated: now,
                workers: [
                    // in the future, so that it is live as long as the test runs
                    {
                        worker: 'app-1:4711:0',
                        started: now,
                        updated: { $date: new Date(Date.now() + 86400000).toISOString() },
                        rate: 12.5,
                        waiting: 3,
                    },
                ],
            },
        ],
    });
    await op('insert', {
        collection: 'truce_rejects',
        documents: [1, 2].map((n) => ({
            _id: { consumer: 'enrolments', message: `m-${n}` },
            reason: 'the body is not JSON: column 1: the text ends',
            time: now,
            facts: {},
            size: 17,
        })),
    });
    await op('truceCommit', {
        changes: [{ insert: 'orders', with: { _id: 1, product: 'tea' } }],
        key: 'order-1',
        keyTime: Date.now(),
        leave: { receipt: 17 },
    });

    if (!hostile) return { flow: flow.jobs[0].id.$oid };

    // hostile content
    const [bad] = [
        await op('truceEnqueue', {
            queue: HOSTILE,
            payload: { [HOSTILE.replace(/[.$]/g, '')]: HOSTILE },
            name: HOSTILE,
            tags: [HOSTILE],
            lane: HOSTILE,
            metadata: { note: HOSTILE },
            attempts: 1,
        }),
    ];
    const [job] = await claimed(HOSTILE, 1, HOSTILE);
    await op('truceFail', { queue: HOSTILE, id: job._id, token: job.token, error: HOSTILE });
    await op('insert', {
        collection: 'hostile',
        documents: [{ _id: HOSTILE, text: HOSTILE, __proto__x: 1 }],
    });
    await op('insert', {
        collection: 'hostile',
        documents: [{ _id: 'large', text: 'x'.repeat(16 * 1024 * 1024 - 100) }],
    });
    await op('truceSequence', { sequence: HOSTILE, take: 1 });
    await op('truceCronSet', { cron: HOSTILE, queue: HOSTILE, line: '0 3 * * *', payload: {} });
    await op('truceCommit', {
        changes: [{ insert: 'orders', with: { _id: 2, product: HOSTILE } }],
        key: HOSTILE,
        keyTime: Date.now(),
    });
    // Names of collections and accounts may not have these.
    const name = HOSTILE.replaceAll(/[$\u0001\u200b\u202e]/g, '');
    await op('insert', {
        collection: name,
        documents: [{ _id: 1, [name.replaceAll('.', '')]: name }],
    });
    await op('truceTransfer', {
        collection: 'payments',
        id: HOSTILE,
        source: 'a',
        destination: 'b',
        amount: 1,
        meta: { note: HOSTILE },
    });
    await op('truceLedgerOpen', { ledger, currency: 'EUR', account: `hostile:${name}` });
    await op('truceLedgerPost', {
        ledger,
        id: HOSTILE,
        meta: { note: HOSTILE },
        entries: [
            { account: 'assets:bank:main', value: -1 },
            { account: `hostile:${name}`, value: 1 },
        ],
    });
    await op('truceTreePublish', {
        tree: 'site',
        changes: [{ put: { itemId: HOSTILE, up: 'home', title: HOSTILE } }],
        message: HOSTILE,
        author: HOSTILE,
    });
    return { flow: flow.jobs[0].id.$oid, hostile: bad.id.$oid };
}
const i2tags = (queue) => (queue === 'mail' ? ['marketing'] : [queue]);

if (process.argv[1]?.endsWith('seed.mjs'))
    console.log(
        JSON.stringify(
            await seed(process.argv[2], {
                jobs: Number(process.argv[3] ?? 100000),
                accounts: Number(process.argv[4] ?? 10000),
            }),
        ),
    );
