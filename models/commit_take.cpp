// Commits next to plain writers, and next to each other (src/commit). The model covers the
// comparisons of a write (commit_entry.c CE1, CE2; journal.c), documents that are taken before the function
// runs (journal.c CT1-CT5), and reads that hold stubs (read_many.c CR3). A document is (rev, val): a
// plain writer changes val alone, or wipes rev and intent. See README.md.
#include "mc.hpp"
enum { ND = 3, NC = 6, NP = 4, FREE = 1 };
// TAKER: native, and takes its documents first after a conflict; ONE: fast, and takes its document
// first then
enum Kind { COMMIT, NATIVE, TAKER, FAST, ONE, LOOK, P_SET,
            P_BACK, P_REPLACE, P_REMOVE, P_INSERT };
enum Mut : u32 {
  M_REV_NATIVE = 1,    // the native form compares the revision only
  M_REV_FAST = 2,      // the fast path, too
  M_VALUE_FAST = 4,    // ... or the value only
  M_REV_PREPARE = 8,   // the journal's prepare
  M_REV_REQUIRE = 16,  // the read of a document that is only required
  M_NO_STILL = 32,     // CT4: no read of the documents that were taken first, after the function
  M_NO_WAS = 64,       // the release does not compare
  M_ANY_ORDER = 128,   // CT1: taken in the order of the function
  M_WAITS = 256,       // CT2: a client that holds documents waits
  M_GONE_ENDS = 512,   // CT5: a document that is gone ends the try, and stays on the list
  M_FORGETS = 1024,    // only the additional documents of the last try are taken
  M_OLD_READS = 2048,  // the function of a taking try uses the reads of an earlier try
  M_NEW_FREE = 4096,   // the additional documents of the function are written without a comparison
  M_DROPS_NOT = 8192,  // a try that fails is not undone
  M_LOOK_FREE = 16384, // CR3: the missing documents of a read are not held
  // CT6: the last step does not compare the taken documents, except for the intent
  M_HELD_FREE = 32768,
  M_STATE_FREE = 65536,  // CT6: ... nor whether the commit is pending
  M_ONE_FREE = 1 << 17,    // CT7: the last write of a commit of one document compares the intent only
  M_ONE_DECIDES = 1 << 18, // CT7: it decides and releases like one of several
  V_REACH = 1u << 30,
};
// dep: reads `extra`, too, if doc dep-1 differs from the start
struct Script { int kind; int n, ord[ND]; int w, ins, rm; int dep, extra; };
struct Cfg { std::string name; std::vector<Script> sc; int ex[ND]; int crashes, lates; bool aborts, purge; u32 mut; };
struct Doc { u8 ex, stub, it, rev, val; };
struct Com { u8 st, p, dead, dec, mask, ins, rm, ap, rep, dirty; u8 brev[ND], bval[ND]; };  // st: 0 missing 1 pending 2 committed 3 aborted 4 done
struct Prc { u8 pc, i, c, tr, taking, names, taken, want, seen, hold, why, res, dead, ever; u8 rex[ND], rrev[ND], rval[ND]; };
struct Zmb { u8 on, c, d, cmp, rev, val; };
enum { READ, INSC, TAKE, FUN, PREP, STILL, REQ, DEC, REL, DON, ABT, STR, WRITE, STEP, LAST, AGAIN, END };
enum { W_NAME = 1, W_ABORT = 2, W_PLAIN = 4, W_COMES = 8, W_LATE = 16 };
struct St { Doc d[ND]; Com c[NC]; Prc p[NP]; Zmb z; u8 nc, nrev, crashes, lates, bad; };
static const char *bm[] = {"", "a write over something else than was read, silently", "a try that took first failed for no reason of its own", "decided on something else than was read",
  "a decided commit is missing in a document", "an undecided commit was applied", "a document is held for ever", "no process can go on", "a commit was applied twice", "REACHED (all processes are through)", "reported a state that never existed"};
struct M {
  typedef St S; Cfg cfg; St last; int np; bool plain = false;
  M(const Cfg &c) : cfg(c) { np = (int)c.sc.size(); for (auto &s : c.sc) plain |= s.kind >= P_SET; }
  bool m(u32 x) const { return cfg.mut & x; }
  void init(S &s) { for (int d = 0; d < ND; d++) s.d[d].ex = cfg.ex[d]; s.crashes = cfg.crashes; s.lates = cfg.lates; s.nrev = 0; for (int p = 0; p < np; p++) begin(s, p); }
  void begin(S &n, int p) const { Prc &q = n.p[p]; Prc k = q; q = Prc(); q.tr = k.tr; q.names = k.names; q.dead = k.dead; q.ever = k.ever | (q.tr >= FREE ? k.names : 0); q.taking = (cfg.sc[p].kind == COMMIT || cfg.sc[p].kind == TAKER || cfg.sc[p].kind == ONE) && q.tr >= FREE && q.names; q.pc = q.taking ? INSC : READ; if (m(M_OLD_READS)) { memcpy(q.rex, k.rex, ND); memcpy(q.rrev, k.rrev, ND); memcpy(q.rval, k.rval, ND); } if (cfg.sc[p].kind >= P_SET) q.pc = WRITE; }
  static bool same(const Doc &x, const Prc &q, int d) { return x.ex && !x.stub ? q.rex[d] && x.rev == q.rrev[d] && x.val == q.rval[d] : !q.rex[d]; }
  static bool sameRev(const Doc &x, const Prc &q, int d) { return x.ex && !x.stub ? q.rex[d] && x.rev == q.rrev[d] : !q.rex[d]; }
  static void note(Prc &q, const Doc &x, int d) { q.seen |= 1 << d; q.rex[d] = x.ex && !x.stub; q.rrev[d] = x.rev; q.rval[d] = x.val; }
  // the documents of the function, in its order; -1: no more
  int next(const St &s, const Prc &q, const Script &sc) const { for (int i = 0; i < sc.n; i++) { int d = sc.ord[i]; if (!(q.seen >> d & 1)) { if (sc.dep && (sc.extra >> d & 1)) { int e = sc.dep - 1; if (!(q.rval[e] || q.rrev[e] || q.rex[e] != cfg.ex[e])) continue; } return d; } } (void)s; return -1; }
  int writes(const Prc &q, const Script &sc) const { int w = 0; for (int d = 0; d < ND; d++) if (q.seen >> d & 1) { if (q.rex[d] ? (sc.w | sc.rm) >> d & 1 : sc.ins >> d & 1) w |= 1 << d; } return w; }
  void put(S &n, int d, int p, const Script &sc, bool was) const { Doc &x = n.d[d]; if (was && (sc.rm >> d & 1)) { x = Doc(); return; } x.ex = 1; x.stub = 0; x.it = 0; x.rev = ++n.nrev; x.val = 10 + p; }
  void fail(S &n, int p, int why) const { Prc &q = n.p[p]; q.why |= why; q.pc = q.c ? ABT : AGAIN; q.i = 0; }
  void release(S &n, int d, int c) const {
    Doc &x = n.d[d]; Com &k = n.c[c]; if (!x.ex || x.it != c + 1) return;
    if (!k.dec) n.bad = 5;
    const Script &sc = cfg.sc[k.p]; bool stub = x.stub;
    if (!stub && (x.rev != k.brev[d] || x.val != k.bval[d])) { if (m(M_NO_WAS) || cfg.sc[k.p].kind == ONE) { n.bad = 1; return; } k.rep = 1; }
    if (k.mask >> d & 1) { if (k.ap >> d & 1) n.bad = 8; k.ap |= 1 << d; put(n, d, k.p, sc, !stub); } else if (stub) x = Doc(); else x.it = 0; }
  void strip(S &n, int d, int c) const { Doc &x = n.d[d]; if (!x.ex || x.it != c + 1) return; if (x.stub) x = Doc(); else x.it = 0; }
  void end(S &n, int p) const { int tr = n.p[p].tr; bool dead = n.p[p].dead; n.p[p] = Prc(); n.p[p].pc = END; n.p[p].tr = tr; n.p[p].dead = dead; n.p[p].res = 1; }
  void one(St &n, int d, int c, int rev, int val) const { Com &k = n.c[c]; if (n.d[d].rev != rev || n.d[d].val != val) n.bad = 1; if (k.ap >> d & 1 || (n.p[k.p].c != c + 1 && !n.p[k.p].dead && n.p[k.p].res != 2)) n.bad = 8; k.dec = 1; k.mask = k.ap = 1 << d; put(n, d, k.p, cfg.sc[k.p], true); }
  int lowest(int mask) const { for (int d = 0; d < ND; d++) if (mask >> d & 1) return d; return -1; }
  int first(int p, int mask) const { if (!m(M_ANY_ORDER)) return lowest(mask); for (int i = 0; i < cfg.sc[p].n; i++) if (mask >> cfg.sc[p].ord[i] & 1) return cfg.sc[p].ord[i]; return -1; }
  bool pending(const S &s, int d) const { return s.d[d].ex && s.d[d].it && s.c[s.d[d].it - 1].st == 1; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int p = 0; p < np; p++) { const Prc &q = s.p[p]; const Script &sc = cfg.sc[p]; int c = q.c - 1; if (q.dead || q.pc == END) continue;
      if (s.crashes && sc.kind < P_SET) { n = s; n.crashes--; n.p[p].dead = 1; if (q.c) n.c[c].dead = 1; lab("P%d dies", p); emit(n); }
      n = s; Prc &x = n.p[p];
      switch (q.pc) {
      case READ: { int d = next(s, q, sc); if (d < 0) { int w = writes(q, sc); x.pc = sc.kind == NATIVE || sc.kind == TAKER || sc.kind == FAST || sc.kind == ONE ? WRITE : INSC; x.want = w; lab("P%d knows what it wants to write (%x)", p, w); emit(n); break; }
        // waits, or completes the other commit (below)
        const Doc &y = s.d[d]; if (y.ex && y.it) break;
        note(x, y, d); x.names |= 1 << d; lab("P%d reads doc%d (%s rev %d val %d)", p, d, y.ex ? "there," : "missing,", y.rev, y.val); emit(n); break; }
      case INSC: { if (s.nc >= NC) { end(n, p); x.res = 2; lab("P%d gives up (bound)", p); emit(n); break; }
        n.c[s.nc] = Com(); n.c[s.nc].st = 1; n.c[s.nc].p = p; x.c = s.nc + 1; n.nc++; x.pc = q.taking ? TAKE : PREP; x.hold = 0; x.i = q.taking ? q.names : 0; lab("P%d inserts C%d%s", p, s.nc, q.taking ? " to take first" : ""); emit(n); break; }
      case TAKE: { int d = first(p, q.i); if (d < 0) { x.pc = FUN; lab("P%d has what it takes", p); emit(n); break; }
        const Doc &y = s.d[d]; if (y.ex && y.it) break;  // waits
        x.i &= ~(1 << d);
        if (!y.ex) { if (m(M_GONE_ENDS)) { fail(n, p, 0); lab("P%d: doc%d is gone, the try ends", p, d); } else { x.names &= ~(1 << d); x.ever &= ~(1 << d); lab("P%d: doc%d is gone", p, d); } emit(n); break; }
        n.d[d].it = q.c; x.taken |= 1 << d; if (!m(M_OLD_READS)) { x.rex[d] = 1; x.rrev[d] = y.rev; x.rval[d] = y.val; } lab("P%d takes doc%d (rev %d val %d)", p, d, y.rev, y.val); emit(n);
        if (s.lates && !s.z.on) { n = s; n.lates--; n.z = Zmb{1, (u8)c, (u8)d, 0, 0, 0}; fail(n, p, W_LATE); lab("P%d takes doc%d, no answer", p, d); emit(n); } break; }
      case FUN: { int d = next(s, q, sc); if (d < 0) { x.want = writes(q, sc); x.pc = sc.kind == TAKER ? STEP : sc.kind == ONE && q.taken && !m(M_ONE_DECIDES) ? LAST : PREP; lab("P%d's function is at its end (writes %x)", p, x.want); emit(n); break; }
        if (q.taken >> d & 1) { x.seen |= 1 << d; lab("P%d's function reads doc%d as taken", p, d); emit(n); break; }
        const Doc &y = s.d[d]; if (y.ex && y.it && !pending(s, d)) break;  // completes it
        if (y.ex && y.it) { if (m(M_WAITS)) break; x.names |= 1 << d; fail(n, p, W_NAME); lab("P%d wants doc%d, which is held", p, d); emit(n); break; }
        note(x, y, d); if (y.ex) x.names |= 1 << d; lab("P%d's function reads doc%d besides (%s)", p, d, y.ex ? "there" : "missing"); emit(n); break; }
      case PREP: { int need = q.want | (sc.kind == LOOK && !m(M_LOOK_FREE) ? holds(q) : 0); int d = lowest(need & ~(q.taken | q.hold)); if (d < 0) { x.pc = q.taking && !m(M_NO_STILL) ? STILL : REQ; x.i = 0; lab("P%d has prepared everything", p); emit(n); break; }
        const Doc &y = s.d[d]; int add = q.taking && q.rex[d] ? W_NAME : 0;
        if (y.ex && y.it) { if (!pending(s, d)) break; if (q.taking && !m(M_WAITS)) { x.names |= 1 << d; fail(n, p, y.stub || !q.rex[d] ? W_COMES : W_NAME); lab("P%d: doc%d is held", p, d); emit(n); } break; }
        if (m(M_NEW_FREE) && q.taking ? !y.ex != !q.rex[d] : m(M_REV_PREPARE) ? !sameRev(y, q, d) : !same(y, q, d)) { fail(n, p, (!y.ex || !q.rex[d] ? W_COMES : 0) | (q.taking ? add : W_NAME)); lab("P%d: doc%d is not as it was", p, d); emit(n); break; }
        if (q.rex[d]) n.d[d].it = q.c; else { n.d[d] = Doc(); n.d[d].ex = n.d[d].stub = 1; n.d[d].it = q.c; } x.hold |= 1 << d; lab("P%d prepares doc%d", p, d); emit(n);
        if (s.lates && !s.z.on) { n = s; n.lates--; n.z = Zmb{(u8)(q.rex[d] ? 2 : 3), (u8)c, (u8)d, 1, q.rrev[d], q.rval[d]}; fail(n, p, W_LATE); lab("P%d prepares doc%d, no answer", p, d); emit(n); } break; }
      case STILL: { int left = q.taken & ~q.i; int d = lowest(left); if (d < 0) { x.pc = REQ; lab("P%d found all as taken", p); emit(n); break; }
        const Doc &y = s.d[d]; if (!y.ex || y.it != q.c || !same(y, q, d)) { fail(n, p, y.ex && y.it == q.c ? W_PLAIN : s.c[c].st == 1 ? W_PLAIN : W_ABORT); lab("P%d: doc%d was changed while it was held", p, d); } else { x.i |= 1 << d; lab("P%d: doc%d is as taken", p, d); } emit(n); break; }
      case REQ: { int d = lowest(q.seen & ~(q.taken | q.hold) & ~q.i); if (q.pc == REQ && x.pc == REQ && !(q.i & 128)) { x.i = 128; d = lowest(q.seen & ~(q.taken | q.hold)); }
        if (d < 0) { x.pc = DEC; lab("P%d requires nothing more", p); emit(n); break; }
        const Doc &y = s.d[d]; x.i |= 1 << d;
        if (y.ex && y.it) { if (!pending(s, d)) break; if (q.taking && q.rex[d]) x.names |= 1 << d; fail(n, p, y.stub || !q.rex[d] ? W_COMES : W_NAME); lab("P%d: doc%d, required, is held", p, d); emit(n); break; }
        if (m(M_REV_REQUIRE) ? !sameRev(y, q, d) : !same(y, q, d)) { fail(n, p, (!y.ex || !q.rex[d] ? W_COMES : 0) | W_NAME); lab("P%d: doc%d, required, is not as it was", p, d); emit(n); break; }
        if (!same(y, q, d)) n.bad = 3;
        if (!plain) for (int e = 0; e < ND; e++) if ((q.taken | q.hold) >> e & 1 && s.c[c].st == 1 && !(s.d[e].ex && s.d[e].it == q.c && (s.d[e].stub || same(s.d[e], q, e)))) n.bad = 3;
        lab("P%d: doc%d is as required", p, d); emit(n); break; }
      case DEC: if (s.c[c].st != 1) { fail(n, p, W_ABORT); lab("P%d: C%d cannot be decided", p, c); emit(n); break; }
        { Com &k = n.c[c]; k.st = 2; k.dec = 1; k.mask = q.want; memcpy(k.brev, q.rrev, ND); memcpy(k.bval, q.rval, ND);
          for (int e = 0; e < ND; e++) if ((q.taken | q.hold) >> e & 1) { const Doc &y = s.d[e]; bool ours = y.ex && y.it == q.c; if (!ours || (!y.stub && !same(y, q, e))) { k.dirty = 1; if (!plain) n.bad = 3; if (ours && !q.taking && m(M_REV_PREPARE)) n.bad = 1; if (ours && q.taking && (m(M_NO_STILL) || m(M_NEW_FREE))) n.bad = 1; } }
          if (sc.kind == LOOK && m(M_LOOK_FREE)) for (int e = 0; e < ND; e++) if (q.seen >> e & 1 && !same(s.d[e], q, e)) n.bad = 10;
          x.pc = REL; x.i = 0; lab("P%d decides C%d", p, c); emit(n); } break;
      case REL: { int d = lowest((q.taken | q.hold) & ~q.i); if (d < 0) { x.pc = DON; lab("P%d has released all", p); emit(n); break; } x.i |= 1 << d; release(n, d, c); lab("P%d releases doc%d of C%d", p, d, c); emit(n); break; }
      case DON: if (s.c[c].st == 2 || (s.c[c].st == 1 && s.c[c].dec)) n.c[c].st = 4; end(n, p); lab("P%d: C%d is done", p, c); emit(n); break;
      case ABT: if (m(M_DROPS_NOT)) { x.pc = AGAIN; lab("P%d leaves C%d as it is", p, c); emit(n); break; }
        if (s.c[c].st == 4) { end(n, p); lab("P%d finds that C%d is done", p, c); emit(n); break; }
        if (s.c[c].st == 1) n.c[c].st = 3; x.pc = STR; x.i = 0; lab("P%d aborts C%d", p, c); emit(n); break;
      case STR: { int d = lowest((q.taken | q.hold) & ~q.i); if (d < 0) { x.pc = AGAIN; lab("P%d gave back all", p); emit(n); break; } x.i |= 1 << d; if (s.c[c].st == 3 || !s.c[c].st) strip(n, d, c); lab("P%d strips doc%d", p, d); emit(n); break; }
      case STEP: { int why = s.c[c].st == 1 || m(M_STATE_FREE) ? 0 : W_ABORT;  // CT6: everything is compared and changed at once
        for (int e = 0; e < ND; e++) { const Doc &y = s.d[e];
          if (q.taken >> e & 1) { if (!y.ex || y.it != q.c || (!m(M_HELD_FREE) && !same(y, q, e))) why |= s.c[c].st == 1 ? W_PLAIN : W_ABORT; }
          else if (q.seen >> e & 1 && (!same(y, q, e) || (y.ex && y.it))) { why |= y.stub || !y.ex || !q.rex[e] ? W_COMES : W_NAME; if (q.rex[e]) x.names |= 1 << e; } }
        if (why) { fail(n, p, why); lab("P%d: C%d is refused by the store", p, c); emit(n); break; }
        if (s.c[c].st != 1) n.bad = 5;
        Com &k = n.c[c]; k.st = 4; k.dec = 1; k.mask = k.ap = q.want;
        for (int e = 0; e < ND; e++) { if ((q.seen | q.taken) >> e & 1 && !same(s.d[e], q, e)) n.bad = 1; if (q.want >> e & 1) put(n, e, p, sc, q.rex[e]); else if (q.taken >> e & 1) n.d[e].it = 0; }
        if (s.lates) { S k = n; n.lates--; n.p[p].pc = ABT; n.p[p].i = 0; lab("P%d does C%d in one step, no answer", p, c); emit(n); n = s; n.lates--; fail(n, p, W_LATE); lab("P%d's step is lost", p); emit(n); n = k; }
        end(n, p); lab("P%d does C%d in one step", p, c); emit(n); break; }
      // CT7: the held document is compared and changed by one write
      case LAST: { int d = lowest(q.taken); const Doc &y = s.d[d];
        if (y.ex && !y.it && y.rev && y.val == 10 + p && s.c[c].ap) { x.pc = DON; lab("P%d finds its write of doc%d", p, d); emit(n); break; }
        if (!y.ex || y.it != q.c || (!m(M_ONE_FREE) && !same(y, q, d))) { if (q.hold && !(y.ex && y.it == q.c)) { end(n, p); x.res = 2; lab("P%d does not know whether doc%d was written", p, d); } else { fail(n, p, s.c[c].st == 1 ? W_PLAIN : W_ABORT); lab("P%d: doc%d is not as it is held", p, d); } emit(n); break; }
        one(n, d, c, q.rrev[d], q.rval[d]); x.pc = DON; lab("P%d writes doc%d, which it holds", p, d); emit(n);
        if (s.lates && !s.z.on) { n = s; n.lates--; n.p[p].hold = 1; n.z = Zmb{5, (u8)c, (u8)d, 1, q.rrev[d], q.rval[d]}; lab("P%d writes doc%d, which it holds, no answer", p, d); emit(n); } break; }
      case AGAIN: { if (q.taking && !(q.why & (W_ABORT | (plain ? W_PLAIN : 0) | W_COMES | W_LATE)) && !(q.why & W_NAME && q.names & ~q.ever)) { n.bad = 2; emit(n); break; }
        int names = m(M_FORGETS) && q.taking ? q.names & ~q.taken : q.names; x.names = names; x.tr++; if (sc.kind == LOOK) x.tr = 0; begin(n, p); lab("P%d tries again (knows of %x)", p, names); emit(n); break; }
      case WRITE: { int d = lowest(sc.w | sc.ins | sc.rm); Doc &y = n.d[d];
        if (sc.kind == NATIVE || sc.kind == TAKER) { bool ok = true; for (int e = 0; e < ND; e++) if (q.seen >> e & 1) ok &= m(M_REV_NATIVE) ? sameRev(s.d[e], q, e) && !(s.d[e].ex && s.d[e].it) : same(s.d[e], q, e) && !(s.d[e].ex && s.d[e].it);
          if (!ok && sc.kind == TAKER) { x.pc = AGAIN; lab("P%d: native: conflict", p); emit(n); break; }
          if (!ok) { x.seen = 0; x.pc = READ; x.tr = 0; lab("P%d: native: conflict", p); if (q.seen) { emit(n); } break; }
          for (int e = 0; e < ND; e++) { if (q.seen >> e & 1 && !same(s.d[e], q, e)) n.bad = 1; if (q.want >> e & 1) put(n, e, p, sc, q.rex[e]); } end(n, p); lab("P%d: native", p); emit(n); break; }
        if (sc.kind == FAST || sc.kind == ONE) { bool can = !(s.d[d].ex && s.d[d].it) && (m(M_REV_FAST) ? sameRev(s.d[d], q, d) : m(M_VALUE_FAST) ? s.d[d].ex == q.rex[d] && s.d[d].val == q.rval[d] : same(s.d[d], q, d));
          if (!q.want) { end(n, p); lab("P%d: nothing to do", p); emit(n); break; }
          if (s.lates && !s.z.on && q.rex[d]) { S k = n; n.lates--; n.z = Zmb{4, (u8)p, (u8)d, 1, q.rrev[d], q.rval[d]}; lab("P%d writes doc%d, no answer: sends it again", p, d); emit(n); n = k; }
          if (s.d[d].ex && s.d[d].it) break;
          if (!can) { if (s.d[d].ex && s.d[d].val == 10 + p) end(n, p); else if (sc.kind == ONE && s.z.on != 4) x.pc = AGAIN; else { x.seen = 0; x.pc = READ; if (s.z.on == 4 && s.z.c == p) { end(n, p); } } lab("P%d: fast: it is not as it was", p); emit(n); break; }
          if (!same(s.d[d], q, d)) n.bad = 1;
          put(n, d, p, sc, q.rex[d]); end(n, p); lab("P%d: fast write of doc%d", p, d); emit(n); break; }
        // plain writers
        if (sc.kind == P_SET || sc.kind == P_BACK) { if (y.ex) y.val = sc.kind == P_SET ? 1 + p : 0; lab("plain writer P%d: val %d into doc%d", p, y.val, d); }
        if (sc.kind == P_REPLACE) { if (y.ex) { y = Doc(); y.ex = 1; y.val = 1 + p; } lab("plain writer P%d replaces doc%d", p, d); }
        if (sc.kind == P_REMOVE) { y = Doc(); lab("plain writer P%d removes doc%d", p, d); }
        if (sc.kind == P_INSERT) { if (!y.ex) { y = Doc(); y.ex = 1; y.val = 1 + p; } lab("plain writer P%d inserts doc%d", p, d); }
        end(n, p); emit(n); break; }
      } }
    for (int d = 0; d < ND; d++) if (s.d[d].ex && s.d[d].it) { int c = s.d[d].it - 1, st = s.c[c].st; if (st == 1) continue; n = s; if (st == 2 || st == 4) release(n, d, c); else strip(n, d, c); lab("another process %s doc%d of C%d", st == 2 || st == 4 ? "releases" : "strips", d, c); emit(n); }
    // its owner continued
    for (int c = 0; c < s.nc; c++) { const Com &k = s.c[c]; bool left = s.p[k.p].c != c + 1;
      if (k.st == 1 && (k.dead || cfg.aborts)) { n = s; n.c[c].st = 3; lab("another process aborts C%d: its lease is over", c); emit(n); }
      if (cfg.purge && (k.st == 3 || k.st == 4) && (left || k.dead)) { n = s; n.c[c].st = 0; lab("C%d is purged", c); emit(n); } }
    if (s.z.on) { n = s; const Zmb &z = s.z; Doc &y = n.d[z.d]; n.z = Zmb();
      if (z.on == 1 && y.ex && !y.it) y.it = z.c + 1;
      if (z.on == 2 && y.ex && !y.it && y.rev == z.rev && y.val == z.val) y.it = z.c + 1;
      if (z.on == 3 && !y.ex) { y.ex = y.stub = 1; y.it = z.c + 1; }
      if (z.on == 4 && y.ex && !y.it && (m(M_REV_FAST) || y.val == z.val) && (m(M_VALUE_FAST) || y.rev == z.rev)) { if (y.rev != z.rev || y.val != z.val) n.bad = 1; put(n, z.d, z.c, cfg.sc[z.c], true); }
      if (z.on == 5 && y.ex && y.it == z.c + 1 && ((y.rev == z.rev && y.val == z.val) || m(M_ONE_FREE))) one(n, z.d, z.c, z.rev, z.val);
      lab("the unanswered call lands on doc%d", z.d); emit(n); }
  }
  static int holds(const Prc &q) { int mask = 0; bool one = false; for (int d = 0; d < ND; d++) if (q.seen >> d & 1 && !q.rex[d]) { if (one) mask |= 1 << d; one = true; } return mask; }
  const char *check(const S &s) {
    if (m(V_REACH)) { for (int p = 0; p < np; p++) if (s.p[p].pc != END || s.p[p].res != 1 || s.p[p].dead) return nullptr; return bm[9]; }
    if (s.bad) return bm[s.bad];
    S t = s; for (int c = 0; c < t.nc; c++) if (t.c[c].st == 1) t.c[c].st = 3;
    for (int d = 0; d < ND; d++) if (t.d[d].ex && t.d[d].it) { int c = t.d[d].it - 1; if (t.c[c].st == 2 || t.c[c].st == 4) release(t, d, c); else strip(t, d, c); if (t.d[d].ex && t.d[d].it) return bm[6]; }
    if (t.bad) return bm[t.bad];
    for (int d = 0; d < ND; d++) if (t.d[d].stub) return bm[6];
    for (int c = 0; c < t.nc; c++) { const Com &k = t.c[c]; if (k.dec && (k.ap & k.mask) != k.mask && !k.dirty && !wiped()) return bm[4]; }
    return nullptr;
  }
  bool wiped() const { for (auto &s : cfg.sc) if (s.kind == P_REPLACE || s.kind == P_REMOVE) return true; return false; }  // as if it came after the commit
  const char *terminal(const S &s) { if (m(V_REACH)) return nullptr; for (int p = 0; p < np; p++) if (s.p[p].pc != END && !s.p[p].dead) return bm[7]; return nullptr; }
};
static Script sc(int kind, std::initializer_list<int> ord, int w, int ins = 0, int rm = 0, int dep = 0, int extra = 0) { Script s = {}; s.kind = kind; for (int o : ord) s.ord[s.n++] = o; s.w = w; s.ins = ins; s.rm = rm; s.dep = dep; s.extra = extra; return s; }
int main(int argc, char **argv) {
  std::vector<Cfg> all; auto add = [&](const char *name, std::vector<Script> v, std::initializer_list<int> ex, int crashes, int lates, bool aborts) { Cfg c = {}; c.name = name; c.sc = v; int i = 0; for (int e : ex) c.ex[i++] = e; c.crashes = crashes; c.lates = lates; c.aborts = aborts; c.purge = true; all.push_back(c); };
  const char *pn[] = {"$set", "$set back", "replace", "remove"};
  for (int k = 0; k < 4; k++) { std::string t = pn[k]; int kind = P_SET + k; auto nm = [&](const char *x) { static std::vector<std::string *> keep; keep.push_back(new std::string(x + t)); return keep.back()->c_str(); };
    add(nm("native a,b; plain $set of a; plain, b: "), {sc(NATIVE, {0, 1}, 3), sc(P_SET, {}, 1), sc(kind, {}, 2)}, {1, 1, 0}, 0, 0, false);
    add(nm("fast a, sent twice; plain $set of a; plain, a: "), {sc(FAST, {0}, 1), sc(P_SET, {}, 1), sc(kind, {}, 1)}, {1, 0, 0}, 0, 1, false);
    add(nm("commit a,b reads c; plain $set of c; plain, a: "), {sc(COMMIT, {2, 1, 0}, 3), sc(P_SET, {}, 4), sc(kind, {}, 1)}, {1, 1, 1}, 0, 1, k == 0);
    add(nm("fast a twice next to a commit of a,b; plain, a: "), {sc(FAST, {0}, 1), sc(COMMIT, {1, 0}, 3), sc(kind, {}, 1)}, {1, 1, 0}, 0, 1, false); }
  add("takers of a, b; plain writers of a", {sc(TAKER, {1, 0}, 3), sc(FAST, {1}, 2), sc(P_SET, {}, 1), sc(P_BACK, {}, 1)}, {1, 1, 0}, 0, 1, false);
  add("a taker of b that reads a next to plain writers of a and b", {sc(TAKER, {1, 0}, 2), sc(FAST, {1}, 2), sc(P_SET, {}, 1), sc(P_REPLACE, {}, 2)}, {1, 1, 0}, 1, 0, true);
  add("one document, taken first, next to plain writers", {sc(ONE, {0}, 1), sc(FAST, {0}, 1), sc(P_SET, {}, 1), sc(P_BACK, {}, 1)}, {1, 0, 0}, 0, 1, false);
  add("one document, taken first, undone at any time", {sc(ONE, {0}, 1), sc(FAST, {0}, 1), sc(P_SET, {}, 1)}, {1, 0, 0}, 1, 1, true);
  add("one document, taken first, next to a journal commit and one who removes", {sc(ONE, {0}, 1), sc(COMMIT, {1, 0}, 3), sc(FAST, {0}, 0, 0, 1)}, {1, 1, 0}, 1, 1, false);
  add("two takers of a,b, undone at any time, steps without answers", {sc(TAKER, {1, 0}, 3), sc(TAKER, {0, 1}, 1)}, {1, 1, 0}, 1, 1, true);
  add("takers in two orders next to a fast writer", {sc(TAKER, {1, 0}, 3), sc(TAKER, {0, 1}, 3), sc(FAST, {1}, 2)}, {1, 1, 0}, 0, 0, false);
  add("a taker and a journal commit next to a fast writer", {sc(TAKER, {1, 0}, 3), sc(COMMIT, {0, 1}, 3), sc(FAST, {1}, 2)}, {1, 1, 0}, 0, 0, false);
  add("a taker wants c once b was changed", {sc(TAKER, {1, 0, 2}, 7, 0, 0, 2, 4), sc(TAKER, {2, 1}, 6), sc(FAST, {1}, 2)}, {1, 1, 1}, 0, 0, false);
  add("two commits of a,b,c in two orders", {sc(COMMIT, {2, 1, 0}, 7), sc(COMMIT, {0, 1, 2}, 7)}, {1, 1, 1}, 1, 0, false);
  add("two commits next to a fast writer of b", {sc(COMMIT, {2, 1, 0}, 3), sc(COMMIT, {0, 1}, 3), sc(FAST, {1}, 2)}, {1, 1, 1}, 0, 0, false);
  add("c is wanted once b was changed", {sc(COMMIT, {1, 0, 2}, 7, 0, 0, 2, 4), sc(COMMIT, {2, 1}, 6), sc(FAST, {1}, 2)}, {1, 1, 1}, 0, 0, false);
  add("each wants the other's once its own was changed", {sc(COMMIT, {1, 2}, 6, 0, 0, 2, 4), sc(COMMIT, {2, 1}, 6, 0, 0, 3, 2), sc(FAST, {1}, 2), sc(FAST, {2}, 4)}, {0, 1, 1}, 0, 0, false);
  add("b and c are wanted one after the other", {sc(COMMIT, {0, 1, 2}, 7, 0, 0, 1, 6), sc(FAST, {0}, 1), sc(FAST, {1}, 2), sc(FAST, {2}, 4)}, {1, 1, 1}, 0, 0, false);
  add("the same, one dies, one call comes late", {sc(COMMIT, {1, 0, 2}, 7, 0, 0, 2, 4), sc(COMMIT, {2, 1}, 6)}, {1, 1, 1}, 1, 1, false);
  add("b goes and comes", {sc(COMMIT, {1, 0}, 3, 2), sc(FAST, {1}, 0, 0, 2), sc(FAST, {1}, 0, 2)}, {1, 1, 0}, 0, 0, false);
  add("b goes, leases are over at any time", {sc(COMMIT, {2, 1, 0}, 7), sc(FAST, {1}, 0, 0, 2)}, {1, 1, 1}, 1, 0, true);
  add("look at a,b (missing), c; two commits insert", {sc(LOOK, {0, 1, 2}, 0), sc(COMMIT, {0, 2}, 4, 1), sc(COMMIT, {0, 1}, 0, 2, 1)}, {0, 0, 1}, 0, 0, false);
  add("look at a,b (missing), undone at any time", {sc(LOOK, {0, 1}, 0), sc(COMMIT, {0, 1}, 0, 3)}, {0, 0, 1}, 1, 0, true);
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_REV_NATIVE, "the native form compares revisions only"}, {M_REV_FAST, "the fast path compares the revision only"}, {M_VALUE_FAST, "the fast path compares the value only"}, {M_REV_PREPARE, "the prepare compares the revision only"}, {M_REV_REQUIRE, "a require is compared by its revision only"},
      {M_NO_STILL, "T4: no look after the function"}, {M_NO_WAS, "the release does not compare"}, {M_ANY_ORDER, "T1: taken in the function's order"}, {M_WAITS, "T2: who holds documents waits"}, {M_GONE_ENDS, "T5: a document that is gone ends the try"}, {M_FORGETS, "only what was wanted besides is taken next"}, {M_OLD_READS, "the function goes by an earlier read"},
      {M_NEW_FREE, "what is new is not compared"}, {M_LOOK_FREE, "R3: missing documents are not held"}, {M_DROPS_NOT, "a try that fails is not undone"}, {M_HELD_FREE, "T6: the one step does not compare what was taken"}, {M_STATE_FREE, "T6: the one step does not compare the state"}, {M_ONE_FREE, "T7: the last write compares the intent only"}, {M_ONE_DECIDES, "T7: one document is decided like several"}};
    int alive = 0; for (auto &u : mu) { bool dead = false; for (auto c : all) { if (c.sc[0].kind == LOOK && !(u.m & (M_LOOK_FREE | M_REV_REQUIRE))) continue; c.mut = u.m; M md(c); MC<M> mc; Res r = mc.run(md, 20000000); if (!r.viol.empty()) { dead = true; printf("%-46s [%s] KILLED: %s (%zu steps, %llu states)\n", u.name, c.name.c_str(), r.viol.c_str(), r.trace.size(), (unsigned long long)r.n); if (argc > 2) report("", r, true); break; } } if (!dead) { printf("%-46s SURVIVES\n", u.name); alive++; } fflush(stdout); }
    printf("%d survivors\n", alive); return alive != 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); bool ok = true; for (auto c : all) { if (reach) c.mut = V_REACH; M md(c); MC<M> mc; Res r = mc.run(md, 60000000); report(c.name.c_str(), r, !reach); ok &= reach ? !r.viol.empty() : r.complete && r.viol.empty(); }
  return !ok;
}
