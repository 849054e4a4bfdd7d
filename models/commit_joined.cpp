// Steps of a journal commit that go to the server as one message (src/commit/journal.c): the
// prepares of all documents of a collection, and their releases. The server executes a message
// statement by statement, at any pace, next to those of other processes. The message may be lost
// after any statement, and it may continue when no process waits for its answer any more. The
// answer says how many statements found their document, not which. See README.md.
#include "mc.hpp"
enum { ND = 2, NC = 4, NP = 2, NM = 3 };
enum Mut : u32 {
  M_ANY = 1,          // some of them taken counts as all taken
  M_REV_ONLY = 2,     // the prepares compare the revision only
  M_WAITS = 4,        // a client that has some of them continues one by one, and keeps these
  // documents that were not taken are tried again under a fresh id, without an abort
  M_NO_ABORT = 8,
  M_DONE_ANYHOW = 16, // done, whatever the answer to the releases
  M_DONE_BLIND = 32,  // done, when there is no answer
  M_NO_INTENT = 64,   // the prepares do not check for another's intent
  M_GO_ON = 128,      // no answer to the prepares counts as all taken
  M_MISSING = 256, // a client that encounters the intent of a missing commit takes it for decided
  M_ANY_RELEASE = 512,  // the releases compare nothing
  M_FREE_RELEASE = 1024, // ... not even whose intent it is
  M_LEAVE_EARLY = 2048,  // the mark is left to the next owner before the releases were confirmed
  V_REACH = 1u << 30,
};
struct Script { int ord[ND]; int w; }; // w: the documents that it changes; it holds the others
struct Cfg { std::string name; Script sc[NP]; int plain, crashes, lates, leases, leaves; u32 mut; };
struct Doc { u8 it, rev, val; };
struct Com { u8 st, p, ap, gone; u8 rev[ND], val[ND]; };  // st: 1 pending, 2 committed, 3 aborted, 4 done
struct Msg { u8 on, c, rel, i, n, heard, lost; };  // heard: another process waits for the answer
struct Prc { u8 pc, dead, tries, c, m, i; u8 rev[ND], val[ND]; };
struct St { Doc d[ND]; Com c[NC]; Msg m[NM]; Prc p[NP]; u8 nc, crashes, lates, leases, plain, bad, left; };  // left: the mark of this commit plus one is owed
enum { READ, INSC, PREP, PREPW, DEC, REL, RELW, ONEREL, DON, ABT, STR, END };
static const char *bm[] = {"", "decided on something that was not held, or not as read", "applied without a decision", "applied twice", "done while a document is held", "a document is held for ever", "no process can go on", "a decided commit is missing in a document", "an undecided commit was applied", "a plain write was overwritten, and no process will tell", "REACHED"};
struct M {
  typedef St S; Cfg cfg; St last; M(const Cfg &c) : cfg(c) {}
  bool m(u32 x) const { return cfg.mut & x; }
  void init(S &s) { s.crashes = cfg.crashes; s.lates = cfg.lates; s.leases = cfg.leases; s.plain = cfg.plain; }
  static int slot(const S &s) { for (int i = 0; i < NM; i++) if (!s.m[i].on) return i; return -1; }
  void begin(Prc &q) const { u8 t = q.tries; q = Prc(); q.tries = t; }
  void end(Prc &q) const { u8 t = q.tries; q = Prc(); q.tries = t; q.pc = END; }
  // a document of a decided commit; the writes of a plain writer there are noted first
  void apply(S &n, int d, int c, bool told) const { Com &k = n.c[c]; Doc &x = n.d[d];
    if (!k.gone && k.st != 2 && k.st != 4) n.bad = 2;
    if (k.gone && k.st != 4) n.bad = 2;
    if (x.val != k.val[d] && !told && cfg.sc[k.p].w >> d & 1) n.bad = 9;
    if (cfg.sc[k.p].w >> d & 1) { if (k.ap >> d & 1) n.bad = 3; x.rev = 1 + c; x.val = 0; }
    k.ap |= 1 << d; x.it = 0; }
  // the next statement of a message
  void statement(S &n, int i) const { Msg &g = n.m[i]; const Com &k = n.c[g.c]; int d = cfg.sc[k.p].ord[g.i]; Doc &x = n.d[d];
    if (g.rel) { bool ours = x.it == g.c + 1, was = x.rev == k.rev[d] && x.val == k.val[d];
      if ((ours || m(M_FREE_RELEASE)) && (was || m(M_ANY_RELEASE))) { apply(n, d, g.c, false); g.n++; } }
    else if ((!x.it || m(M_NO_INTENT)) && x.rev == k.rev[d] && (x.val == k.val[d] || m(M_REV_ONLY))) { x.it = g.c + 1; g.n++; }
    if (++g.i == ND && !g.heard) g = Msg(); }
  void strip(S &n, int d, int c) const { if (n.d[d].it == c + 1) n.d[d].it = 0; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int p = 0; p < NP; p++) { const Prc &q = s.p[p]; int c = q.c - 1; if (q.dead || q.pc == END) continue;
      if (s.crashes && q.pc != READ) { n = s; n.crashes--; n.p[p] = Prc(); n.p[p].dead = 1; n.p[p].pc = END; if (q.m) { Msg &g = n.m[q.m - 1]; g.heard = 0; if (g.i == ND || g.lost) g = Msg(); } lab("P%d dies", p); emit(n); }
      n = s; Prc &x = n.p[p];
      switch (q.pc) {
      case READ: { int d = q.i; if (d == ND) { x.pc = INSC; x.i = 0; lab("P%d has read all", p); emit(n); break; } if (s.d[d].it) break; x.rev[d] = s.d[d].rev; x.val[d] = s.d[d].val; x.i++; lab("P%d reads doc%d (rev %d val %d)", p, d, s.d[d].rev, s.d[d].val); emit(n); break; }
      case INSC: { if (s.nc == NC) { end(x); lab("P%d gives up (bound)", p); emit(n); break; } Com &k = n.c[s.nc]; k.st = 1; k.p = p; memcpy(k.rev, q.rev, ND); memcpy(k.val, q.val, ND); x.c = ++n.nc; x.pc = PREP; x.i = 0; lab("P%d inserts C%d", p, s.nc); emit(n); break; }
      case PREP: if (!q.tries && !q.i) { int i = slot(s); if (i < 0) break; n.m[i] = Msg(); n.m[i].on = n.m[i].heard = 1; n.m[i].c = c; x.m = i + 1; x.pc = PREPW; lab("P%d sends its prepares of C%d", p, c); emit(n); break; }
        { int d = q.i == ND ? -1 : q.i; if (d < 0) { x.pc = DEC; lab("P%d has prepared all", p); emit(n); break; }  // one by one, in order
          const Doc &y = s.d[d]; if (y.it == c + 1) { x.i++; lab("P%d has doc%d", p, d); emit(n); break; } if (y.it) break;  // waits, or completes it
          if (y.rev != q.rev[d] || y.val != q.val[d]) { x.pc = ABT; x.i = 0; lab("P%d: doc%d is not as it was", p, d); emit(n); break; }
          n.d[d].it = q.c; x.i++; lab("P%d prepares doc%d", p, d); emit(n); break; }
      case PREPW: { Msg &g = n.m[q.m - 1]; const Msg &o = s.m[q.m - 1];
        if (o.i == ND) { bool all = o.n == ND || (m(M_ANY) && o.n); g = Msg(); x.m = 0; x.i = 0; x.pc = all ? DEC : m(M_WAITS) ? PREP : ABT; if (m(M_WAITS) && !all) x.tries++; if (m(M_NO_ABORT) && !all) { x.tries++; begin(x); } lab("P%d hears that %d were taken", p, o.n); emit(n); }
        if (s.lates || o.lost) { n = s; if (!o.lost) n.lates--; Prc &y = n.p[p]; n.m[q.m - 1].heard = 0; if (o.lost || o.i == ND) n.m[q.m - 1] = Msg(); y.m = 0; y.i = 0; y.pc = m(M_GO_ON) ? DEC : ABT; lab("P%d has no answer of its prepares", p); emit(n); } break; }
      case DEC: { if (s.c[c].st != 1) { x.pc = ABT; x.i = 0; lab("P%d cannot decide C%d", p, c); emit(n); break; }
        for (int d = 0; d < ND; d++) if (s.d[d].it != q.c || s.d[d].rev != q.rev[d] || (s.d[d].val != q.val[d] && !cfg.plain)) n.bad = 1;
        if (m(M_REV_ONLY)) for (int d = 0; d < ND; d++) if (s.d[d].val != q.val[d] && s.plain == cfg.plain - 1 && !(s.c[c].gone)) n.bad = 1;
        n.c[c].st = 2; x.pc = REL; lab("P%d decides C%d", p, c); emit(n); break; }
      case REL: { if (m(M_LEAVE_EARLY) && !s.left) { n.left = q.c; lab("P%d leaves the mark of C%d before the releases", p, c); emit(n); n = s; } int i = slot(s); if (i < 0) break; n.m[i] = Msg(); n.m[i].on = n.m[i].heard = n.m[i].rel = 1; n.m[i].c = c; x.m = i + 1; x.pc = RELW; lab("P%d sends its releases of C%d", p, c); emit(n); break; }
      case RELW: { Msg &g = n.m[q.m - 1]; const Msg &o = s.m[q.m - 1];
        if (o.i == ND) { g = Msg(); x.m = 0; x.i = 0; x.pc = o.n == ND || m(M_DONE_ANYHOW) ? DON : ONEREL; lab("P%d hears that %d were released", p, o.n); emit(n); }
        if (s.lates || o.lost) { n = s; if (!o.lost) n.lates--; Prc &y = n.p[p]; n.m[q.m - 1].heard = 0; if (o.lost || o.i == ND) n.m[q.m - 1] = Msg(); y.m = 0; y.i = 0; y.pc = m(M_DONE_BLIND) ? DON : ONEREL; lab("P%d has no answer of its releases", p); emit(n); } break; }
      case ONEREL: { int d = q.i; if (d == ND) { x.pc = DON; lab("P%d has released all", p); emit(n); break; } if (s.d[d].it == q.c) apply(n, d, c, true); x.i++; lab("P%d releases doc%d of C%d", p, d, c); emit(n); break; }
      case DON: if (s.c[c].st == 2) { n.c[c].st = 4; } end(x); lab("P%d: C%d is done", p, c); emit(n);
        if (cfg.leaves && !s.left) { n = s; n.left = q.c; end(n.p[p]); lab("P%d leaves the mark of C%d", p, c); emit(n); } break;
      case ABT: if (s.c[c].st == 1) n.c[c].st = 3; x.pc = STR; x.i = 0; lab("P%d aborts C%d", p, c); emit(n); break;
      case STR: { int d = q.i; if (d == ND) { x.tries = q.tries < 2 ? q.tries + 1 : 2; begin(x); lab("P%d tries again", p); emit(n); break; } strip(n, d, c); x.i++; lab("P%d strips doc%d of C%d", p, d, c); emit(n); break; }
      } }
    for (int i = 0; i < NM; i++) { const Msg &g = s.m[i]; if (!g.on || g.lost || g.i == ND) continue;
      n = s; statement(n, i); lab("the server does statement %d of C%d's %s", g.i, g.c, g.rel ? "releases" : "prepares"); emit(n);
      if (s.lates) { n = s; n.lates--; if (g.heard) n.m[i].lost = 1; else n.m[i] = Msg(); lab("the rest of C%d's message is lost", g.c); emit(n); } }
    for (int d = 0; d < ND; d++) { const Doc &y = s.d[d];
      if (s.plain) { n = s; n.plain--; n.d[d].val = 1; lab("a plain writer changes doc%d", d); emit(n); }
      if (!y.it) continue;
      int c = y.it - 1; const Com &k = s.c[c]; n = s;
      if (k.gone) { if (m(M_MISSING)) { if (k.st != 4) n.bad = 2; n.d[d].it = 0; lab("H takes C%d, which is gone, for decided", c); } else { strip(n, d, c); lab("H strips doc%d of C%d, which is gone", d, c); } emit(n); }
      else if (k.st == 3) { strip(n, d, c); lab("H strips doc%d of C%d", d, c); emit(n); }
      else if (k.st == 2 || k.st == 4) { apply(n, d, c, true); lab("H releases doc%d of C%d", d, c); emit(n); }
      else if (s.p[k.p].dead || s.leases) { if (!s.p[k.p].dead) n.leases--; n.c[c].st = 3; lab("H aborts C%d", c); emit(n); } }
    // the mark that was left: a statement of a later message, which may also be lost
    if (s.left) { n = s; n.left = 0; if (s.c[s.left - 1].st == 2) n.c[s.left - 1].st = 4; lab("the mark of C%d lands", s.left - 1); emit(n);
      if (s.lates) { n = s; n.lates--; n.left = 0; lab("the mark of C%d is lost", s.left - 1); emit(n); } }
    for (int c = 0; c < s.nc; c++) { const Com &k = s.c[c]; if (!k.gone && (k.st == 3 || k.st == 4)) { n = s; n.c[c].gone = 1; if (k.st == 4) for (int d = 0; d < ND; d++) if (s.d[d].it == c + 1) n.bad = 4; lab("C%d is purged", c); emit(n); } }
  }
  const char *check(const S &s) { if (m(V_REACH)) { int n = 0; for (int c = 0; c < s.nc; c++) n += s.c[c].st == 4 && s.c[c].ap == 3; return n == NP && s.p[0].pc == END && s.p[1].pc == END && !s.p[0].tries ? bm[10] : nullptr; }
    return s.bad ? bm[s.bad] : nullptr; }
  const char *terminal(const S &s) { if (m(V_REACH)) return nullptr;
    for (int p = 0; p < NP; p++) if (!s.p[p].dead && s.p[p].pc != END) return bm[6];
    for (int d = 0; d < ND; d++) if (s.d[d].it) return bm[5];
    for (int c = 0; c < s.nc; c++) { const Com &k = s.c[c]; if (k.st == 4 && k.ap != 3) return bm[7]; if (k.st == 3 && k.ap) return bm[8]; }
    return nullptr; }
};
int main(int argc, char **argv) {
  std::vector<Cfg> all; const char *wn[] = {"", "doc0", "doc1", "both"};
  for (int o = 0; o < 2; o++) for (int w = 1; w <= 3; w++) for (int pl = 0; pl < 2; pl++) { Cfg k = {}; k.name = std::string(o ? "the other order" : "one order") + ", the second changes " + wn[w] + (pl ? ", a plain writer" : ""); k.sc[0] = {{0, 1}, 3}; k.sc[1] = {{o, 1 - o}, w}; k.plain = pl; k.lates = 1; k.crashes = 1; all.push_back(k); if (pl) continue; k.crashes = 0; k.leases = 1; k.name += ", a lease that is over"; all.push_back(k); k.leases = 0; k.lates = 2; k.name = k.name.substr(0, k.name.rfind(',')) + ", two lost answers"; all.push_back(k); }
  for (int o = 0; o < 2; o++) { Cfg k = {}; k.name = std::string(o ? "the other order" : "one order") + ", marks are left"; k.sc[0] = {{0, 1}, 3}; k.sc[1] = {{o, 1 - o}, 3}; k.crashes = k.lates = k.leaves = 1; all.push_back(k); }
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_ANY, "some taken is all taken"}, {M_REV_ONLY, "the revision only is compared"}, {M_WAITS, "keeps what it has, and waits"}, {M_NO_ABORT, "tries again without an abort"}, {M_DONE_ANYHOW, "done whatever the answer"}, {M_DONE_BLIND, "done without an answer"}, {M_NO_INTENT, "another's intent is not seen"}, {M_GO_ON, "no answer is an answer"}, {M_MISSING, "a commit that is gone was decided"}, {M_ANY_RELEASE, "the releases compare nothing"}, {M_FREE_RELEASE, "the releases do not look whose it is"}, {M_LEAVE_EARLY, "the mark is left before the releases"}};
    int alive = 0; for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M md(c); MC<M> mc; Res r = mc.run(md, 40000000); if (!r.viol.empty()) { dead = true; printf("%-40s [%s] KILLED: %s (%zu steps)\n", u.name, c.name.c_str(), r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; } } if (!dead) { printf("%-40s SURVIVES\n", u.name); alive++; } fflush(stdout); }
    printf("%d survivors\n", alive); return alive != 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"), ok = true; u64 states = 0;
  for (auto c : all) { if (reach) c.mut = V_REACH; M md(c); MC<M> mc; Res r = mc.run(md, 150000000); states += r.n; report(c.name.c_str(), r, !reach); ok &= reach ? !r.viol.empty() : r.complete && r.viol.empty(); }
  printf("%llu states in all\n", (unsigned long long)states); return !ok;
}
