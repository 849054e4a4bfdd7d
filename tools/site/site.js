// A table that is wider than the window is scrolled, and a keyboard must reach it. The theme wraps tables later.
function reachTables() {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) wrap.tabIndex = 0;
}
new MutationObserver(reachTables).observe(document.documentElement, { childList: true, subtree: true });
reachTables();
