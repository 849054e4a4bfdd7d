// The numbers of documents that other programs remove, insert, and replace: the steps of
// src/patterns/revision/revision_history.c. Each step is one commit or one plain write. An editor reads
// a document and later saves or removes it by the number alone, without its base. Every insert and
// every replacement by a plain writer begins a new content, which no earlier reader has seen. A
// save by number may take effect only on the content that its editor read, unless truce never
// numbered that content (it left no trace) or the number was 0.
#include "mc.hpp"
enum Mut : u32 { M_NO_RESERVE = 1, M_NO_ADOPT = 2, M_ADOPT_SAME = 4, M_FIRST_UNRESERVED = 8, M_BURY_FOREIGN = 16, M_BURY_LOWERS = 32, M_BELOW = 64 };
static const int EDITORS = 2, RANGE = 8, CONTENTS = 8, NUMBERS = 64;
struct Ed { u8 has, content, n; };
// `last` 0: no record. `marked`: the document has truce's `_rev`.
struct T { u8 exists, n, marked, content, contents, last, reserved, plain, calls; Ed ed[EDITORS]; u8 numbered[CONTENTS], owner[NUMBERS]; };
struct P { typedef T S; u32 mut; int plains, calls; S last; const char *bad = nullptr;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.plain = plains; s.calls = calls; bad = nullptr; }
  void give(S &n, u8 number) { // truce gives the document this number
    if (n.owner[number] && n.owner[number] != n.content + 1) bad = "a number is given twice";
    n.owner[number] = n.content + 1; n.n = number; n.marked = 1; n.numbered[n.content] = 1; }
  u8 first(S &n, u8 least) { u8 number = n.last + 1; if (number < least && !M(M_BELOW)) number = least; if (!M(M_NO_RESERVE)) { n.last = number + RANGE - 1; n.reserved = 1; } return number; }
  bool foreign(const S &s) const { return s.n && !s.marked && s.last && s.n <= s.last; }
  bool adopt(S &n) { if (!foreign(n) || M(M_NO_ADOPT)) return false; if (M(M_ADOPT_SAME)) n.marked = 1; else give(n, first(n, 0)); return true; }
  void next(S &n) { bool unmarked = !n.n || (!n.marked && !M(M_FIRST_UNRESERVED)); u8 c = n.n + 1; if (unmarked) c = first(n, c); if (c <= n.n) bad = "a save lowers the number";
    n.content = n.contents++; n.numbered[n.content] = 0; give(n, c); }
  void unseen(const S &s, const Ed &e) { if (e.content != s.content && e.n && s.numbered[e.content]) bad = "a save or a removal by number takes effect on an unread document"; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    if (s.contents < CONTENTS - 1 && s.calls) {
      if (!s.exists) { n = s; n.calls--; n.exists = 1; n.content = n.contents++; give(n, first(n, 1)); lab("a new document, number %d", n.n); emit(n); }
      for (int i = 0; i < EDITORS; i++) { const Ed &e = s.ed[i];
        if (s.exists && !e.has) { n = s; n.ed[i] = {1, s.content, s.n}; lab("%d reads number %d", i, s.n); emit(n); }
        if (!e.has || !s.exists) continue;
        { n = s; n.calls--; n.ed[i].has = 0; bool same = s.n == e.n, foreign = adopt(n); if (same && !foreign) { unseen(s, e); next(n); } lab("%d saves by %d: %s, number %d", i, e.n, same && !foreign ? "saved" : "conflict", n.n); emit(n); }
        { n = s; n.calls--; n.ed[i].has = 0; bool same = s.n == e.n, foreign = !M(M_BURY_FOREIGN) && adopt(n);
          if (same && !foreign) { unseen(s, e); n.exists = 0;
            if (n.n > n.last || (n.reserved && n.n > n.last - RANGE) || M(M_BURY_LOWERS)) { n.last = n.n; n.reserved = 0; } }
          lab("%d removes by %d: %s", i, e.n, same && !foreign ? "removed" : "conflict"); emit(n); } } }
    if (s.plain && s.contents < CONTENTS - 1) {
      if (s.exists) { n = s; n.plain--; n.exists = 0; lab("a plain removal"); emit(n);
        n = s; n.plain--; n.n++; lab("a plain increment to %d", n.n); emit(n); }
      // an insert, or a replacement of the whole document, with any number
      for (u8 v = 0; v < 4; v++) { n = s; n.plain--; n.exists = 1; n.n = v; n.marked = 0; n.content = n.contents++; n.numbered[n.content] = 0; lab("a plain document with number %d", v); emit(n); }
      if (s.exists && s.n > 3) { n = s; n.plain--; n.marked = 0; n.content = n.contents++; n.numbered[n.content] = 0; lab("a plain replacement, number %d stays", n.n); emit(n); } }
  }
  const char *check(const S &s) { return bad; }
  const char *terminal(const S &s) { return nullptr; }
};
static bool go(const char *nm, u32 mut, bool trace) { P m; m.mut = mut; m.plains = 3; m.calls = 4; MC<P> mc; Res r = mc.run(m, 60000000); report(nm, r, trace); return r.viol.empty() && r.complete; }
int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "mutants")) { bool all = true; struct { const char *n; u32 m; } ms[] = {{"a first number reserves nothing", M_NO_RESERVE}, {"a number that was given before is valid in a new document", M_NO_ADOPT}, {"a new document keeps the number that was given before", M_ADOPT_SAME}, {"the first save of a number that another program gave reserves nothing", M_FIRST_UNRESERVED}, {"a removal compares the number only", M_BURY_FOREIGN}, {"a removal lowers the last number", M_BURY_LOWERS}, {"a first number is below the number of the document", M_BELOW}};
    for (auto &x : ms) if (go(x.n, x.m, false)) { printf("  SURVIVES: %s\n", x.n); all = false; } return !all; }
  return !go("numbers, next to plain writers", 0, true); }
