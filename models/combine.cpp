// Writes of one process that another executes (src/engine/cross_process_commit.c). A process publishes a
// write in its record. The lock holder takes the published writes, and commits them with a proof of
// what it took. Processes stop for ever between two steps, or die, and come again. The machine's
// log may contain more than its index shows. See README.md.
#include "mc.hpp"
enum { NP = 3, NN = 2, NLOG = 8 };
enum Mut : u32 {
  M_NO_PROOF = 1,     // a write that a dead process had taken counts as not committed
  M_TRUST = 2,        // ... as committed
  M_NO_MARK = 4,      // ... and is returned without a commit after it
  M_NO_SETTLE = 8,    // the next lock holder does not check what a dead one had taken
  M_LATE = 16,        // answers are published after the lock is released
  M_WITHDRAW = 32,    // a taken write is withdrawn
  M_REUSE = 64,       // a new life begins with the numbers of the old one
  M_NO_WAIT = 128,    // an answer counts before it is on the disk
  M_OVER_TAKEN = 256, // a new life writes over a taken record
  M_EARLY = 512,      // answers are published before the commit is seen
  // a proof is of the group alone, though nothing was settled: the writes of a dead process are
  // checked after the commit
  M_ADD = 1024,
  V_REACH = 2048,     // not a mutant: reports a state in which all are reported as done, one of them by another's commit
};
enum { FREE, POSTED, TAKEN, ANSWERED, RETURNED };
enum { IDLE, WROTE, WAIT, DIRECT, LOCKED, MARK_LOG, MARK_SEEN, RETURN, TAKE, RUN, LOGGED, SEEN, PUBLISH, UNLOCK, LATE, DISK, TOLD, DEAD };
enum { NOTHING, DONE, GAVE_UP };
struct Proc { u8 pc, num, own, posted, promise, lives; u8 mine, back; };
struct Rec { u8 state, num, promise; };
struct Commit { u8 did, proof; };
struct St { u8 lock, seen, limbo, disk, dies, fails, others; Proc p[NP]; Rec r[NP]; Commit log[NLOG]; u8 told[NP * NN]; };
static const char *bm[] = {"", "done twice", "reported as done, and it is not on the disk", "reported as not done, and it is", "another process waits for ever", "REACHED"};
struct Cfg { const char *name; int n, numbers, dies, fails; u32 mut; };
struct M {
  typedef St S; Cfg c; S last;
  bool m(u32 x) const { return c.mut & x; }
  static u8 bit(int p, int num) { return (u8)(1u << (p * NN + num - 1)); }
  void init(S &s) { s.dies = c.dies; s.fails = c.fails; for (int p = 0; p < NP; p++) { s.p[p].num = 1; s.p[p].pc = p < c.n ? IDLE : DEAD; } }
  static u8 proof(const S &s) { return s.seen ? s.log[s.seen - 1].proof : 0; }
  static void tell(S &n, int p, u8 what) { Proc &y = n.p[p]; n.told[p * NN + y.num - 1] = what; y.pc = TOLD; y.own = y.posted = y.promise = 0; }
  static bool write_log(S &n, u8 did, u8 of) { if (n.seen >= NLOG) return false; n.log[n.seen].did = did; n.log[n.seen].proof = of; n.limbo = 1; return true; }
  template <class F> void steps(const S &s, int p, F &&emit) const {
    const Proc &o = s.p[p]; const Rec &rec = s.r[p]; S n = s; Proc &y = n.p[p];
    switch (o.pc) {
    case IDLE:
      if (!s.lock) { n.lock = p + 1; y.own = 1; y.pc = LOCKED; lab("P%d takes the lock", p); emit(n); }
      n = s;
      if (rec.state == POSTED) { n.r[p].state = FREE; lab("P%d takes back what a life before has published", p); emit(n); return; }
      if (rec.state == TAKEN && !m(M_OVER_TAKEN)) return;
      n.r[p].num = o.num; y.pc = WROTE; lab("P%d writes number %d into its record", p, o.num); emit(n); return;
    case WROTE: n.r[p].state = POSTED; y.posted = 1; y.pc = WAIT; lab("P%d publishes number %d", p, o.num); emit(n); return;
    case WAIT:
      if (rec.state == ANSWERED) { y.promise = rec.promise; n.r[p].state = FREE; y.posted = 0; y.pc = DISK; lab("P%d finds an answer", p); emit(n); return; }
      if (rec.state == RETURNED) { n.r[p].state = FREE; y.posted = 0; y.pc = DIRECT; lab("P%d finds its write returned", p); emit(n); return; }
      if (rec.state == POSTED || m(M_WITHDRAW)) { n.r[p].state = FREE; tell(n, p, GAVE_UP); lab("P%d gives up", p); emit(n); }
      n = s;
      if (!s.lock) { n.lock = p + 1; y.pc = LOCKED; lab("P%d takes the lock, its write is published", p); emit(n); }
      return;
    case DIRECT:
      if (!s.lock) { n.lock = p + 1; y.own = 1; y.pc = LOCKED; lab("P%d takes the lock for its returned write", p); emit(n); }
      n = s; tell(n, p, GAVE_UP); lab("P%d gives up its returned write", p); emit(n); return;
    case LOCKED: // settles, one record in each step
      if (!m(M_NO_SETTLE) && !m(M_ADD)) for (int q = 0; q < c.n; q++) if (s.r[q].state == TAKEN && !(o.back >> q & 1)) {
        bool did = m(M_TRUST) || (!m(M_NO_PROOF) && (proof(s) & bit(q, s.r[q].num)));
        if (did) { n.r[q].state = ANSWERED; n.r[q].promise = s.seen; } else y.back |= 1u << q;
        lab("P%d settles number %d of P%d: it was %s", p, s.r[q].num, q, did ? "committed" : "not"); emit(n); return; }
      y.pc = !o.back ? TAKE : m(M_NO_MARK) ? RETURN : MARK_LOG; lab("P%d has settled", p); emit(n); return;
    case MARK_LOG: if (!write_log(n, 0, proof(s))) return; y.pc = MARK_SEEN; lab("P%d writes a mark to the log", p); emit(n); return;
    case MARK_SEEN: n.seen++; n.limbo = 0; y.pc = RETURN; lab("P%d: the mark is seen", p); emit(n); return;
    case RETURN: for (int q = 0; q < c.n; q++) if (o.back >> q & 1) { n.r[q].state = RETURNED; y.back &= ~(1u << q); lab("P%d returns the write of P%d", p, q); emit(n); return; }
      y.pc = TAKE; lab("P%d has returned all", p); emit(n); return;
    case TAKE:
      if (o.posted && !o.own) { if (rec.state == POSTED) { n.r[p].state = FREE; y.own = 1; y.posted = 0; lab("P%d takes its own write back", p); emit(n); return; } }
      for (int q = 0; q < c.n; q++) if (q != p && s.r[q].state == POSTED) { n.r[q].state = TAKEN; y.mine |= 1u << q; lab("P%d takes number %d of P%d", p, s.r[q].num, q); emit(n); n = s; }
      y.pc = o.own || o.mine ? RUN : UNLOCK; lab("P%d has taken enough", p); emit(n); return;
    case RUN: {
      u8 did = o.own ? bit(p, o.num) : 0, of = 0;
      for (int q = 0; q < c.n; q++) if (o.mine >> q & 1) { did |= bit(q, s.r[q].num); of |= bit(q, s.r[q].num); }
      if (m(M_EARLY)) for (int q = 0; q < c.n; q++) if (o.mine >> q & 1) { n.r[q].state = ANSWERED; n.r[q].promise = s.seen + 1; }
      if (write_log(n, did, of ? of : proof(s))) { y.pc = LOGGED; lab("P%d writes its group to the log", p); emit(n); }
      n = s;
      if (s.fails) { n.fails--; for (int q = 0; q < c.n; q++) if (o.mine >> q & 1) n.r[q].state = RETURNED; y.mine = 0; n.lock = 0; tell(n, p, o.own ? (u8)GAVE_UP : (u8)NOTHING); if (!o.own) y.pc = WAIT, y.posted = 1; lab("P%d: the disk is full, all is returned", p); emit(n); }
      return; }
    case LOGGED: n.seen++; n.limbo = 0; y.promise = n.seen; y.pc = m(M_LATE) || m(M_EARLY) ? UNLOCK : PUBLISH; lab("P%d: its commit is seen", p); emit(n); return;
    case PUBLISH: case LATE:
      for (int q = 0; q < c.n; q++) if (o.mine >> q & 1) { n.r[q].state = ANSWERED; n.r[q].promise = o.promise; y.mine &= ~(1u << q); lab("P%d publishes the answer to P%d", p, q); emit(n); return; }
      if (m(M_ADD)) for (int q = 0; q < c.n; q++) if (s.r[q].state == TAKEN) { bool did = proof(s) & bit(q, s.r[q].num); n.r[q].state = did ? ANSWERED : RETURNED; n.r[q].promise = s.seen; lab("P%d settles P%d late", p, q); emit(n); return; }
      y.pc = o.pc == LATE ? (o.own ? DISK : WAIT) : UNLOCK; lab("P%d has published all", p); emit(n); return;
    case UNLOCK: n.lock = 0; y.pc = m(M_LATE) && o.mine ? LATE : o.own ? DISK : WAIT; if (m(M_EARLY)) y.mine = 0; lab("P%d lets go of the lock", p); emit(n); return;
    case DISK:
      if (s.disk >= o.promise || m(M_NO_WAIT)) { tell(n, p, DONE); lab("P%d is reported as done", p); emit(n); return; }
      n.disk = s.seen; lab("P%d syncs", p); emit(n); return;
    case TOLD: if (o.num >= c.numbers) return; y.num++; y.pc = IDLE; lab("P%d goes on to number %d", p, y.num); emit(n); return;
    case DEAD: if (o.num >= c.numbers || p >= c.n) return; if (m(M_REUSE)) { if (o.lives) return; } else y.num++; y.lives = 1; y.pc = IDLE; lab("P%d comes again, with number %d", p, y.num); emit(n); return;
    }
  }
  template <class F> void succ(const S &s, F &&emit) {
    for (int p = 0; p < c.n; p++) steps(s, p, emit);
    bool all = true; S n;
    for (int p = 0; p < c.n; p++) all = all && s.p[p].pc == DEAD;
    if (s.dies) for (int p = 0; p < c.n; p++) if (s.p[p].pc != DEAD) {
      n = s; n.dies--; u8 num = s.p[p].num, lives = s.p[p].lives; n.p[p] = Proc(); n.p[p].num = num; n.p[p].lives = lives; n.p[p].pc = DEAD; if (s.lock == p + 1) n.lock = 0; lab("P%d dies", p); emit(n); }
    // no process has the file open: the stored entry whole in the log counts, whether its index
    // knew of it or not
    if (all && s.limbo) { n = s; n.seen++; n.limbo = 0; lab("the log is read again"); emit(n); }
  }
  const char *check(const S &s) {
    bool reached = true, by_another = false;
    for (int p = 0; p < c.n; p++) for (int k = 1; k <= c.numbers; k++) {
      int times = 0, safe = 0; u8 b = bit(p, k), told = s.told[p * NN + k - 1];
      for (int i = 0; i < s.seen; i++) if (s.log[i].did & b) { times++; if (i < s.disk) safe = 1; if (s.log[i].proof & b) by_another = true; }
      if (times > 1 && !m(M_REUSE)) return bm[1];
      if (told == DONE && !safe) return bm[2];
      if (told == GAVE_UP && times) return bm[3];
      if (told != DONE) reached = false;
    }
    if (m(V_REACH)) return reached && by_another ? bm[5] : nullptr;
    // every other process is stopped: a process that finds the lock free, or has it, ends by steps
    // of its own
    for (int p = 0; p < c.n; p++) { if (s.p[p].pc == IDLE || s.p[p].pc == TOLD || s.p[p].pc == DEAD || (s.lock && s.lock != p + 1)) continue; S t = s;
      for (int k = 0; k < 60 && t.p[p].pc != TOLD; k++) { S r = t; bool any = false; u8 pc = t.p[p].pc; steps(t, p, [&](const S &x) { if (!any || pc == WAIT) r = x; any = true; }); t = r; if (!any) break; }
      if (t.p[p].pc != TOLD && t.seen < NLOG) return bm[4]; }
    return nullptr;
  }
  const char *terminal(const S &s) { for (int p = 0; p < c.n; p++) if (s.p[p].pc != TOLD && s.p[p].pc != DEAD) return bm[4]; return nullptr; }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {
    {"two processes, a death", 2, 2, 1, 0, 0},
    {"two processes, two deaths", 2, 2, 2, 0, 0},
    {"three processes, a write each, two deaths", 3, 1, 2, 0, 0},
    {"three processes, a write each, all die", 3, 1, 3, 0, 0},
    {"two processes, a full disk, a death", 2, 2, 1, 1, 0},
  };
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_NO_PROOF, "what a dead one had taken counts as not committed"}, {M_TRUST, "... as committed"}, {M_NO_MARK, "it is returned without a mark"}, {M_NO_SETTLE, "no process settles"},
      {M_LATE, "answers come after the lock"}, {M_WITHDRAW, "what is taken is withdrawn"}, {M_REUSE, "numbers begin again"}, {M_NO_WAIT, "no process waits for the disk"}, {M_OVER_TAKEN, "a taken record is written over"}, {M_EARLY, "answers come before the commit is seen"}, {M_ADD, "settled behind the commit"}};
    for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M m; m.c = c; MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) continue; dead = true; printf("%-50s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; }
      if (!dead) { printf("%-50s SURVIVES\n", u.name); bad++; } }
    return bad; }
  for (auto c : all) { if (reach) c.mut = V_REACH; M m; m.c = c; MC<M> mc; Res r = mc.run(m); report(c.name, r, !reach); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  return bad;
}
