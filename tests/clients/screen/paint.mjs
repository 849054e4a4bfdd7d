// The time to the first paint of the screen, in Chromium on loopback.
//
//     node paint.mjs [REPEATS]      10 repeats if absent
//
// `new browser`: the first page of a new process of Chromium. `empty cache`: a new profile of a running one.
// `filled cache`: the page is opened again. `server` is the end of the response with the page, `style` that of its style
// sheet, `data` the time until the overview shows figures. All times are milliseconds since the navigation began.
// Exit status 1: the median of a first paint is 200 ms or more. Run it on a machine that does nothing else.
import { createRequire } from 'node:module';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { endServers, serve } from './server.mjs';
import { seed } from './seed.mjs';

const LIMIT_MS = 200;
const repeats = Number(process.argv[2] ?? 10);
const require = createRequire(`${process.env.TRUCE_SCREEN_MODULES ?? process.cwd()}/`);
const { chromium } = require('playwright-core');
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'truce-paint-'));
const { base } = await serve(folder, 'paint');
await seed(base, { jobs: 2000, accounts: 200, hostile: false });

const launch = () =>
    chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });

// Notes when the overview shows figures.
function observe() {
    new MutationObserver(() => {
        if (!window.dataAt && document.querySelector('.tiles')) window.dataAt = performance.now();
    }).observe(document, { childList: true, subtree: true });
}
async function visit(page) {
    await page.goto(`${base}/ui/`);
    await page.waitForFunction(
        () => window.dataAt && performance.getEntriesByName('first-contentful-paint').length,
    );
    return page.evaluate(() => {
        const navigation = performance.getEntriesByType('navigation')[0],
            resources = performance.getEntriesByType('resource'),
            paint = performance.getEntriesByName('first-contentful-paint')[0].startTime,
            early = [navigation, ...resources.filter((one) => one.responseEnd <= paint)];
        return {
            server: navigation.responseEnd,
            style: resources.find((one) => one.name.endsWith('.css')).responseEnd,
            paint,
            data: window.dataAt,
            requests: early.filter((one) => one.transferSize > 0).length,
            bytes: early.reduce((sum, one) => sum + one.transferSize, 0),
        };
    });
}
async function profile(browser) {
    const page = await (await browser.newContext()).newPage();
    await page.addInitScript(observe);
    return page;
}

const runs = { 'new browser': [], 'empty cache': [], 'filled cache': [] };
const shared = await launch();
await visit(await profile(shared));
for (let i = 0; i < repeats; i++) {
    const browser = await launch();
    runs['new browser'].push(await visit(await profile(browser)));
    await browser.close();
    const page = await profile(shared);
    runs['empty cache'].push(await visit(page));
    runs['filled cache'].push(await visit(page));
    await page.context().close();
}
await shared.close();
endServers();
fs.rmSync(folder, { recursive: true, force: true });

const median = (values) => [...values].sort((x, y) => x - y)[Math.floor(values.length / 2)];
let late = false;
for (const [name, all] of Object.entries(runs)) {
    const of = (field) => Math.round(median(all.map((one) => one[field])));
    late ||= of('paint') >= LIMIT_MS;
    console.log(
        `${name}: first paint ${of('paint')} ms (${all.map((one) => Math.round(one.paint)).join(' ')}); ` +
            `server ${of('server')}, style ${of('style')}, data ${of('data')}; ` +
            `${of('requests')} requests and ${of('bytes')} bytes until the paint`,
    );
}
console.log(`paint: ${late ? 'NOT ' : ''}under ${LIMIT_MS} ms (medians of ${repeats})`);
process.exit(late ? 1 : 0);
