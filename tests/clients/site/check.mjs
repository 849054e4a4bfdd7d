// Examines the site of the documentation in Chromium, without a network: node check.mjs SITE PICTURES [WORD...]
//
// Each page is opened at two widths and in both themes. axe-core must find nothing, no page may be wider than its
// window, and no request may leave the machine. The text of a picture is at least 9 px high at any width. The search must
// find a recipe, and the menu must lead to another version. Pictures of some pages are kept.
import { createRequire } from "node:module";
import { mkdirSync, readdirSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "none.js"));
const { chromium } = require("playwright-core");
const axe = require("axe-core").source;

const [site, pictures, ...words] = process.argv.slice(2); // words: only pages whose names contain one of them
const shown = ["index.html", "start/python.html", "start/c.html", "reference/c.html", "how-to/index.html", "how-to/move-money.html", "explanation/isolation.html",
  "explanation/journal.html", "explanation/commit.html", "explanation/sharded-layout.html", "how-to/check-isolation.html", "benchmarks.html", "compare.html", "testing.html", "errors.html", "commands.html"];
const widths = [400, 1400];
let passed = 0;
const faults = [];

function htmlFiles(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return name === "source" || name === "assets" ? [] : htmlFiles(path);
    return name.endsWith(".html") && name !== "404.html" ? [relative(site, path)] : [];
  });
}

// A page is examined at one width and in one theme. Its number decides, so that each combination has its share of pages.
function combinations(page, number) {
  const all = widths.flatMap((width) => ["default", "slate"].map((theme) => ({ width, theme })));
  return shown.includes(page) ? all : [all[number % all.length]];
}

// Runs in the page. The smallest text of a picture of docs/ has 14 px at its natural width, that of a diagram 10 px.
function smallPictures() {
  return [...document.querySelectorAll("article img")].flatMap((img) => {
    const text = img.src.includes("benchmarks.svg") ? 10 : 14;
    const size = (text * img.clientWidth) / img.naturalWidth;
    if (!img.alt) return [`${img.getAttribute("src")} has no description`];
    return img.src.endsWith(".svg") && size < 9 ? [`the text of ${img.getAttribute("src")} is ${size.toFixed(1)} px high`] : [];
  });
}

async function examine(tab, page, where, theme, outside) {
  outside.length = 0;
  await tab.goto(pathToFileURL(join(site, page)).href);
  await tab.waitForSelector("article");
  const scheme = await tab.evaluate(() => document.body.getAttribute("data-md-color-scheme"));
  if (scheme !== theme) faults.push(`${where}: the theme is ${scheme}`);
  const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 0) faults.push(`${where}: ${wide} px wider than the window`);
  for (const picture of await tab.evaluate(smallPictures)) faults.push(`${where}: ${picture}`);
  if (outside.length) faults.push(`${where}: requests ${outside[0]}`);
  await tab.evaluate(axe);
  const found = await tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const violation of found.violations)
    faults.push(`${where}: ${violation.id}: ${violation.help}: ${violation.nodes[0].html.replace(/\s+/g, " ").slice(0, 150)} (${violation.nodes.length} x)`);
  if (shown.includes(page))
    await tab.screenshot({ path: join(pictures, `${page.replace(/[/.]/g, "-")}-${where.replace(/.*?, /, "").replace(/ px, /, "-")}.png`) });
}

async function examineAll(browser, pages, width, theme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: theme === "slate" ? "dark" : "light" });
  const tab = await context.newPage();
  const outside = [];
  tab.on("request", (request) => request.url().startsWith("file:") || request.url().startsWith("data:") || outside.push(request.url()));
  for (const page of pages) {
    const before = faults.length;
    await examine(tab, page, `${page}, ${width} px, ${theme}`, theme, outside);
    if (faults.length === before) passed++;
    for (const fault of faults.slice(before)) console.log(fault);
  }
  await context.close();
}

async function search(browser) {
  const before = faults.length;
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
  const tab = await context.newPage();
  await tab.goto(pathToFileURL(join(site, "how-to/index.html")).href);
  try {
    await tab.fill(".md-search__input", "double booking");
    await tab.waitForSelector(".md-search-result__item", { timeout: 20000 });
    const first = await tab.textContent(".md-search-result__item");
    if (!/double booking/i.test(first)) faults.push(`the search for "double booking" finds ${first.trim().slice(0, 80)}`);
  } catch (error) {
    faults.push(`the search does not work: ${error.message.split("\n")[0]}`);
  }
  await tab.screenshot({ path: join(pictures, "search.png") });
  await context.close();
  if (faults.length === before) passed++;
  for (const fault of faults.slice(before)) console.log(fault);
}

// A site of several versions has a menu, which leads to the other ones.
async function versions(browser) {
  const before = faults.length;
  const context = await browser.newContext({ viewport: { width: 400, height: 900 } });
  const tab = await context.newPage();
  await tab.goto(pathToFileURL(join(site, "how-to/index.html")).href);
  const menu = tab.locator(".truce-versions");
  if (!(await menu.count())) {
    await context.close();
    return;
  }
  const found = await menu.locator("option").allTextContents();
  if (found.length < 2) faults.push(`the menu of the versions has only ${found}`);
  await menu.selectOption(found.at(-1));
  await tab.waitForURL(`**/${found.at(-1)}/index.html`).catch(() => faults.push(`the menu of the versions does not lead to ${found.at(-1)}`));
  await context.close();
  if (faults.length === before) passed++;
  for (const fault of faults.slice(before)) console.log(fault);
}

mkdirSync(pictures, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
const pages = htmlFiles(site).sort().filter((page) => !words.length || words.some((word) => page.includes(word)));
await search(browser);
await versions(browser);
for (const { width, theme } of combinations("index.html", 0)) {
  const own = pages.filter((page, number) => combinations(page, number).some((one) => one.width === width && one.theme === theme));
  await examineAll(browser, own, width, theme);
}
const version = browser.version();
await browser.close();
console.log(`site, Chromium ${version}: ${passed} passed, ${faults.length} failed`);
process.exit(faults.length ? 1 : 0);
