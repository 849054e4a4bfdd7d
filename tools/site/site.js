// Completes parts that the theme adds to a page later. A table that is wider than the window is scrolled, and a keyboard must reach it;
// the button of a block of code is not a landmark.
function completePage() {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) wrap.tabIndex = 0;
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "group");
}
new MutationObserver(completePage).observe(document.documentElement, { childList: true, subtree: true });
completePage();
