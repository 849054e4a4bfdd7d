// Waiting for the disk (src/engine/storage/durable.c): commits go into the log under a lock, are
// seen by snapshots at once, and are synced by the process that waits. Processes stop for ever
// between two steps, or die. See README.md.
#include "mc.hpp"
enum { NPROC = 3, NTHR = 4 };
enum Mut : u32 {
  // a waiter needs the number, and its own sync is not enough: it waits for the writer
  M_NUMBER = 1,
  M_PROMISED = 2,    // a sync counts for commits that are promised when it begins
  M_LATE_TO = 4,     // a sync counts for commits that are written when it ends
  M_YOUNG = 8,       // a sync that has begun already is enough
  M_EARLY_NUM = 16,  // the number is read before the snapshot begins
  M_DEAD_HELD = 32,  // written is raised for a writer that holds the lock
  M_NO_BEGIN = 64,   // the next lock holder does not count the commits of the dead one as written
  M_LAZY = 128,      // the log is opened for its first sync
  M_FORGIVE = 256,   // a sync that failed is not noted in the page
  M_DURABLE = 512,   // a waiter trusts a sync of its own that failed
  V_REACH = 1024,    // not a mutant: reports a state in which all are answered
};
enum { WRITER, READER };
struct Thr { u8 pc, need, seen, before; };
struct Proc { u8 dead, syncing, begun, ended, to, at, thr, open, pend, failed; };
struct St { u8 promised, written, durable, broken, lock, log, disk, lost, reported, dies, faults; Thr t[NTHR]; Proc p[NPROC]; u8 bad; };
enum { START, PROMISE, COMMIT, WRITTEN, UNLOCK, SNAP, NUMBER, CHECK, PATIENCE, LOOP, SYNC_TO, SYNC_AT, SYNC_END, ANSWERED, REFUSED };
static const char *bm[] = {"", "answered before it is on the disk", "a reader waits for another process", "REACHED (all are answered)"};
struct Cfg { const char *name; int n, kind[NTHR], proc[NTHR]; int dies, faults; u32 mut; };
struct M {
  typedef St S; Cfg c; S last;
  bool m(u32 x) const { return c.mut & x; }
  void init(S &s) { s.dies = c.dies; s.faults = c.faults; for (int p = 0; p < NPROC; p++) s.p[p].open = !m(M_LAZY); for (int i = 0; i < c.n; i++) s.t[i].pc = c.kind[i] == WRITER ? START : m(M_EARLY_NUM) ? NUMBER : SNAP; }
  static u8 max(u8 a, u8 b) { return a > b ? a : b; }
  void answer(S &n, int i) const { Thr &x = n.t[i]; x.pc = ANSWERED; if (x.seen > n.disk) n.bad = 1; }
  // the steps of one thread; `patient` false: it waits for no other process any more
  template <class F> void thread(const S &s, int i, bool patient, F &&emit) const {
    const Thr &q = s.t[i]; int p = c.proc[i]; const Proc &o = s.p[p]; S n = s; Thr &x = n.t[i]; Proc &y = n.p[p];
    if (o.dead) return;
    switch (q.pc) {
    case START: if (s.lock) return; n.lock = p + 1; if (!m(M_NO_BEGIN)) n.written = n.promised; x.pc = s.broken ? REFUSED : PROMISE; if (s.broken) n.lock = 0; lab("W%d takes the lock", i); emit(n); return;
    case PROMISE: x.need = ++n.promised; x.pc = COMMIT; lab("W%d promises %d", i, n.promised); emit(n); return;
    case COMMIT: x.seen = ++n.log; x.pc = WRITTEN; lab("W%d commits: the log has %d", i, n.log); emit(n); return;
    case WRITTEN: n.written = n.promised; x.pc = UNLOCK; lab("W%d: written %d", i, n.written); emit(n); return;
    case UNLOCK: n.lock = 0; x.pc = CHECK; lab("W%d lets go of the lock", i); emit(n); return;
    case SNAP: x.seen = s.log; x.pc = m(M_EARLY_NUM) ? CHECK : NUMBER; lab("R%d begins its snapshot: sees %d", i, s.log); emit(n); return;
    case NUMBER: x.need = s.promised; x.pc = m(M_EARLY_NUM) ? SNAP : CHECK; lab("R%d needs %d", i, s.promised); emit(n); return;
    case CHECK: if (s.broken) { x.pc = REFUSED; lab("%d is refused", i); } else if (s.durable >= q.need) { lab("%d: is durable", i); answer(n, i); } else { x.before = m(M_YOUNG) && o.begun ? o.begun - 1 : o.begun; x.pc = PATIENCE; lab("%d waits, %d syncs have begun", i, o.begun); } emit(n); return;
    case PATIENCE:
      if (s.written >= q.need || s.durable >= q.need) { x.pc = LOOP; lab("%d: it is written", i); emit(n); return; }
      if (!s.lock || m(M_DEAD_HELD)) { n.written = max(n.written, q.need); lab("%d takes %d as written", i, q.need); emit(n); return; }
      if (!m(M_NUMBER)) { x.pc = LOOP; lab("%d has waited long enough for the writer", i); emit(n); }
      (void)patient; return;
    case LOOP:
      if (s.durable >= q.need || (!m(M_NUMBER) && o.ended > q.before)) { lab("%d: synced", i); answer(n, i); emit(n); return; }
      if (o.syncing) return;
      y.syncing = 1; y.begun++; y.thr = i; x.pc = SYNC_TO; lab("%d begins sync %d of P%d", i, y.begun, p); emit(n); return;
    case SYNC_TO: if (s.broken) { y.syncing = 0; x.pc = REFUSED; lab("%d is refused", i); emit(n); return; }
      y.to = m(M_PROMISED) ? s.promised : s.written; if (!o.open) { y.open = 1; y.pend = s.lost && !s.reported; } x.pc = SYNC_AT; lab("%d: the sync will count for %d", i, y.to); emit(n); return;
    case SYNC_AT: y.at = s.log; y.failed = o.pend; if (o.pend) { y.pend = 0; n.reported = 1; } x.pc = SYNC_END; lab("%d syncs %d: %s", i, s.log, y.failed ? "fails" : "goes"); emit(n); return;
    case SYNC_END:
      y.syncing = 0; if (o.failed && !m(M_DURABLE)) { if (!m(M_FORGIVE)) n.broken = 1; x.pc = REFUSED; lab("%d: the sync failed", i); emit(n); return; }
      if (o.pend) { y.syncing = 1; x.pc = SYNC_AT; lab("%d: what it wrote was refused in the meantime", i); emit(n); return; }
      if (!s.lost) n.disk = max(n.disk, o.at);
      n.durable = max(n.durable, m(M_LATE_TO) ? s.written : o.to); y.ended = o.begun; x.pc = LOOP; lab("%d: the sync has ended, durable %d, on the disk %d", i, n.durable, n.disk); emit(n); return; }
  }
  template <class F> void succ(const S &s, F &&emit) {
    for (int i = 0; i < c.n; i++) thread(s, i, true, emit);
    S n;
    if (s.dies) for (int p = 0; p < NPROC; p++) if (!s.p[p].dead) { n = s; n.dies--; n.p[p] = Proc(); n.p[p].dead = 1; if (s.lock == p + 1) n.lock = 0; lab("P%d dies", p); emit(n); }
    // the disk refuses unsynced pages of the log: they stay in memory, and count as clean
    if (s.faults && s.log > s.disk) { n = s; n.faults--; n.lost = 1; for (int p = 0; p < NPROC; p++) if (!s.p[p].dead && s.p[p].open) n.p[p].pend = 1; lab("the disk refuses a part of the log"); emit(n); }
  }
  const char *check(const S &s) {
    if (m(V_REACH)) { for (int i = 0; i < c.n; i++) if (s.t[i].pc != ANSWERED) return nullptr; return bm[3]; }
    if (s.bad) return bm[s.bad];
    // every other process is stopped: a reader ends by steps of its own process, and so does a
    // writer that has committed
    for (int i = 0; i < c.n; i++) { int p = c.proc[i]; if (s.p[p].dead || s.t[i].pc < CHECK) continue; S t = s; bool went = true;
      for (int k = 0; k < 80 && went && t.t[i].pc < ANSWERED; k++) { went = false; for (int j = 0; j < c.n && !went; j++) if (c.proc[j] == p && (j == i || (t.p[p].syncing && t.p[p].thr == j))) { S r; bool any = false; thread(t, j, false, [&](const S &x) { r = x; any = true; }); if (any) { t = r; went = true; } } }
      if (t.t[i].pc < ANSWERED) return bm[2]; }
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {
    {"two writers of two processes, a reader of a third", 3, {WRITER, WRITER, READER}, {0, 1, 2}, 1, 0, 0},
    {"two writers and a reader of two processes", 4, {WRITER, READER, WRITER, READER}, {0, 0, 1, 1}, 1, 0, 0},
    {"two readers of one process, a writer of another", 4, {WRITER, WRITER, READER, READER}, {0, 0, 1, 1}, 1, 0, 0},
    {"a disk that refuses, two writers and two readers", 4, {WRITER, WRITER, READER, READER}, {0, 1, 1, 2}, 0, 1, 0},
  };
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_NUMBER, "only the number of the writer counts"}, {M_PROMISED, "a sync counts for what is promised"}, {M_LATE_TO, "a sync counts for what is written when it ends"}, {M_YOUNG, "a sync that has begun already is enough"},
      {M_EARLY_NUM, "the number is read before the snapshot"}, {M_DEAD_HELD, "written is raised while the lock is held"}, {M_LAZY, "the log is opened for its first sync"}, {M_FORGIVE, "a failed sync is not noted"}, {M_DURABLE, "a failed sync counts"}};
    for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M m; m.c = c; MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) continue; dead = true; printf("%-50s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; }
      if (!dead) { printf("%-50s SURVIVES\n", u.name); bad++; } }
    return bad; }
  for (auto c : all) { if (reach) c.mut = V_REACH; M m; m.c = c; MC<M> mc; Res r = mc.run(m); report(c.name, r, !reach); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  return bad;
}
