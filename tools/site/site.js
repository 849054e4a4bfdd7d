// Completes parts that the theme adds to a page later. A table or a picture that is wider than the window is scrolled, and a
// keyboard must reach it. The button of each block of code is in a landmark, and landmarks need different names.
function completePage() {
  const scrolled = '.md-typeset__scrollwrap:not([tabindex]), p:not([tabindex]):has(> img[src$="benchmarks.svg"])';
  for (const wrap of document.querySelectorAll(scrolled)) wrap.tabIndex = 0;
  for (const [number, nav] of document.querySelectorAll(".md-code__nav").entries()) nav.ariaLabel ??= `code ${number + 1}`;
}

// The menu of the versions, in a site that has several.
function addVersions() {
  const list = document.getElementById("truce-versions");
  if (!list || typeof truceVersions === "undefined") return;
  const menu = document.createElement("select");
  menu.className = "truce-versions";
  menu.ariaLabel = "version";
  for (const version of truceVersions) menu.add(new Option(version, version, false, version === list.dataset.version));
  menu.addEventListener("change", () => (location.href = `${list.dataset.root}/${menu.value}/index.html`));
  document.querySelector(".md-header__inner .md-header__title")?.after(menu);
}
addVersions();
new MutationObserver(completePage).observe(document.documentElement, { childList: true, subtree: true });
completePage();
