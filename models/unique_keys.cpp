// Unique keys under the write-intent journal (src/commit/unique_keys.c). A document has a uniquely
// indexed value `key` and a shadow array `_keys` (sh, a set of keys) under a unique index of its
// own. An update of `key` reserves the new one in `_keys` when it prepares, then checks whether a
// document without a shadow has it. See README.md.
#include "mc.hpp"
#include <functional>
enum { ND = 3, NC = 4, NP = 3, NH = 1 };
enum Op { NONE, TOUCH, KEY, INS, RM };
static const char *opn[] = {"nothing", "touch", "set the key of", "insert", "remove"};
enum Kind { JRN, FAST, PLAIN };
enum Mut : u32 {
  M_LATE = 1,         // nothing is reserved: the key is claimed at the release
  M_APPLY = 2,        // the key itself is changed at the prepare, and put back by the strip
  M_NO_LOOK = 4,      // documents without a shadow are not searched
  M_NO_UNDO = 16,     // the strip leaves `_keys` unchanged
  M_UNDO_NOW = 32,    // the strip makes `_keys` from the document
  M_FAST_BARE = 64,   // the fast path does not write `_keys`
  M_KEEP = 128,       // the release leaves the old key in `_keys`
  M_DUP_FINAL = 256,  // a key that is only reserved counts as used
  M_TOUCH_BARE = 512, // a document gets its first `_keys` at the release, not at the prepare
  M_STUB_BARE = 1024, // a stub has the key, but no `_keys`
  M_PASS_HELD = 2048, // a holder under an intent, seen by the read, does not count
  V_REACH = 4096,     // not a mutant: reports a state in which all processes have committed
};
struct Script { int kind; int op[ND]; int k[ND]; };
struct Cfg { std::string name; std::vector<Script> sc; int ex[ND], key[ND], shadow[ND]; int att, zb; bool purge; u32 mut; };
struct Doc { u8 ex, stub, key, sh, it, res, undo, oldkey, rev; };
struct Com { u8 st, sc, decided, ap; };  // st: 0 missing 1 pending 2 committed 3 aborted 4 done
struct Prc { u8 pc, i, c, att, res, unk; u8 ex[ND], rev[ND], key[ND], sh[ND]; };
struct Hlp { u8 pc, d, c, st, stub, res, undo; };
struct Zmb { u8 k, p, c, d, rev, key, sh; };
enum { READ, INSC, PREP, PREPCHK, LOOK, DECIDE, RESULT, REL, DONE, SELFAB, ROLLREAD, ROLL, FASTW, END };
enum { Z_PREP = 1, Z_DEC };
struct St { Doc d[ND]; Com c[NC]; Prc p[NP]; Hlp h[NH]; Zmb z; u8 ni, zleft, bad; };
static const char *bm[] = {"", "the release is refused by a unique index AFTER the decision", "the strip is refused by a unique index", "an undecided commit was applied",
  "a decided commit is missing in a document", "a commit was applied twice", "two documents have one key", "a key is kept by a document that does not have it",
  "a document is held for ever", "reported as taken, but the key was only reserved", "REACHED (all processes committed)"};
struct M {
  typedef St S; Cfg cfg; St last; int np;
  M(const Cfg &c) : cfg(c) { np = (int)c.sc.size(); }
  bool m(u32 x) const { return cfg.mut & x; }
  static u8 bit(int k) { return k ? 1 << k : 0; }
  void init(S &s) { for (int d = 0; d < ND; d++) if (cfg.ex[d]) { s.d[d].ex = 1; s.d[d].key = cfg.key[d]; s.d[d].sh = cfg.shadow[d] ? bit(cfg.key[d]) : 0; } s.zleft = cfg.zb; for (int p = 0; p < np; p++) s.p[p].i = first(cfg.sc[p], 0); }
  static int first(const Script &sc, int i) { while (i < ND && !sc.op[i]) i++; return i; }
  // true if the two unique indexes accept this document
  int holder(const S &s, int d, int key, u8 sh) const { for (int e = 0; e < ND; e++) if (e != d && s.d[e].ex && ((key && s.d[e].key == key) || (s.d[e].sh & sh))) return e; return -1; }
  static int after(const Script &sc, int d, int key) { return sc.op[d] == KEY || sc.op[d] == INS ? sc.k[d] : key; }
  enum { OK, OWN, OTHER, FAIL, DUPE };
  int prepare(S &s, int d, int c, const Script &sc, u8 rev, u8 key, u8 sh, int *who) const {
    Doc &x = s.d[d];
    if (sc.op[d] == INS) {
      if (x.ex) return x.it == c + 1 ? OWN : x.it ? OTHER : FAIL;
      u8 want = m(M_STUB_BARE) ? 0 : bit(sc.k[d]); if ((*who = holder(s, d, sc.k[d], want)) >= 0) return DUPE;
      x = Doc(); x.ex = 1; x.stub = 1; x.it = c + 1; x.key = sc.k[d]; x.sh = want; return OK;
    }
    if (x.ex && x.it == c + 1) return OWN;
    if (x.ex && x.it) return OTHER;
    if (!x.ex || x.rev != rev) return FAIL;
    if (sc.op[d] != RM && !m(M_LATE)) {
      int k = after(sc, d, key);
      if (m(M_APPLY)) { if (k != key) { if ((*who = holder(s, d, k, 0)) >= 0) return DUPE; x.oldkey = key + 1; x.key = k; } }
      else if (sh != bit(k) && !(m(M_TOUCH_BARE) && k == key)) { if ((*who = holder(s, d, 0, sh | bit(k))) >= 0) return DUPE; x.res = 1; x.undo = sh; x.sh = sh | bit(k); }
    }
    x.it = c + 1; return OK;
  }
  void applied(S &s, int d, int c) const { if (s.c[c].ap >> d & 1) s.bad = 5; s.c[c].ap |= 1 << d; }
  void release(S &s, int d, int c) const {
    Doc &x = s.d[d]; const Script &sc = cfg.sc[s.c[c].sc]; if (!x.ex || x.it != c + 1) return;
    if (!s.c[c].decided) s.bad = 3;
    applied(s, d, c); if (sc.op[d] == RM) { x = Doc(); return; }
    int k = m(M_APPLY) ? x.key : after(sc, d, x.key); u8 sh = m(M_APPLY) ? 0 : bit(k); if (m(M_KEEP)) sh |= x.sh;
    if (holder(s, d, k, sh) >= 0) { s.bad = 1; return; }
    x = Doc(); x.ex = 1; x.key = k; x.sh = sh; x.rev = c + 1;
  }
  void strip(S &s, int d, int c, bool res, u8 undo) const {
    Doc &x = s.d[d]; if (!x.ex || x.it != c + 1) return;
    if (x.stub) { x = Doc(); return; }
    if (x.oldkey) { if (holder(s, d, x.oldkey - 1, 0) >= 0) { s.bad = 2; return; } x.key = x.oldkey - 1; x.oldkey = 0; }
    u8 sh = m(M_UNDO_NOW) ? bit(x.key) : res && !m(M_NO_UNDO) ? undo : x.sh; if (holder(s, d, 0, sh) >= 0) { s.bad = 2; return; }
    x.sh = sh; x.it = x.res = x.undo = 0;
  }
  void decide(S &s, int c) const { s.c[c].st = 2; s.c[c].decided = 1; }
  int newc(S &s, int p) const { s.c[s.ni].sc = p; return s.ni++; }
  void again(S &n, int p) const { Prc &q = n.p[p]; int att = q.att + 1; q = Prc(); q.att = att; if (att >= cfg.att) { q.pc = END; q.res = 2; q.i = 0; } else q.i = first(cfg.sc[p], 0); }
  void done(S &n, int p, int res) const { Prc &q = n.p[p]; q = Prc(); q.pc = END; q.res = res; }
  template <class F> void succ(const S &s, F &&emit) {
    S n;
#define B n = s; Prc &x = n.p[p]; (void)x
    for (int p = 0; p < np; p++) { const Prc &q = s.p[p]; const Script &sc = cfg.sc[p]; int d = q.i, c = q.c - 1; auto next = [&](Prc &x, int pc) { x.i = first(sc, q.i + 1); if (x.i >= ND) { x.pc = pc; x.i = pc == DECIDE || pc == DONE ? 0 : first(sc, 0); } };
      switch (q.pc) {
      case READ: if (sc.kind == PLAIN) { B; int k = after(sc, d, s.d[d].key); if (s.d[d].ex ? sc.op[d] != INS : sc.op[d] == INS) { if (holder(s, d, k, 0) < 0) { n.d[d].ex = 1; n.d[d].key = k; } } lab("plain writer P%d: %s doc%d", p, opn[sc.op[d]], d); done(n, p, 1); emit(n); break; }
        if (s.d[d].ex && s.d[d].it) break; // waits, another process completes it
        { B; const Doc &y = s.d[d]; x.ex[d] = y.ex; x.rev[d] = y.rev; x.key[d] = y.key; x.sh[d] = y.sh; lab("P%d reads doc%d (key %d, shadow %x)", p, d, y.key, y.sh); next(x, sc.kind == FAST ? FASTW : INSC);
          if (sc.op[d] == INS ? y.ex : !y.ex) { done(n, p, 2); } emit(n); } break;
      case FASTW: { const Doc &y = s.d[d]; if (y.ex && y.it) break;
        B; if (sc.op[d] == INS ? y.ex : (!y.ex || y.rev != q.rev[d])) { lab("P%d: fast write of doc%d: changed", p, d); again(n, p); emit(n); break; }
        int k = after(sc, d, q.key[d]); u8 sh = m(M_FAST_BARE) ? q.sh[d] : bit(k); int h = sc.op[d] == RM ? -1 : holder(s, d, k, sh);
        if (h >= 0) { if (s.d[h].it && !m(M_DUP_FINAL)) break; if (s.d[h].it) n.bad = 9; lab("P%d: fast write of doc%d: its key is taken by doc%d", p, d, h); done(n, p, 2); emit(n); break; }
        if (s.ni >= NC) { lab("P%d gives up (bound)", p); done(n, p, 3); emit(n); break; }
        c = newc(n, p); n.c[c].decided = 1; n.c[c].st = 4; applied(n, d, c); for (int e = 0; e < ND; e++) if (e != d && sc.op[e]) abort();
        if (sc.op[d] == RM) n.d[d] = Doc(); else { Doc &z = n.d[d]; z = Doc(); z.ex = 1; z.key = k; z.sh = sh; z.rev = c + 1; } lab("P%d: fast: %s doc%d (key %d)", p, opn[sc.op[d]], d, k); done(n, p, 1); emit(n); break; }
      case INSC: { B; if (s.ni >= NC) { lab("P%d gives up (bound)", p); done(n, p, 3); emit(n); break; } c = newc(n, p); n.c[c].st = 1; x.c = c + 1; x.pc = PREP; x.i = first(sc, 0); lab("P%d inserts C%d", p, c); emit(n); break; }
      case PREP: { B; int who = -1, r = prepare(n, d, c, sc, q.rev[d], q.key[d], q.sh[d], &who);
        if (r == OK || r == OWN) { lab("P%d prepares doc%d for C%d (shadow %x)", p, d, c, n.d[d].sh); if (sc.op[d] == KEY && !m(M_NO_LOOK | M_APPLY | M_LATE)) x.pc = LOOK; else next(x, DECIDE); emit(n); }
        else { n = s; if (r == DUPE && m(M_DUP_FINAL) && s.d[who].it) n.bad = 9; lab("P%d: doc%d is not to be had (%s)", p, d, r == DUPE ? "its key is taken" : r == OTHER ? "held" : "changed"); n.p[p].pc = SELFAB; emit(n); }
        if (s.zleft && !s.z.k) { n = s; n.z = Zmb{Z_PREP, (u8)p, (u8)c, (u8)d, q.rev[d], q.key[d], q.sh[d]}; n.zleft--; n.p[p].pc = PREPCHK; lab("P%d sends the prepare of doc%d for C%d, no answer", p, d, c); emit(n); } break; }
      case PREPCHK: { B; if (s.d[d].ex && s.d[d].it == q.c) { x.pc = PREP; lab("P%d finds its intent on doc%d", p, d); } else { x.pc = SELFAB; lab("P%d does not find its intent on doc%d: gives C%d up", p, d, c); } emit(n); break; }
      case LOOK: { B; int k = after(sc, d, q.key[d]), h = -1; if (sc.op[d] == KEY && k != q.key[d]) for (int e = 0; e < ND; e++) if (e != d && s.d[e].ex && s.d[e].key == k && !(m(M_PASS_HELD) && s.d[e].it)) h = e;
        if (h >= 0) { lab("P%d looks: doc%d has key %d", p, h, k); x.pc = SELFAB; } else { lab("P%d looks: no document has the key of doc%d", p, d); next(x, DECIDE); if (x.pc == LOOK) x.pc = PREP; } emit(n); break; }
      case DECIDE: { B; if (s.c[c].st == 1) { decide(n, c); x.pc = REL; x.i = first(sc, 0); lab("P%d decides C%d", p, c); } else { x.pc = RESULT; lab("P%d: C%d cannot be decided", p, c); } emit(n);
        if (s.zleft && !s.z.k) { n = s; n.z = Zmb{Z_DEC, (u8)p, (u8)c, 0, 0, 0, 0}; n.zleft--; n.p[p].pc = RESULT; n.p[p].unk = 1; lab("P%d sends the decision of C%d, no answer", p, c); emit(n); } break; }
      case RESULT: { B; int st = s.c[c].st; lab("P%d looks at C%d: %d", p, c, st); if (st == 1) x.pc = DECIDE; else if (st == 2 || st == 4) { x.pc = REL; x.i = first(sc, 0); } else if (st == 3) { x.pc = ROLLREAD; x.i = first(sc, 0); } else done(n, p, 3); emit(n); break; }
      case REL: { B; release(n, d, c); lab("P%d releases doc%d of C%d", p, d, c); next(x, DONE); emit(n); break; }
      case DONE: { B; if (s.c[c].st == 2) n.c[c].st = 4; lab("P%d marks C%d done", p, c); done(n, p, 1); emit(n); break; }
      case SELFAB: { B; if (s.c[c].st == 1) n.c[c].st = 3; if (n.c[c].st == 3 || !n.c[c].st) { x.pc = ROLLREAD; x.i = first(sc, 0); } else x.pc = RESULT; lab("P%d aborts C%d", p, c); emit(n); break; }
      case ROLLREAD: { B; const Doc &y = s.d[d]; bool ours = y.ex && y.it == q.c; x.sh[d] = ours ? y.undo : 0; x.ex[d] = ours ? 1 + y.res : 0; x.pc = ROLL; lab("P%d reads doc%d to strip it of C%d", p, d, c); emit(n); break; }
      case ROLL: { B; if (q.ex[d]) strip(n, d, c, q.ex[d] == 2, q.sh[d]); lab("P%d strips doc%d of C%d", p, d, c); x.pc = ROLLREAD; x.i = first(sc, d + 1); if (x.i >= ND) again(n, p); emit(n); break; }
      } }
    for (int h = 0; h < NH; h++) { const Hlp &q = s.h[h];
      if (q.pc == 0) for (int d = 0; d < ND; d++) if (s.d[d].ex && s.d[d].it) { n = s; const Doc &y = s.d[d]; n.h[h] = Hlp{1, (u8)d, (u8)(y.it - 1), 0, y.stub, y.res, y.undo}; lab("H%d meets doc%d of C%d", h, d, y.it - 1); emit(n); }
      if (q.pc == 1 && s.c[q.c].st != 1) { n = s; n.h[h].st = s.c[q.c].st; n.h[h].pc = 2; lab("H%d looks C%d up: %d", h, q.c, s.c[q.c].st); emit(n); }
      if (q.pc == 2) { n = s; if (q.st == 2 || q.st == 4) release(n, q.d, q.c); else strip(n, q.d, q.c, q.res, q.undo); n.h[h] = Hlp(); lab("H%d %s doc%d of C%d", h, q.st == 2 || q.st == 4 ? "releases" : "strips", q.d, q.c); emit(n); } }
    for (int c = 0; c < s.ni; c++) { if (s.c[c].st == 1) { n = s; n.c[c].st = 3; lab("another process aborts C%d", c); emit(n); }
      if (cfg.purge && (s.c[c].st == 3 || (s.c[c].st == 4 && cfg.sc[s.c[c].sc].kind == JRN))) { n = s; n.c[c].st = 0; lab("C%d is purged", c); emit(n); } }
    if (s.z.k) { n = s; int who; if (s.z.k == Z_PREP) { if (prepare(n, s.z.d, s.z.c, cfg.sc[s.z.p], s.z.rev, s.z.key, s.z.sh, &who) != OK) n = s; } else if (s.c[s.z.c].st == 1) decide(n, s.z.c); n.z = Zmb(); lab("the unanswered %s of C%d lands", s.z.k == Z_PREP ? "prepare" : "decision", s.z.c); emit(n); }
  }
  const char *check(const S &s) {
    if (m(V_REACH)) { for (int p = 0; p < np; p++) if (s.p[p].pc != END || s.p[p].res != 1) return nullptr; return bm[10]; }
    if (s.bad) return bm[s.bad];
    S t = s; // all processes are dead; a recovery pass works to the end
    for (int c = 0; c < t.ni; c++) if (t.c[c].st == 1) t.c[c].st = 3;
    for (int d = 0; d < ND; d++) if (t.d[d].ex && t.d[d].it) { int c = t.d[d].it - 1, st = t.c[c].st; if (st == 2 || st == 4) release(t, d, c); else strip(t, d, c, t.d[d].res, t.d[d].undo); }
    if (t.bad) return bm[t.bad];
    for (int d = 0; d < ND; d++) { const Doc &x = t.d[d]; if (!x.ex) continue; if (x.it || x.stub) return bm[8]; if (holder(t, d, x.key, 0) >= 0) return bm[6]; if (!m(M_FAST_BARE) && (x.sh & ~bit(x.key))) return bm[7]; }
    for (int c = 0; c < t.ni; c++) { const Script &sc = cfg.sc[t.c[c].sc]; for (int d = 0; d < ND; d++) if (sc.op[d] && t.c[c].decided && !(t.c[c].ap >> d & 1)) return bm[4]; if (!t.c[c].decided && t.c[c].ap) return bm[3]; }
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
static Script J(std::initializer_list<int> op, std::initializer_list<int> k) { Script s = {}; s.kind = JRN; int i = 0; for (int o : op) s.op[i++] = o; i = 0; for (int o : k) s.k[i++] = o; return s; }
static Script F(int kind, std::initializer_list<int> op, std::initializer_list<int> k) { Script s = J(op, k); s.kind = kind; return s; }
int main(int argc, char **argv) {
  std::vector<Cfg> all; auto add = [&](const char *name, std::vector<Script> sc, std::initializer_list<int> key, std::initializer_list<int> shadow, int att) { Cfg c = {}; c.name = name; c.sc = sc; int i = 0; for (int k : key) { c.ex[i] = k >= 0; c.key[i++] = k > 0 ? k : 0; } i = 0; for (int k : shadow) c.shadow[i++] = k; c.att = att; c.zb = 1; c.purge = true; all.push_back(c); };
  add("two commits want one key", {J({KEY, TOUCH, NONE}, {2}), J({NONE, TOUCH, KEY}, {0, 0, 2})}, {1, 0, 3}, {1, 1, 1}, 2);
  add("a: k1 to k2; fast insert c (k1)", {J({KEY, TOUCH, NONE}, {2}), F(FAST, {NONE, NONE, INS}, {0, 0, 1})}, {1, 0, -1}, {1, 1, 1}, 2);
  add("a: k1 to k2; commit inserts c (k1); fast insert of k2", {J({KEY, TOUCH, NONE}, {2}), J({NONE, TOUCH, INS}, {0, 0, 1})}, {1, 0, -1}, {1, 1, 1}, 1);
  add("a: k1 to k2; fast b to k2; fast c to k1", {J({KEY, NONE, NONE}, {2}), F(FAST, {NONE, KEY, NONE}, {0, 2, 0}), F(FAST, {NONE, NONE, KEY}, {0, 0, 1})}, {1, 0, 3}, {1, 1, 1}, 1);
  add("no shadow yet: a to k2; fast c: k2 to k3", {J({KEY, TOUCH, NONE}, {2}), F(FAST, {NONE, NONE, KEY}, {0, 0, 3})}, {1, 0, 2}, {0, 0, 0}, 2);
  add("no shadow yet: a to k2; commit moves c: k2 to k3", {J({KEY, TOUCH, NONE}, {2}), J({NONE, TOUCH, KEY}, {0, 0, 3})}, {1, 0, 2}, {0, 0, 0}, 1);
  add("no shadow yet: a to k2; commit touches c (k2)", {J({KEY, TOUCH, NONE}, {2}), J({NONE, TOUCH, TOUCH}, {0, 0, 0})}, {1, 0, 2}, {0, 0, 0}, 1);
  add("no shadow yet: a to k2; commit removes c (k2); fast b to k1", {J({KEY, NONE, NONE}, {2}), J({NONE, NONE, RM}, {}), F(FAST, {NONE, KEY, NONE}, {0, 1, 0})}, {1, 0, 2}, {0, 0, 0}, 1);
  add("a to k2; commit inserts c (k2) and touches b", {J({KEY, TOUCH, NONE}, {2}), J({NONE, TOUCH, INS}, {0, 0, 2})}, {1, 0, -1}, {0, 1, 1}, 1);
  add("no shadow yet: a to k2; fast touch of c (k2); fast b to k2", {J({KEY, NONE, NONE}, {2}), F(FAST, {NONE, NONE, TOUCH}, {}), F(FAST, {NONE, KEY, NONE}, {0, 2, 0})}, {1, 0, 2}, {0, 0, 0}, 2);
  if (argc > 1 && !strcmp(argv[1], "hole")) { Cfg c = {}; add("hole: a plain writer takes a reserved key", {J({KEY, TOUCH, NONE}, {2}), F(PLAIN, {NONE, NONE, INS}, {0, 0, 2})}, {1, 0, -1}, {1, 1, 1}, 1); c = all.back(); M m(c); MC<M> mc; report(c.name.c_str(), mc.run(m), true); return 0; }
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_LATE, "nothing reserved, the key is taken at the release"}, {M_APPLY, "the key is changed at the prepare, with undo"}, {M_NO_LOOK, "no look for documents without a shadow"}, {M_NO_UNDO, "the strip leaves the reservation"}, {M_UNDO_NOW, "the strip makes _keys from the document"},
      {M_FAST_BARE, "the fast path does not write _keys"}, {M_KEEP, "the release leaves the old key in _keys"}, {M_DUP_FINAL, "a key that is only reserved counts as taken"}, {M_TOUCH_BARE, "the first _keys of a document is not reserved"}, {M_STUB_BARE, "a stub without _keys"}, {M_PASS_HELD, "the look passes a holder under an intent"}};
    int alive = 0; for (auto &u : mu) { bool dead = false; Res best; std::string where; for (auto c : all) { c.mut = u.m; M m(c); MC<M> mc; Res r = mc.run(m); if (!r.viol.empty() && (!dead || r.trace.size() < best.trace.size())) { dead = true; best = r; where = c.name; } if (dead && argc <= 2) break; }
      if (dead) printf("%-52s [%s] KILLED: %s (%zu steps, %llu states)\n", u.name, where.c_str(), best.viol.c_str(), best.trace.size(), (unsigned long long)best.n); else { printf("%-52s SURVIVES\n", u.name); alive++; } fflush(stdout); }
    printf("%d survivors\n", alive); return alive != 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); for (auto c : all) { if (reach) c.mut = V_REACH; M m(c); MC<M> mc; report(c.name.c_str(), mc.run(m), !reach); }
}
