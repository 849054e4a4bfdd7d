// Two-phase transfers (src/patterns/transfer/transfer.c): the recipe of MongoDB's manual and the
// fence that repairs it. The process that starts one reads the fences and then inserts it, so the
// insert is the read of the transfer. The decision is the read for the credits, which compare the
// fences that were read before it. See README.md.
#include "mc.hpp"
// committed: debits are done, credits being made; applied: no process applies any more, marks are
// removed
enum { T_NONE, T_PEND, T_APPLIED, T_DONE, T_CANCELING, T_CANCELED, T_COMMITTED };
enum Mut : u32 { M_NO_FENCE = 1, M_T_FIRST = 2, M_NO_BUMP = 4, M_CLEAN_NO_FENCE = 8, M_UNDO_NO_MARK = 16, M_APPLIED_NO_CAS = 32, M_DONE_EARLY = 64, M_CANCELED_EARLY = 128,
  M_NO_MARK = 256, M_BUMP_NO_MARK = 512, M_DIRTY_CREDIT = 1024, M_CANCEL_NO_CAS = 2048, M_MARKS = 4096, M_RECIPE = 8192, M_NO_TREAD = 16384, M_CREDIT_BEFORE = 32768, M_THREE_STATES = 65536, M_INS_BLIND = 131072, V_REACH = 262144 };
struct Wk { u8 pc, t, i, jobs, role; u8 f[3]; };
struct Dc { u8 fence, marks, cmarks; signed char bal; };
struct S3 { u8 t[2], term[2]; Dc d[3]; signed char net[2][3]; Wk w[3]; u8 bad, ins[2]; };
static const char *bm[] = {"", "an entry applied twice", "an entry undone that was not applied", "done, but not every entry is applied exactly once", "canceled, but an entry is applied", "a balance below zero (spent money that was later taken back)", "money created or destroyed after the end", "a mark is left for ever on a document of a finished transfer"};
enum { IDLE, INS, RDF, RDT, APP, APPCHK, CASAPP, CREDIT, CREDCHK, CLEAN, CASDONE, CASCRE, CCAS, UNDO, BUMP, CASCAN };
struct P3 {
  typedef S3 S; u32 mut; int nw, jobs, nt; bool purge, guard; S last;
  // T0: doc0 -> doc1, T1: doc1 -> doc2 (one unit each)
  bool M(u32 m) const { return mut & m; }
  int deb(int t) const { return t; } int cre(int t) const { return t + 1; }
  void init(S &s) { if (M(M_RECIPE) || M(M_MARKS)) for (int t = 0; t < nt; t++) s.t[t] = T_PEND, s.ins[t] = 1; s.d[0].bal = 1; if (!guard) s.d[1].bal = 1; for (int w = 0; w < nw; w++) s.w[w].jobs = jobs; }
  // entries before the decision: i = 0 debit; (credit too when M_CREDIT_BEFORE / recipe); after:
  // credit
  bool before(int) const { return M(M_CREDIT_BEFORE) || M(M_RECIPE) || M(M_MARKS); }
  int nbefore(int t) const { return before(t) ? 2 : 1; }
  int doc(int t, int i) const { return i == 0 ? deb(t) : cre(t); }
  int val(int i) const { return i == 0 ? -1 : 1; }
  bool apply(S &s, int t, int i, int f) const {
    Dc &d = s.d[doc(t, i)];
    if (!M(M_NO_MARK) && (d.marks >> t & 1)) return false;
    if (!M(M_NO_FENCE) && !M(M_RECIPE) && !M(M_MARKS) && d.fence != f) return false;
    if (M(M_MARKS) && (d.cmarks >> t & 1)) return false;
    if (guard && i == 0 && d.bal < 1) return false;
    d.marks |= 1 << t; d.bal += val(i); if (++s.net[t][doc(t, i)] > 1) s.bad = 1; return true;
  }
  template <class F> void succ(const S &s, F &&emit) {
    S n;
    for (int w = 0; w < nw; w++) { const Wk &q = s.w[w]; int t = q.t;
#define B n = s; Wk &x = n.w[w]; (void)x
#define GO(p) x.pc = p, x.i = 0
#define IDL do { u8 j = x.jobs; memset(&x, 0, sizeof x); x.jobs = j; } while (0)
      switch (q.pc) {
      case IDLE: if (!q.jobs) break;
        for (int u = 0; u < nt; u++) { if (!s.ins[u]) { B; x.jobs--; x.t = u; x.role = 2; GO(RDF); lab("W%d wants to start T%d", w, u); emit(n); continue; }
          { B; x.jobs--; x.t = u; x.role = 0; GO(M(M_T_FIRST) ? RDT : RDF); if (M(M_RECIPE) || M(M_MARKS)) GO(RDT); lab("W%d takes T%d to apply it", w, u); emit(n); }
          { B; x.jobs--; x.t = u; x.role = 1; GO(CCAS); lab("W%d wants to cancel T%d", w, u); emit(n); } }
        break;
      case RDF: { B; x.f[q.i] = s.d[doc(t, q.i)].fence; lab("W%d reads doc%d (fence %d)", w, doc(t, q.i), x.f[q.i]); if (q.i == 1) GO(q.role == 2 ? INS : M(M_T_FIRST) ? (s.t[t] == T_COMMITTED ? CREDIT : APP) : RDT); else x.i++; emit(n); break; }
      case INS: { B; bool there = s.ins[t]; n.ins[t] = 1; x.role = 0; if (!there) n.t[t] = T_PEND; lab("W%d inserts T%d%s", w, t, there ? ": it is there" : ""); GO(there && !M(M_INS_BLIND) ? RDT : APP); emit(n); break; }
      case RDT: { B; const char *nm[] = {"missing", "pending", "applied", "done", "canceling", "canceled", "committed"}; lab("W%d reads T%d: %s", w, t, nm[s.t[t]]);
        switch (s.t[t]) { case T_PEND: GO(M(M_T_FIRST) ? RDF : APP); break; case T_COMMITTED: GO(M(M_T_FIRST) ? RDF : CREDIT); break; case T_APPLIED: GO(M(M_THREE_STATES) ? CREDIT : CLEAN); break; case T_CANCELING: GO(UNDO); break; default: IDL; } emit(n); break; }
      case APP: { B; bool ok = apply(n, t, q.i, q.f[q.i]); if (ok) { lab("W%d applies T%d to doc%d", w, t, doc(t, q.i)); if (q.i + 1 < nbefore(t)) x.i++; else GO(CASAPP); } else { lab("W%d: apply of T%d to doc%d refused", w, t, doc(t, q.i)); x.pc = APPCHK; } emit(n); break; }
      case APPCHK: { B; const Dc &d = s.d[doc(t, q.i)]; if (d.marks >> t & 1) { lab("W%d sees T%d's mark on doc%d", w, t, doc(t, q.i)); x.pc = APP; if (q.i + 1 < nbefore(t)) x.i++; else GO(CASAPP); }
        else if (guard && q.i == 0 && d.bal < 1) { lab("W%d: doc%d has not enough: gives up", w, doc(t, q.i)); GO(CCAS); } else { lab("W%d: no mark, fence moved: again", w); GO((M(M_RECIPE) || M(M_MARKS)) ? RDT : M(M_T_FIRST) ? RDT : RDF); } emit(n); break; }
      case CASAPP: { B; if (s.t[t] == T_PEND || M(M_APPLIED_NO_CAS)) { bool two = before(t) || M(M_THREE_STATES); n.t[t] = two ? T_APPLIED : T_COMMITTED; lab("W%d marks T%d %s", w, t, two ? "applied" : "committed"); GO(before(t) ? CLEAN : M(M_T_FIRST) ? RDT : CREDIT); } else { lab("W%d: T%d is not pending any more", w, t); GO(RDT); } emit(n); break; }
      case CREDIT: { B; bool ok = apply(n, t, 1, q.f[1]); if (ok) { lab("W%d credits doc%d for T%d", w, cre(t), t); GO(M(M_THREE_STATES) ? CLEAN : CASCRE); } else { lab("W%d: credit of doc%d for T%d refused", w, cre(t), t); x.pc = CREDCHK; } emit(n); break; }
      case CREDCHK: { B; if (s.d[cre(t)].marks >> t & 1) { lab("W%d sees the credit's mark", w); GO(M(M_THREE_STATES) ? CLEAN : CASCRE); } else { lab("W%d: fence moved: again", w); GO(RDF); } emit(n); break; }
      case CASCRE: { B; if (s.t[t] == T_COMMITTED) n.t[t] = T_APPLIED; lab("W%d marks T%d applied", w, t); GO(s.t[t] == T_COMMITTED || s.t[t] == T_APPLIED ? CLEAN : RDT); emit(n); break; }
      case CLEAN: { B; int dd = doc(t, q.i); Dc &d = n.d[dd]; if (M(M_DONE_EARLY) && s.t[t] == T_APPLIED) n.t[t] = T_DONE, n.term[t] = T_DONE; if (d.marks >> t & 1) { d.marks &= ~(1 << t); if (!M(M_CLEAN_NO_FENCE)) d.fence++; } lab("W%d removes T%d's mark from doc%d", w, t, dd); if (q.i == 1) GO(CASDONE); else x.i++; emit(n); break; }
      case CASDONE: { B; if (s.t[t] == T_APPLIED) { n.t[t] = T_DONE; n.term[t] = T_DONE; } lab("W%d marks T%d done", w, t); IDL; emit(n); break; }
      case CCAS: { B; if (s.t[t] == T_PEND || s.t[t] == T_CANCELING || (M(M_CANCEL_NO_CAS) && (s.t[t] == T_APPLIED || s.t[t] == T_COMMITTED))) { n.t[t] = T_CANCELING; lab("W%d sets T%d canceling", w, t); GO(UNDO); if (M(M_CANCELED_EARLY)) n.t[t] = T_CANCELED, n.term[t] = T_CANCELED; } else { lab("W%d cannot cancel T%d", w, t); IDL; } emit(n); break; }
      case UNDO: { B; int dd = doc(t, q.i); Dc &d = n.d[dd]; if ((d.marks >> t & 1) || M(M_UNDO_NO_MARK)) { d.marks &= ~(1 << t); d.fence++; d.cmarks |= 1 << t; d.bal -= val(q.i); if (--n.net[t][dd] < 0) n.bad = 2; lab("W%d undoes T%d on doc%d", w, t, dd); if (q.i + 1 < nbefore(t)) x.i++; else GO(CASCAN); }
        else { lab("W%d: nothing of T%d to undo on doc%d", w, t, dd); if (M(M_RECIPE) || M(M_NO_BUMP)) { if (q.i + 1 < nbefore(t)) x.i++; else GO(CASCAN); } else x.pc = BUMP; } emit(n); break; }
      case BUMP: { B; int dd = doc(t, q.i); Dc &d = n.d[dd]; if (!(d.marks >> t & 1) || M(M_BUMP_NO_MARK)) { d.fence++; d.cmarks |= 1 << t; lab("W%d fences doc%d against T%d", w, dd, t); x.pc = UNDO; if (q.i + 1 < nbefore(t)) x.i++; else GO(CASCAN); } else { lab("W%d: T%d was applied to doc%d in the meantime", w, t, dd); x.pc = UNDO; } emit(n); break; }
      case CASCAN: { B; if (s.t[t] == T_CANCELING) { n.t[t] = T_CANCELED; n.term[t] = T_CANCELED; } lab("W%d marks T%d canceled", w, t); IDL; emit(n); break; }
      }
    }
    if (purge) for (int t = 0; t < nt; t++) if (s.t[t] == T_DONE || s.t[t] == T_CANCELED) { n = s; n.t[t] = T_NONE; lab("T%d purged", t); emit(n); }
    if (M(M_MARKS)) for (int t = 0; t < nt; t++) if (s.term[t]) for (int d = 0; d < 3; d++) if (s.d[d].cmarks >> t & 1) { n = s; n.d[d].cmarks &= ~(1 << t); lab("cancel mark of T%d removed from doc%d (retention over)", t, d); emit(n); }
  }
  // one recovery pass alone finishes everything; then the books must be right
  const char *check(const S &s) {
    if (s.bad) return bm[s.bad];
    if (M(V_REACH)) { for (int t = 0; t < nt; t++) if (s.term[t] != T_DONE) return nullptr; return "REACHED"; }
    for (int d = 0; d < 3; d++) if (s.d[d].bal < 0) return bm[5];
    S x = s;
    for (int t = 0; t < nt; t++) { 
      if (x.t[t] == T_PEND || x.t[t] == T_CANCELING) { for (int i = 0; i < nbefore(t); i++) { Dc &d = x.d[doc(t, i)]; if (d.marks >> t & 1) { d.marks &= ~(1 << t); x.net[t][doc(t, i)]--; d.bal -= val(i); } } x.term[t] = T_CANCELED; }
      else if (x.t[t] == T_COMMITTED || x.t[t] == T_APPLIED) { if (!before(t) && !(x.d[cre(t)].marks >> t & 1) && x.net[t][cre(t)] == 0) { x.net[t][cre(t)]++; x.d[cre(t)].bal++; } x.term[t] = T_DONE; } }
    for (int t = 0; t < nt; t++) for (int i = 0; i < 2; i++) { int v = x.net[t][doc(t, i)]; if (x.term[t] == T_DONE && v != 1) return bm[3]; if (x.term[t] == T_CANCELED && v != 0) return bm[4]; if (s.term[t] && (s.d[doc(t, i)].marks >> t & 1)) return bm[7]; }
    int sum = 0; for (int d = 0; d < 3; d++) sum += x.d[d].bal; if (sum != (guard ? 1 : 2)) return bm[6];
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
static Res go(const char *nm, u32 mut, int nt, int nw, int jobs, bool guard, bool purge, bool tr) { P3 m; m.mut = mut; m.nt = nt; m.nw = nw; m.jobs = jobs; m.guard = guard; m.purge = purge; MC<P3> mc; Res r = mc.run(m, 60000000); report(nm, r, tr); return r; }
int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "hole")) {
    go("the manual's recipe: 1 transfer, 2 workers", M_RECIPE, 1, 2, 1, false, false, true);
    go("cancel marks left in every document", M_MARKS, 1, 2, 1, false, false, true);
    go("credits before the decision, no overdraft", M_CREDIT_BEFORE, 2, 3, 1, true, false, true);
    go("marks removed while others may still credit", M_THREE_STATES, 1, 3, 1, false, true, true);
    return 0; }
  if (!strcmp(what, "reach")) { go("two transfers done", V_REACH, 2, 2, 1, true, true, false); return 0; }
  struct { u32 f; const char *n; } L[] = {{M_NO_FENCE, "apply does not compare the fence"}, {M_T_FIRST, "transfer read before the fences"}, {M_NO_BUMP, "cancel does not fence what has no mark"}, {M_CLEAN_NO_FENCE, "a mark goes without raising the fence"}, {M_UNDO_NO_MARK, "undo does not look for the mark"}, {M_APPLIED_NO_CAS, "decided without comparing the state"}, {M_DONE_EARLY, "done before the marks are gone"}, {M_CANCELED_EARLY, "canceled before the documents are fenced"}, {M_NO_MARK, "apply does not look for the mark"}, {M_BUMP_NO_MARK, "the fencing write does not look for the mark"}, {M_CANCEL_NO_CAS, "cancel also when it is decided"}, {M_INS_BLIND, "an insert that found it there is taken for one that made it"}, {M_THREE_STATES, "no state between the decision and the last credit"}};
  int alive = 0;
  if (!strcmp(what, "mutants")) {
    for (auto &l : L) { Res r = go(l.n, l.f, 1, 3, 1, false, true, false); if (r.viol.empty()) { r = go(l.n, l.f | M_CREDIT_BEFORE, 1, 3, 2, false, true, false); if (r.viol.empty()) r = go(l.n, l.f, 2, 2, 2, true, true, false); if (r.viol.empty()) alive++, printf("!!! SURVIVOR %s\n", l.n); } }
    printf("%zu mutants, %d survivors\n", sizeof L / sizeof *L, alive); return alive; }
  bool ok = true;
  ok &= go("credit after the decision: 1 transfer, 3 workers x2", 0, 1, 3, 2, false, true, true).complete;
  ok &= go("2 transfers a->b->c, no overdraft, 3 workers", 0, 2, 3, 1, true, true, true).complete;
  ok &= go("2 transfers, 2 workers x2", 0, 2, 2, 2, true, true, true).complete;
  ok &= go("all before the decision, no guard: 2 transfers, 3 workers", M_CREDIT_BEFORE, 2, 3, 1, false, true, true).complete;
  return !ok; }
