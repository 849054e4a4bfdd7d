// Versions (src/patterns/tree/tree.c): two items under one master; writers, readers of any kept
// version, recovery passes that settle and collect, an insert that lands late, a commit that holds an item.
// See README.md.
#include "mc.hpp"
#include <cstring>
enum Mut : u32 { M_NUMBERS = 1, M_NO_CAS = 2, M_MASTER_FIRST = 4, M_NO_GONE_CHECK = 8, M_GONE_BY_VERSION = 16, M_DELETE_FIRST = 32, M_HOLD_NO_REREAD = 64, M_HOLDS_FIRST = 128, M_SETTLE_FIRST = 256,
  M_SETTLED_ALL = 512, M_REMOVED_ORDER = 1024, M_FLOOR_UNSETTLED = 2048, M_GARBAGE_ANY = 4096, M_ONE_ID = 8192, M_STAMP_NO_REREAD = 16384, M_SETTLE_NO_CAS = 32768, M_REBASE_NO_RECORD = 65536, M_GARBAGE_STAMPED = 262144, M_HELD_CHANGED = 1 << 19, M_HELD_PASSED = 1 << 20, M_HELD_SETTLED = 1 << 21, V_REACH = 1u << 31 };
enum { HERE = 1, PUB = 2, SECOND = 4 }; // an item: there, stamped, inserted by the second attempt
struct Wr { u8 pc, base, i, v, seen; };
struct Rd { u8 pc, V, set, c0, c1, hold, runs; u8 list[5]; };
struct Sw { u8 pc, k, w, m, c, seen[2]; };
struct S5 { u8 cur, settled, floor, gone, zk, zc, zv, zw, bad, closed; u8 list[5]; u8 it[2][5][4]; Wr w[3]; Rd r[2]; Sw s[2]; u8 exp[5][2]; u8 pubs[5]; u8 hs, hc, hv, hw, hit; }; // hs: a commit holds item hc of version hv by writer hw (1), is decided (2); hit: the item as it was taken
static const char *bm[] = {"", "a reader got garbage, a mixture or a hole", "two writers published on one base", "REACHED", "a reader that holds its version was cut off", "a rebased edit lost a change", "what is left in the end is not the tree", "an item that a commit holds was changed"};
struct P5 { typedef S5 S; u32 mut; int nw, nr, ns, runs; bool hold, late, rebase, commit; S last; bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.cur = s.settled = s.floor = s.gone = 1; s.it[0][1][0] = s.it[1][1][0] = HERE | PUB; }
  // writer 3 removes item 0; in a rebase it is writer 1 again, under a new token
  bool writes(const S &s, int w, int c) const { return w == 1 ? (!rebase || c == 0) : w == 2 ? c == 1 : rebase ? s.w[0].seen >> c & 1 : c == 0; }
  int cont(int w, int c) const { return w == 3 ? rebase ? 1 : c == 0 ? 9 : w : w; }
  bool acc(const S &s, int c, int v, int w, int settled, const u8 *list) const { u8 x = s.it[c][v][w]; if (!(x & HERE)) return false; if (M(M_NUMBERS)) return true; if (v <= settled) return M(M_SETTLED_ALL) || (x & PUB); return list[v] == w; }
  int pick(const S &s, int c, int V, int settled, const u8 *list) const { for (int v = V; v >= 1; v--) for (int w = 3; w >= 0; w--) if (acc(s, c, v, w, settled, list)) return cont(w, c); return 9; }
  bool accNow(const S &s, int c, int v, int w) const { return v <= s.cur && acc(s, c, v, w, s.settled, s.list); }
  bool held(const S &s, int c, int v, int w) const { return s.hs == 1 && s.hc == c && s.hv == v && s.hw == w; }
  bool kept(const S &s, int c, int v, int w) const { return held(s, c, v, w) && !M(M_HELD_CHANGED); }
  static int least(int a, int b) { return a < b ? a : b; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int k = 0; k < nw; k++) { const Wr &q = s.w[k]; int w = k + 1; if (rebase && w == 3) { if (s.w[0].pc != 12) continue; }
#define B n = s; Wr &x = n.w[k]; (void)x
      auto next = [&](Wr &x) { while (x.i < 2 && !writes(s, w, x.i)) x.i++; if (x.i == 2) x.pc = M(M_MASTER_FIRST) ? 9 : 2; };
      switch (q.pc) {
      case 0: { B; x.base = s.cur; x.v = s.cur + 1; if (x.v > 4) break; x.i = 0; x.pc = M(M_MASTER_FIRST) ? 2 : 1; if (x.pc == 1) next(x); lab("writer %d begins on version %d", w, x.base); emit(n); break; }
      case 1: { B; n.it[q.i][q.v][w] |= HERE; lab("writer %d writes item%d at version %d", w, q.i, q.v); x.i++; next(x); emit(n);
          if (late && !s.zk) { B; n.zk = 1; n.zc = q.i; n.zv = q.v; n.zw = w; n.it[q.i][q.v][w] |= HERE | (M(M_ONE_ID) ? 0 : SECOND); x.i++; next(x); lab("writer %d writes item%d at version %d, by a second attempt: the first was not answered", w, q.i, q.v); emit(n); } break; }
      case 2: { B; bool ok = s.cur == q.base || M(M_NO_CAS);
          if (ok) { int nv = M(M_NO_CAS) ? (q.v > s.cur ? q.v : s.cur + 1) : q.v; if (nv > 4) { x.pc = 9; emit(n); break; } if (s.pubs[q.base]) n.bad = 2; n.pubs[q.base]++;
            for (int c = 0; c < 2; c++) n.exp[nv][c] = writes(s, w, c) ? cont(w, c) : s.exp[s.cur][c]; if (rebase && w == 3 && n.exp[nv][0] != 1) n.bad = 5;
            n.cur = nv; n.list[nv] = w; lab("writer %d publishes version %d", w, nv); } else lab("writer %d: conflict, version %d is current", w, s.cur);
          x.pc = ok || !(rebase && w == 1) ? 9 : 10; if (M(M_MASTER_FIRST) && ok) { x.pc = 1; x.i = 0; while (x.i < 2 && !writes(s, w, x.i)) x.i++; } emit(n); break; }
      case 10: { B; x.seen = 0; for (int c = 0; c < 2; c++) if (s.it[c][q.v][w] & HERE) x.seen |= 1 << c; x.pc = 11; lab("writer 1 reads what it wrote: %d", x.seen); emit(n); break; }
      case 11: { B; x.pc = s.closed && !M(M_REBASE_NO_RECORD) ? 9 : 12; lab("writer 1 renews its record%s", x.pc == 9 ? ": given up by a sweeper" : ""); emit(n); break; } } }
    if (s.zk == 1) { n = s; n.zk = 2; bool there = s.it[s.zc][s.zv][s.zw] & HERE; if (!there) n.it[s.zc][s.zv][s.zw] = HERE; lab("the late item%d at version %d of writer %d lands%s", s.zc, s.zv, s.zw, there ? " (refused: it is there)" : ""); emit(n); }
    for (int k = 0; k < nr; k++) { const Rd &q = s.r[k];
#define R n = s; Rd &x = n.r[k]; (void)x
      auto again = [&](Rd &x) { u8 runs = x.runs; memset(&x, 0, sizeof x); x.runs = runs; };
      switch (q.pc) {
      case 0: if (q.runs < runs) for (int V = s.floor; V <= s.cur; V++) { R; again(x); x.runs++; x.V = V; x.set = s.settled; memcpy(x.list, s.list, 5); x.pc = hold ? 4 : 1; lab("reader %d reads the master: version %d of %d", k, V, s.cur); emit(n); } break;
      case 4: { R; x.hold = q.V; x.pc = M(M_HOLD_NO_REREAD) ? 1 : 5; lab("reader %d holds %d", k, x.hold); emit(n); break; }
      case 5: { R; if (s.floor > q.hold) { lab("reader %d: the floor is past %d: again", k, q.hold); again(x); } else { x.pc = 1; x.set = s.settled; memcpy(x.list, s.list, 5); lab("reader %d reads the master again: floor %d", k, s.floor); } emit(n); break; }
      case 1: { R; x.c0 = pick(s, 0, q.V, q.set, q.list); x.pc = 2; lab("reader %d reads item0: %d", k, x.c0); emit(n); break; }
      case 2: { R; x.c1 = pick(s, 1, q.V, q.set, q.list); x.pc = 3; lab("reader %d reads item1: %d", k, x.c1); emit(n); break; }
      case 3: { R; int at = M(M_GONE_BY_VERSION) ? q.V : least(q.V, q.set); if (hold && s.gone > q.V) n.bad = 4;
          if (s.gone <= at || M(M_NO_GONE_CHECK)) { if (q.c0 != s.exp[q.V][0] || q.c1 != s.exp[q.V][1]) n.bad = 1; lab("reader %d returns version %d: %d, %d (published: %d, %d)", k, q.V, q.c0, q.c1, s.exp[q.V][0], s.exp[q.V][1]); if (M(V_REACH) && s.gone == 4) n.bad = 3; }
          else { lab("reader %d: collected up to %d in the meantime: again", k, s.gone); if (hold) { x.pc = 6; emit(n); break; } } again(x); emit(n); break; }
      case 6: { R; x.pc = 1; x.set = s.settled; memcpy(x.list, s.list, 5); lab("reader %d reads the master again: settled %d", k, x.set); emit(n); break; } } }
    auto holds = [&]() { int m = 9; for (int k = 0; k < nr; k++) if (s.r[k].hold && s.r[k].hold < m) m = s.r[k].hold; return m; };
    for (int k = 0; k < ns; k++) { const Sw &q = s.s[k];
#define W n = s; Sw &x = n.s[k]; (void)x
      switch (q.pc) {
      case 0:
        if (s.settled < s.cur && !M(M_NUMBERS)) { W; x.k = s.settled + 1; x.w = s.list[x.k]; x.pc = M(M_SETTLE_FIRST) ? 5 : 1; lab("sweeper %d reads the master: %d is to be settled", k, x.k); emit(n); }
        for (int m = s.floor + 1; m <= (M(M_FLOOR_UNSETTLED) ? s.cur : s.settled); m++) { W; x.m = m; x.pc = 6; if (M(M_HOLDS_FIRST)) { if (hold) x.m = least(m, holds()); } else if (!M(M_DELETE_FIRST)) n.floor = m; else n.gone = m; if (x.m > s.gone) { lab("sweeper %d raises the floor to %d", k, m); emit(n); } }
        for (int c = 0; c < 2; c++) for (int v = 1; v <= s.gone; v++) for (int w = 0; w < 4; w++) if ((s.it[c][v][w] & PUB || M(M_FLOOR_UNSETTLED)) && accNow(s, c, v, w) && cont(w, c) == 9) { bool older = false; for (int u = 1; u < v; u++) for (int o = 0; o < 4; o++) older |= (s.it[c][u][o] & PUB && !(M(M_HELD_PASSED) && held(s, c, u, o))) || (M(M_FLOOR_UNSETTLED) && accNow(s, c, u, o));
            if (!older || M(M_REMOVED_ORDER)) { W; x.k = v; x.w = w; x.c = c; x.pc = 8; lab("sweeper %d sees nothing behind the removal of item%d at %d", k, c, v); emit(n); } }
        break;
      case 1: { W; for (int c = 0; c < 2; c++) x.seen[c] = s.it[c][q.k][q.w]; x.pc = M(M_STAMP_NO_REREAD) ? 3 : 2; lab("sweeper %d reads the items of version %d", k, q.k); emit(n); break; }
      case 2: { W; if (s.settled >= q.k) memset(&x, 0, sizeof x); else x.pc = 3; lab("sweeper %d reads the master again: settled %d", k, s.settled); emit(n); break; }
      case 3: case 4: { W; int c = q.pc - 3; if (kept(s, c, q.k, q.w)) { if (M(M_HELD_SETTLED)) x.pc++; else memset(&x, 0, sizeof x); lab("sweeper %d finds item%d of version %d held", k, c, q.k); emit(n); break; } u8 &i = n.it[c][q.k][q.w]; if (q.seen[c] & HERE && i & HERE && (i & SECOND) == (q.seen[c] & SECOND)) i |= PUB; x.pc++; lab("sweeper %d stamps item%d of version %d", k, c, q.k); emit(n); break; }
      case 5: { W; if (s.settled + 1 == q.k || M(M_SETTLE_NO_CAS)) n.settled = q.k; memset(&x, 0, sizeof x); lab("sweeper %d settles version %d", k, q.k); emit(n); break; }
      case 6: { W; if (hold && !M(M_HOLDS_FIRST)) x.m = least(q.m, holds()); x.pc = 7; lab("sweeper %d reads the holds: up to %d", k, x.m); emit(n); break; }
      case 7: { W; if (s.gone < q.m) n.gone = q.m; if (n.floor < q.m) n.floor = q.m; memset(&x, 0, sizeof x); lab("sweeper %d writes gone = %d", k, n.gone); emit(n); break; }
      case 8: { W; if (!kept(s, q.c, q.k, q.w)) n.it[q.c][q.k][q.w] = 0; memset(&x, 0, sizeof x); lab("sweeper %d deletes the removal of item%d at %d", k, q.c, q.k); emit(n); break; } } }
    if (commit && !s.hs) for (int c = 0; c < 2; c++) for (int v = 1; v <= 4; v++) for (int w = 0; w < 4; w++) if (s.it[c][v][w] & HERE) { n = s; n.hs = 1; n.hc = c; n.hv = v; n.hw = w; n.hit = s.it[c][v][w]; lab("a commit takes item%d, version %d of writer %d", c, v, w); emit(n); }
    if (s.hs == 1) { n = s; n.hs = 2; n.hc = n.hv = n.hw = n.hit = 0; lab("the commit is decided, and releases its item"); emit(n); }
    if (rebase && ns && !s.closed) { n = s; n.closed = 1; lab("a sweeper gives up the edit of writer 1"); emit(n); }
    if (ns) for (int c = 0; c < 2; c++) for (int v = 1; v <= 4; v++) for (int w = 0; w < 4; w++) if (s.it[c][v][w] & HERE && !kept(s, c, v, w)) {
      bool superseded = false; for (int u = v + 1; u <= s.gone; u++) for (int o = 0; o < 4; o++) superseded |= accNow(s, c, u, o);
      if (superseded && s.it[c][v][w] & PUB) { n = s; n.it[c][v][w] = 0; lab("deleted: item%d, version %d of writer %d, superseded", c, v, w); emit(n); }
      if ((v <= s.settled || (M(M_GARBAGE_ANY) && v <= s.cur)) && (!(s.it[c][v][w] & PUB) || M(M_GARBAGE_STAMPED)) && !M(M_NUMBERS) && (!(rebase && w == 1) || s.closed || M(M_REBASE_NO_RECORD))) { n = s; n.it[c][v][w] = 0; lab("deleted: item%d, version %d of writer %d, never published", c, v, w); emit(n); } }
  }
  const char *check(const S &s) { if (s.bad) return bm[s.bad]; if (s.hs == 1 && s.it[s.hc][s.hv][s.hw] != s.hit) return bm[7]; if (M(V_REACH) || !ns) return nullptr;
    S x = s; // all processes dead, all readers too; one recovery pass continues to the end
    for (int k = x.settled + 1; k <= x.cur; k++) for (int c = 0; c < 2; c++) if (x.it[c][k][x.list[k]] & HERE) x.it[c][k][x.list[k]] |= PUB;
    for (int c = 0; c < 2; c++) { int seen = 0, left = 9;
      for (int v = x.cur; v >= 1; v--) for (int w = 0; w < 4; w++) if (x.it[c][v][w] & PUB) { if (!seen++) left = cont(w, c); }
      if (left != x.exp[x.cur][c]) return bm[6]; }
    return nullptr; }
  const char *terminal(const S &) { return nullptr; } };
static Res go(const char *nm, u32 mut, int nw, int nr, int ns, int runs, bool hold, bool late, bool rebase, bool commit = false) { P5 m; m.commit = commit; m.mut = mut; m.nw = nw; m.nr = nr; m.ns = ns; m.runs = runs; m.hold = hold; m.late = late; m.rebase = rebase; MC<P5> mc; Res r = mc.run(m); report(nm, r, true); return r; }
int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  struct { u32 f; const char *n; } L[] = {{M_NUMBERS, "numbers without tokens"}, {M_NO_CAS, "publish does not compare the base"}, {M_MASTER_FIRST, "the master before the items"}, {M_NO_GONE_CHECK, "a reader does not look at 'gone' at the end"}, {M_GONE_BY_VERSION, "'gone' is compared with the version only, not with 'settled'"},
    {M_DELETE_FIRST, "'gone' before the floor"}, {M_HOLD_NO_REREAD, "a hold without a second look at the floor"}, {M_HOLDS_FIRST, "the holds are read before the floor is written"}, {M_SETTLE_FIRST, "settled before the stamps"}, {M_SETTLED_ALL, "below 'settled' all counts as published"},
    {M_REMOVED_ORDER, "a removal deleted before what it hides"}, {M_FLOOR_UNSETTLED, "the floor above 'settled'"}, {M_GARBAGE_ANY, "what is not settled is taken for garbage"}, {M_GARBAGE_STAMPED, "garbage is deleted without a look at the stamp"}, {M_ONE_ID, "both attempts insert under one _id"}, {M_STAMP_NO_REREAD, "stamps without a second look at 'settled'"}, {M_SETTLE_NO_CAS, "'settled' is written without a comparison"}, {M_REBASE_NO_RECORD, "a rebase does not look at its record"},
    {M_HELD_CHANGED, "an item that a commit holds is stamped or deleted"}, {M_HELD_PASSED, "a removal is deleted before a held item"}, {M_HELD_SETTLED, "settled although a held item has no stamp"}};
  if (!strcmp(what, "mutants")) { int alive = 0;
    for (auto &l : L) { Res r = go(l.n, l.f, 3, 1, 1, 1, false, true, false);
      if (r.viol.empty()) r = go(l.n, l.f, 3, 1, 1, 1, true, false, false);
      if (r.viol.empty()) r = go(l.n, l.f, 2, 0, 1, 1, false, false, true), r = r.viol.empty() ? go(l.n, l.f, 3, 0, 1, 1, false, false, true) : r;
      if (r.viol.empty()) r = go(l.n, l.f, 3, 0, 2, 1, false, true, false);
      if (r.viol.empty()) r = go(l.n, l.f, 3, 1, 1, 1, false, false, false, true);
      if (r.viol.empty()) alive++, puts("!!! SURVIVOR"); }
    printf("%zu mutants, %d survivors\n", sizeof L / sizeof *L, alive); return alive; }
  if (!strcmp(what, "reach")) { go("a version read when all before it is collected", V_REACH, 3, 1, 1, 1, true, true, false); return 0; }
  bool ok = true;
  ok &= go("3 writers (one removes item 0), 1 reader, 1 sweeper, a late insert", 0, 3, 1, 1, 1, false, true, false).complete;
  ok &= go("the same, the reader holds its version", 0, 3, 1, 1, 1, true, true, false).complete;
  ok &= go("3 writers, 2 sweepers, a late insert", 0, 3, 0, 2, 1, false, true, false).complete;
  ok &= go("2 writers, 1 reader, 2 sweepers, a late insert", 0, 2, 1, 2, 1, false, true, false).complete;
  ok &= go("2 writers, 2 readers that hold, 1 sweeper", 0, 2, 2, 1, 1, true, false, false).complete;
  ok &= go("a rebase next to 1 writer, 1 reader, 1 sweeper, a late insert", 0, 3, 1, 1, 1, false, true, true).complete;
  ok &= go("3 writers, 1 reader, 1 sweeper, a commit that holds an item", 0, 3, 1, 1, 1, false, false, false, true).complete;
  ok &= go("2 writers, 2 sweepers, a late insert, a commit that holds an item", 0, 2, 0, 2, 1, false, true, false, true).complete;
  return !ok; }
