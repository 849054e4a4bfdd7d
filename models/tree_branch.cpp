// Merges of branches of trees (src/patterns/tree/tree_branch.c): an origin and its branch, edits on
// both sides, mergers in either direction, and collectors of either tree. Any of these processes
// may die, and holds may expire. See README.md.
#include "mc.hpp"
enum { VERSIONS = 8, HOLDS = 6, MERGERS = 2 };
enum Mut : u32 {
  M_NO_MERGES = 1,      // the commit does not compare the number of merges
  M_TWO_COMMITS = 2,    // the publication and the record of its merge are two commits
  M_NO_HOLD = 4,        // the future common version is not held
  M_HOLD_AFTER = 8,     // ... is held when the commit is over
  // the day is removed after the commit, by its merger or a recovery pass of the branch
  M_DAY_AFTER = 16,
  M_DAY_STAYS = 32,     // the day is never removed
  M_NO_CHECK = 64,      // the commit does not check whether its hold still exists
  M_LET_GO_ALL = 128,   // the release of earlier holds releases this one
  M_ALWAYS_OURS = 256,  // the common version always belongs to the branch
  M_NO_READER = 512,    // the source is not held while it is read
  // a merger that finds its source collected does not check whether another process was faster
  M_GIVE_UP = 1024,
  M_ONE_BASE = 2048,    // the target's current version is not compared
  V_REACH = 1u << 30,
};
enum { A, B };                  // items: A is edited at the origin, B at the branch
enum { ORIGIN, BRANCH };        // trees
enum { PUSH = 1, PULL };        // of a merger: into the origin, into the branch
struct Cfg { std::string name; int way[MERGERS]; int edits[2]; int rounds, crashes, days; u32 mut; };
struct Tree { u8 cur, floor, gone, edits; u8 v[VERSIONS][2]; };
struct From { u8 pulled, theirs, ours, merges; };
struct Hold { u8 on, tree, ver, merge, until, by; }; // by: the owner while it has a day, 1 and up
struct Merger { u8 pc, dead, inc, base, held; From saw; u8 b[2], i[2], s[2]; };
struct Collector { u8 pc, first, least, rounds; };
struct St { Tree t[2]; From from; Hold h[HOLDS]; Merger m[MERGERS]; Collector c[2]; u8 crashes, days, bad; };
enum { RELATE, SOURCE, HOLDING, LOOK, BEGIN, BASE, INCOMING, STANDING, COMMON, COMMIT, FROM, AFTER, LET_GO, EXPIRED, END };
static const char *bm[] = {"", "what both had is gone, for ever", "a change was made twice, or taken back", "a reader that holds its version was cut off", "the two sides are not the same in the end", "REACHED"};
struct M {
  typedef St S; Cfg cfg; St last; M(const Cfg &c) : cfg(c) {}
  bool m(u32 x) const { return cfg.mut & x; }
  void init(S &s) { for (auto &t : s.t) t.cur = t.floor = t.gone = 1; s.from = {0, 1, 1, 1}; s.h[0] = {1, BRANCH, 1, 1, 0, 0}; s.crashes = cfg.crashes; s.days = cfg.days; for (int i = 0; i < MERGERS; i++) if (!cfg.way[i]) s.m[i].pc = END; }
  static void put(S &n, int tree, const u8 *v) { Tree &t = n.t[tree]; t.cur++; t.v[t.cur][A] = v[A]; t.v[t.cur][B] = v[B]; }
  static bool hold(S &n, Hold x) { for (auto &h : n.h) if (!h.on) { h = x; return true; } return false; }
  int source(int i) const { return cfg.way[i] == PUSH ? BRANCH : ORIGIN; }
  void again(Merger &q) const { u8 dead = q.dead; memset(&q, 0, sizeof q); q.dead = dead; }
  // three ways; false: both changed it, which no process did here
  bool merged(const Merger &q, u8 *r) const { bool ok = true; for (int k = 0; k < 2; k++) { r[k] = q.s[k]; if (q.i[k] == q.b[k] || q.i[k] == q.s[k]) continue; if (q.s[k] == q.b[k]) r[k] = q.i[k]; else ok = false; } return ok; }
  static bool differs(const Merger &q) { return q.i[A] != q.b[A] || q.i[B] != q.b[B]; }
  void let_go(S &n, int merges) const { for (auto &h : n.h) if (h.on && (h.merge < merges || (m(M_LET_GO_ALL) && h.merge == merges))) h = Hold(); }
  void keep(S &n, int merges) const { for (auto &h : n.h) if (h.on && h.merge == merges) h.until = h.by = 0; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int i = 0; i < MERGERS; i++) { const Merger &q = s.m[i]; if (q.dead || q.pc == END) continue; int src = source(i), dst = !src;
      if (s.crashes) { n = s; n.crashes--; n.m[i] = Merger(); n.m[i].pc = END; n.m[i].dead = 1; lab("M%d dies", i); emit(n); }
      n = s; Merger &x = n.m[i];
      switch (q.pc) {
      case RELATE: x.saw = s.from; x.pc = SOURCE; lab("M%d reads what was merged: %d, origin %d, branch %d%s", i, s.from.merges, s.from.theirs, s.from.ours, s.from.pulled ? ", pulled" : ""); emit(n); break;
      case SOURCE: x.inc = s.t[src].cur; x.pc = m(M_NO_READER) ? BEGIN : HOLDING; lab("M%d finds version %d of tree %d", i, x.inc, src); emit(n); break;
      case HOLDING: x.held = 1; x.pc = LOOK; lab("M%d holds it", i); emit(n); break;
      case LOOK: if (s.t[src].floor > q.inc) { again(x); x.pc = RELATE; lab("M%d: too late", i); } else { x.pc = BEGIN; lab("M%d: it is held", i); } emit(n); break;
      case BEGIN: x.base = s.t[dst].cur; x.pc = BASE; lab("M%d begins on version %d of tree %d", i, x.base, dst); emit(n); break;
      case BASE: { int tree = q.saw.pulled && !m(M_ALWAYS_OURS) ? ORIGIN : BRANCH, ver = tree == ORIGIN ? q.saw.theirs : q.saw.ours;
        if (s.t[tree].gone > ver) { x.pc = EXPIRED; lab("M%d: what both had is collected", i); } else { memcpy(x.b, s.t[tree].v[ver], 2); x.pc = INCOMING; lab("M%d reads version %d of tree %d, which both had: %d %d", i, ver, tree, x.b[A], x.b[B]); } emit(n); break; }
      case INCOMING: if (s.t[src].gone > q.inc) { if (!m(M_NO_READER)) n.bad = 3; x.pc = EXPIRED; } else { memcpy(x.i, s.t[src].v[q.inc], 2); x.pc = STANDING; } lab("M%d reads the source: %d %d", i, x.i[A], x.i[B]); emit(n); break;
      case STANDING: if (s.t[dst].gone > q.base) { x.pc = EXPIRED; lab("M%d: the stored version is collected", i); } else { memcpy(x.s, s.t[dst].v[q.base], 2); u8 r[2]; if (!merged(x, r)) n.bad = 2; x.pc = !differs(x) ? END : m(M_NO_HOLD) || m(M_HOLD_AFTER) ? COMMIT : COMMON; if (x.pc == END) { again(x); x.pc = END; } lab("M%d reads the stored entry: %d %d", i, s.t[dst].v[q.base][A], s.t[dst].v[q.base][B]); } emit(n); break;
      case COMMON: if (!hold(n, {1, (u8)src, q.inc, (u8)(q.saw.merges + 1), 1, (u8)(i + 1)})) break; x.pc = COMMIT; lab("M%d holds what both will have, for a day", i); emit(n); break;
      case COMMIT: { u8 r[2]; merged(q, r); bool puts = memcmp(r, q.s, 2) != 0, mine = false; Hold *own = nullptr;
        for (auto &h : n.h) if (h.on && h.by == i + 1 && h.merge == q.saw.merges + 1) own = &h;
        mine = own || m(M_NO_CHECK) || m(M_NO_HOLD) || m(M_HOLD_AFTER) || m(M_DAY_AFTER) || m(M_DAY_STAYS);
        if ((s.from.merges != q.saw.merges && !m(M_NO_MERGES) && !m(M_TWO_COMMITS)) || (puts && s.t[dst].cur != q.base && !m(M_ONE_BASE)) || !mine) { again(x); x.pc = RELATE; lab("M%d: another process was faster", i); emit(n); break; }
        if (n.t[dst].cur + 1 >= VERSIONS && puts) break;
        if (puts) put(n, dst, r);
        if (m(M_TWO_COMMITS)) { x.pc = FROM; lab("M%d publishes %d %d", i, r[A], r[B]); emit(n); break; }
        n.from.merges = q.saw.merges + 1; n.from.pulled = cfg.way[i] == PULL; if (n.from.pulled) { n.from.theirs = q.inc; n.from.ours = q.saw.ours; } else { n.from.ours = q.inc; n.from.theirs = q.saw.theirs; }
        if (own && !m(M_DAY_AFTER) && !m(M_DAY_STAYS)) own->until = own->by = 0;
        x.pc = m(M_HOLD_AFTER) || m(M_DAY_AFTER) ? AFTER : LET_GO; lab("M%d commits %d %d", i, r[A], r[B]); emit(n); break; }
      case FROM: n.from.merges = q.saw.merges + 1; n.from.pulled = cfg.way[i] == PULL; if (n.from.pulled) n.from.theirs = q.inc; else n.from.ours = q.inc; keep(n, n.from.merges); x.pc = LET_GO; lab("M%d writes what was merged", i); emit(n); break;
      case AFTER: if (m(M_HOLD_AFTER)) hold(n, {1, (u8)src, q.inc, (u8)(q.saw.merges + 1), 0, 0}); else keep(n, q.saw.merges + 1); x.pc = LET_GO; lab("M%d holds it for good", i); emit(n); break;
      case LET_GO: let_go(n, q.saw.merges + 1); again(x); x.pc = END; lab("M%d lets go of earlier ones", i); emit(n); break;
      case EXPIRED: if (s.from.merges != q.saw.merges || s.t[dst].cur != q.base || s.t[src].cur != q.inc) { again(x); if (m(M_GIVE_UP)) n.bad = 1; lab("M%d: another process went on, again", i); } else { n.bad = 1; lab("M%d cannot merge", i); } emit(n); break;
      } }
    // a change, and back
    for (int t = 0; t < 2; t++) if (s.t[t].edits < cfg.edits[t] && s.t[t].cur + 1 < VERSIONS) { n = s; u8 v[2]; memcpy(v, s.t[t].v[s.t[t].cur], 2); v[t] = !s.t[t].edits; n.t[t].edits++; put(n, t, v); lab("tree %d: an edit, %d %d", t, v[A], v[B]); emit(n); }
    // a day passes for stopped processes: their holds go, when the tree's collector comes
    if (s.days) for (auto &h : s.h) if (h.on && h.until == 1) { n = s; n.days--; n.h[&h - s.h].until = 2; lab("the day of the hold of version %d of tree %d is over", h.ver, h.tree); emit(n); }
    for (int t = 0; t < 2; t++) { const Collector &q = s.c[t]; if (q.rounds >= cfg.rounds) continue; n = s; Collector &x = n.c[t];
      switch (q.pc) {
      case 0: if (t == BRANCH && m(M_DAY_AFTER)) keep(n, s.from.merges); if (t == BRANCH) let_go(n, s.from.merges); x.pc = 1; lab("C%d lets go of earlier ones", t); emit(n); break;
      case 1: for (auto &h : n.h) if (h.on && h.tree == t && h.until == 2) h = Hold(); x.pc = 2; lab("C%d lets go of those whose day is over", t); emit(n); break;
      case 2: n.t[t].floor = s.t[t].cur; x.pc = 3; lab("C%d raises the floor to %d", t, s.t[t].cur); emit(n); break;
      case 3: x.least = s.t[t].floor; for (auto &h : s.h) if (h.on && h.tree == t && h.ver < x.least) x.least = h.ver; for (int i = 0; i < MERGERS; i++) if (s.m[i].held && source(i) == t && s.m[i].inc < x.least) x.least = s.m[i].inc; x.pc = 4; lab("C%d: held is %d", t, x.least); emit(n); break;
      case 4: if (q.least > s.t[t].gone) n.t[t].gone = q.least; { u8 rounds = q.rounds + 1; memset(&x, 0, sizeof x); x.rounds = rounds; } lab("C%d collects below %d", t, q.least); emit(n); break;
      } }
  }
  const char *check(const S &s) { if (s.bad) return bm[s.bad]; if (m(V_REACH)) { bool all = s.from.merges > 2 && s.t[0].gone > 1 && s.t[1].gone > 1; return all ? bm[5] : nullptr; } return nullptr; }
  // Merged once more both ways, alone: both sides have the last edits.
  const char *terminal(const S &s) { if (m(V_REACH)) return nullptr; u8 side[2][2]; memcpy(side[0], s.t[0].v[s.t[0].cur], 2); memcpy(side[1], s.t[1].v[s.t[1].cur], 2);
    int tree = s.from.pulled && !m(M_ALWAYS_OURS) ? ORIGIN : BRANCH, ver = tree == ORIGIN ? s.from.theirs : s.from.ours; if (s.t[tree].gone > ver) return bm[1]; u8 b[2]; memcpy(b, s.t[tree].v[ver], 2);
    for (int dst = 0; dst < 2; dst++) for (int k = 0; k < 2; k++) { u8 in = side[!dst][k], st = side[dst][k]; if (in == b[k] || in == st) continue; if (st != b[k]) return bm[2]; side[dst][k] = in; }
    for (int k = 0; k < 2; k++) { if (side[0][k] != side[1][k]) return bm[4]; u8 wanted = s.t[k].edits == 1; if (side[0][k] != wanted) return bm[2]; } return nullptr; }
};
int main(int argc, char **argv) {
  std::vector<Cfg> all; auto add = [&](const char *name, int a, int b, int at_origin, int at_branch, int rounds, int crashes, int days) { Cfg k = {}; k.name = name; k.way[0] = a; k.way[1] = b; k.edits[0] = at_origin; k.edits[1] = at_branch; k.rounds = rounds; k.crashes = crashes; k.days = days; all.push_back(k); };
  add("one up, days pass", PUSH, 0, 1, 2, 2, 1, 2); add("one down, days pass", PULL, 0, 2, 1, 2, 1, 2);
  add("up and down", PUSH, PULL, 2, 1, 1, 0, 0); add("up and down, who die", PUSH, PULL, 1, 1, 1, 1, 1); add("up and up", PUSH, PUSH, 1, 2, 1, 0, 1); add("down and down", PULL, PULL, 2, 1, 1, 0, 1);
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_NO_MERGES, "merges are not compared"}, {M_TWO_COMMITS, "two commits"}, {M_NO_HOLD, "what both will have is not held"}, {M_HOLD_AFTER, "held after the commit"}, {M_DAY_AFTER, "the day is taken off after the commit"}, {M_DAY_STAYS, "the day stays"}, {M_NO_CHECK, "the hold is not looked at"}, {M_LET_GO_ALL, "this hold goes with the earlier ones"}, {M_ALWAYS_OURS, "what both had is the branch's"}, {M_NO_READER, "the source is not held"}, {M_GIVE_UP, "a reader that is too late gives up"}, {M_ONE_BASE, "the target is not compared"}};
    int alive = 0; for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M md(c); MC<M> mc; Res r = mc.run(md, 40000000); if (!r.viol.empty()) { dead = true; printf("%-45s [%s] KILLED: %s (%zu steps)\n", u.name, c.name.c_str(), r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; } } if (!dead) { printf("%-45s SURVIVES\n", u.name); alive++; } fflush(stdout); }
    printf("%d survivors\n", alive); return alive != 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"), ok = true; u64 states = 0; for (auto c : all) { if (reach) c.mut = V_REACH; M md(c); MC<M> mc; Res r = mc.run(md, 120000000); states += r.n; report(c.name.c_str(), r, !reach); ok &= reach ? true : r.complete; }
  printf("%llu states in all\n", (unsigned long long)states); return !ok;
}
