// Keyed commits and the horizon (src/commit/idempotency_key.c, native_transaction.c N3, commit_sweep.c S1-S3): a key is not
// run twice, also when its record is purged. A native commit reads the horizon in its transaction
// and writes nothing there. A LATE client repeats the request with another time: it is
// refused while the record exists. See README.md.
#include "mc.hpp"
enum { NP = 3 };
enum Kind { NONE, NATIVE_SI, NATIVE_RC, NATIVE_TOUCH, JOURNAL, SWEEP, SWEEP2, LATE = 16 };
enum Mut : u32 {
  M_NO_LOOK = 1,        // the horizon is not read
  M_LOOK_FIRST = 2,     // read before the record is inserted (matters if reads are not consistent)
  M_OUTSIDE = 4,        // read before the transaction begins
  M_DELETE_FIRST = 8,   // purged before the horizon is raised
  M_NO_RAISE = 16,
  M_INDEX_BLIND = 32,   // a store whose unique index takes no part in conflicts of snapshots
  M_PURGE_PENDING = 64, // purges a commit that is under way
  M_NOT_UNIQUE = 128,
  M_SPLIT_BESIDE = 256, // the recovery pass raises another document than the one that is read
  M_TIME_BLIND = 512,   // the time of the record is not compared
  V_REACH = 1024, V_HOLE = 2048,
};
struct Rec { u8 st, ver, late; };  // st: 0 none 1 done 2 pending, of P who+1
struct Prc { u8 pc, snap_hor, snap_st, snap_ver, snap_late, hor, tries, res; };
struct St { Rec r; u8 owner, lock, hor, ran[2], purged, left, bad; Prc p[NP]; };
static const char *bm[] = {"", "a key was run twice", "a key was reported as expired that no process had used", "REACHED (run once, and purged)", "a repetition with another time was accepted", "HOLE (run again with another time, after the purge)"};
struct M {
  typedef St S; int kind[NP]; u32 mut; S last;
  bool m(u32 x) const { return mut & x; }
  void init(S &s) { s.left = 2; (void)s; }
  int late(int p) const { return kind[p] / LATE; }
  void ran(S &n, int p) const { if (++n.ran[late(p)] > 1 || (n.ran[!late(p)] && !n.purged)) n.bad = 1; }
  void there(S &n, int p, int time) const { if (time == late(p)) return end(n, p, 1); if (!m(M_TIME_BLIND)) return end(n, p, 4); n.bad = 4; end(n, p, 1); }
  void end(S &n, int p, int res) const { Prc k = n.p[p]; n.p[p] = Prc(); n.p[p].tries = k.tries; n.p[p].res = res; n.p[p].pc = 99; if (res == 3 && !n.ran[0] && !n.ran[1]) n.bad = 2; }
  void retry(S &n, int p) const { u8 t = n.p[p].tries + 1; n.p[p] = Prc(); n.p[p].tries = t; if (t >= 2) end(n, p, 2); }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int p = 0; p < NP; p++) { const Prc &q = s.p[p]; n = s; Prc &x = n.p[p]; bool held = s.lock && s.lock != p + 1; switch (kind[p] % LATE) {
      case NATIVE_SI: case NATIVE_TOUCH: // a transaction of one snapshot
        if (q.pc == 0) { x.hor = s.hor; x.pc = 1; lab("P%d looks at the horizon before it begins", p); if (m(M_OUTSIDE)) { emit(n); break; } x.hor = 0; }
        if (q.pc <= 1 && !(m(M_OUTSIDE) && q.pc == 0)) { x.snap_hor = s.hor; x.snap_st = s.r.st; x.snap_ver = s.r.ver; x.snap_late = s.r.late; x.pc = 2; lab("P%d begins: its snapshot has %s and horizon %d", p, s.r.st ? "a record" : "no record", s.hor); emit(n); break; }
        if (q.pc == 2) { if (q.snap_st == 1 && !m(M_NOT_UNIQUE)) { there(n, p, q.snap_late); lab("P%d: the key is there: it took effect", p); emit(n); break; }
          bool newer = s.r.ver != q.snap_ver; if (s.r.st && !m(M_NOT_UNIQUE)) { retry(n, p); lab("P%d: the index refuses it", p); emit(n); break; }
          if (newer && !m(M_INDEX_BLIND | M_NOT_UNIQUE)) { retry(n, p); lab("P%d: a conflict in the index", p); emit(n); break; }
          x.pc = 3; n.lock = p + 1; if (held) break; lab("P%d inserts its record", p); emit(n); break; }
        if (q.pc == 3) { int seen = m(M_OUTSIDE) ? q.hor : q.snap_hor; n.lock = 0; if (seen > late(p) && !m(M_NO_LOOK)) { end(n, p, 3); lab("P%d: expired", p); emit(n); break; }
          if (kind[p] % LATE == NATIVE_TOUCH && s.hor != q.snap_hor) { retry(n, p); lab("P%d: a conflict at the horizon", p); emit(n); break; }
          n.r = Rec{1, (u8)(s.r.ver + 1), (u8)late(p)}; ran(n, p); end(n, p, 1); lab("P%d commits", p); emit(n);
          if (s.left) { n = s; n.left--; n.lock = 0; n.r = Rec{1, (u8)(s.r.ver + 1), (u8)late(p)}; ran(n, p); retry(n, p); lab("P%d commits, no answer: it asks again", p); emit(n); } }
        break;
      case NATIVE_RC: // each read has its own snapshot; an insert keeps others from the key
        if (q.pc == 0 && m(M_LOOK_FIRST)) { x.hor = s.hor; x.pc = 1; lab("P%d looks at the horizon", p); emit(n); break; }
        if (q.pc <= 1) { if (held) break; if (s.r.st && !m(M_NOT_UNIQUE)) { there(n, p, s.r.late); lab("P%d: the key is there", p); emit(n); break; } n.lock = p + 1; x.pc = 2; lab("P%d inserts its record", p); emit(n); break; }
        if (q.pc == 2) { if (!m(M_LOOK_FIRST)) x.hor = s.hor; x.pc = 3; lab("P%d looks at the horizon: %d", p, x.hor); emit(n); break; }
        if (q.pc == 3) { n.lock = 0; if (q.hor > late(p) && !m(M_NO_LOOK)) { end(n, p, 3); lab("P%d: expired", p); emit(n); break; } n.r = Rec{1, (u8)(s.r.ver + 1), (u8)late(p)}; ran(n, p); end(n, p, 1); lab("P%d commits", p); emit(n);
          if (s.left) { n = s; n.left--; n.lock = 0; n.r = Rec{1, (u8)(s.r.ver + 1), (u8)late(p)}; ran(n, p); retry(n, p); lab("P%d commits, no answer: it asks again", p); emit(n); } }
        break;
      case JOURNAL:
        if (q.pc == 0 && m(M_LOOK_FIRST)) { x.hor = s.hor; x.pc = 1; lab("P%d looks at the horizon", p); emit(n); break; }
        if (q.pc <= 1) { if (held) break; if (s.r.st == 1 && !m(M_NOT_UNIQUE)) { there(n, p, s.r.late); lab("P%d: the key is there", p); emit(n); break; } if (s.r.st == 2 && !m(M_NOT_UNIQUE)) break; n.r = Rec{2, (u8)(s.r.ver + 1), (u8)late(p)}; n.owner = p + 1; x.pc = 2; lab("P%d inserts its commit, pending", p); emit(n); break; }
        if (q.pc == 2) { if (!m(M_LOOK_FIRST)) x.hor = s.hor; x.pc = 3; lab("P%d looks at the horizon: %d", p, x.hor); emit(n); break; }
        if (q.pc == 3) { bool mine = s.r.st == 2 && s.owner == p + 1; if (q.hor > late(p) && !m(M_NO_LOOK)) { if (mine) n.r = Rec{0, (u8)(s.r.ver + 1)}; end(n, p, 3); lab("P%d: expired", p); emit(n); break; }
          if (!mine && !m(M_NOT_UNIQUE)) { retry(n, p); lab("P%d finds itself undone", p); emit(n); break; }
          n.r.st = 1; ran(n, p); end(n, p, 1); lab("P%d decides", p); emit(n); if (s.left) { n = s; n.left--; n.r.st = 1; ran(n, p); retry(n, p); lab("P%d decides, no answer: it asks again", p); emit(n); } }
        break;
      case SWEEP: case SWEEP2: { int st = s.r.st;
        if (q.pc == 0 && (st == 1 || (st == 2 && m(M_PURGE_PENDING)))) { x.pc = m(M_DELETE_FIRST) ? 2 : 1; x.snap_ver = s.r.ver; x.snap_late = s.r.late; lab("P%d finds an old record", p); emit(n); break; }
        if (q.pc == 1) { if (!m(M_NO_RAISE | M_SPLIT_BESIDE) && n.hor <= q.snap_late) n.hor = q.snap_late + 1; if (m(M_DELETE_FIRST)) end(n, p, 1); else x.pc = 2; lab("P%d raises the horizon", p); emit(n); break; }
        if (q.pc == 2) { if (held) break; if (s.r.ver == q.snap_ver && (st == 1 || (st == 2 && m(M_PURGE_PENDING)))) { n.r = Rec{0, (u8)(s.r.ver + 1)}; n.purged = 1; } if (m(M_DELETE_FIRST)) x.pc = 1; else end(n, p, 1); lab("P%d purges it", p); emit(n); } break; }
      } }
    if (s.r.st == 2) { n = s; n.r = Rec{0, (u8)(s.r.ver + 1)}; lab("another process aborts what is pending"); emit(n); }
  }
  const char *check(const S &s) { if (m(V_REACH)) { for (int p = 0; p < NP; p++) if (kind[p] && s.p[p].pc != 99) return nullptr; return s.ran[0] == 1 && !s.r.st ? bm[3] : nullptr; } if (m(V_HOLE)) return s.ran[0] && s.ran[1] ? bm[5] : nullptr; return s.bad ? bm[s.bad] : nullptr; }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  struct { const char *name; int k[NP]; } sc[] = {{"two transactions of snapshots, a sweep", {NATIVE_SI, NATIVE_SI, SWEEP}}, {"a transaction that looks, one that touches, a sweep", {NATIVE_SI, NATIVE_TOUCH, SWEEP}}, {"a transaction, a journal commit, a sweep", {NATIVE_SI, JOURNAL, SWEEP}},
    {"two transactions without snapshots, a sweep", {NATIVE_RC, NATIVE_RC, SWEEP}}, {"one without, a journal commit, a sweep", {NATIVE_RC, JOURNAL, SWEEP}}, {"two journal commits, a sweep", {JOURNAL, JOURNAL, SWEEP}}, {"a transaction, two sweeps", {NATIVE_SI, SWEEP, SWEEP2}}, {"a journal commit, two sweeps", {JOURNAL, SWEEP, SWEEP2}},
    {"two transactions with two times, a sweep", {NATIVE_SI, NATIVE_SI | LATE, SWEEP}}, {"two without snapshots with two times, a sweep", {NATIVE_RC, NATIVE_RC | LATE, SWEEP}}, {"two journal commits with two times, a sweep", {JOURNAL, JOURNAL | LATE, SWEEP}}, {"a transaction, a journal commit with another time, a sweep", {NATIVE_SI, JOURNAL | LATE, SWEEP}}};
  struct { u32 m; const char *name; } mu[] = {{M_NO_LOOK, "the horizon is not looked at"}, {M_LOOK_FIRST, "looked at before the record is inserted"}, {M_OUTSIDE, "looked at before the transaction begins"}, {M_DELETE_FIRST, "purged before the horizon is raised"}, {M_NO_RAISE, "the horizon is not raised"}, {M_INDEX_BLIND, "an index that takes no part in conflicts"}, {M_PURGE_PENDING, "what is pending is purged"}, {M_NOT_UNIQUE, "the key is not unique"}, {M_SPLIT_BESIDE, "another document is raised than is looked at"}, {M_TIME_BLIND, "the time of the key is not compared"}};
  if (argc > 1 && !strcmp(argv[1], "mutants")) { int alive = 0; for (auto &u : mu) { bool dead = false; for (auto &c : sc) { M md; memcpy(md.kind, c.k, sizeof c.k); md.mut = u.m; MC<M> mc; Res r = mc.run(md); if (!r.viol.empty()) { dead = true; printf("%-46s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; } } if (!dead) { printf("%-46s SURVIVES\n", u.name); alive++; } } printf("%d survivors\n", alive); return alive != 0; }
  if (argc > 1 && !strcmp(argv[1], "hole")) { for (auto &c : sc) { M md; memcpy(md.kind, c.k, sizeof c.k); md.mut = V_HOLE; MC<M> mc; report(c.name, mc.run(md), false); } return 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"), ok = true; for (auto &c : sc) { M md; memcpy(md.kind, c.k, sizeof c.k); md.mut = reach ? V_REACH : 0; MC<M> mc; Res r = mc.run(md); report(c.name, r, !reach); ok &= reach ? !r.viol.empty() : r.viol.empty() && r.complete; }
  return !ok;
}
