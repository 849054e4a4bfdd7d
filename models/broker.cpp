// A consumer of a message broker (src/broker): invariants BC1 to BC4 of consumer.c and BI1 to BI3 of
// inbox.h. A commit is one step here; the models of commits show that this is true. Consumers stop
// for ever between two steps, connections fail, and commits without an answer land at any later
// time. See README.md.
#include "mc.hpp"
enum { NC = 2, NM = 3, COPIES = 4 };
enum { IN, OUT, GONE };
enum { KEEP_NONE, RAISED, REMOVED };
enum Mut : u32 {
  M_ACK = 1,       // a message is acknowledged before the commit
  M_AFTER = 2,     // the record is written after the effect
  M_BEFORE = 4,    // the record is written before the effect
  M_LOOK = 8,      // records and positions are read when the batch arrives, not in the commit
  M_NONE = 16,     // there are no records
  M_REJECT = 32,   // a bad message is acknowledged without a reject
  M_REMOVE = 64,   // records are removed before the horizon is raised
  M_HORIZON = 128, // the horizon is read when the batch arrives
  M_OLD = 256,     // the horizon is not compared
  M_CURSOR = 512,  // after a failure, the consumer of a log continues where it was
  M_MOVE = 1024,   // the position moves when the batch arrives
  M_GUARD = 2048,  // the position is set without comparing
  V_REACH = 4096,
};
// Copies 0, 1, 2 are the messages 0, 1, 2; copy 3 is message 0 again. Message 1 is bad. Message 0 is
// older than the horizon that the collector sets.
static const u8 message_of[COPIES] = {0, 1, 2, 0};
struct Consumer { u8 pc, batch, seen, horizon, cursor; };
struct St { u8 copy[COPIES], holder[COPIES], effect[NM], reject[NM], record[NM], horizon, collector, next, late, lbatch, lseen, lhorizon, fails, lates, bad; Consumer c[NC]; };
struct Cfg { const char *name; bool log, collects; u8 fails, lates; u32 mut; };
struct M {
  typedef St S; Cfg c; S last;
  bool m(u32 x) const { return c.mut & x; }
  void init(S &s) { s.fails = c.fails; s.lates = c.lates; }
  u8 seen_now(const S &s) const { u8 x = 0; for (int i = 0; i < NM; i++) x |= s.record[i] << i; return c.log ? s.next : x; }
  // one message takes effect, or is a reject
  void apply(S &n, int msg) const { if (msg == 1) { if (!m(M_REJECT)) n.reject[msg] = 1; } else { n.effect[msg]++; } }
  void commit(S &n, u8 batch, u8 seen, u8 horizon) const {
    if (c.log) {
      u8 from = m(M_LOOK) ? seen : n.next;
      for (int i = 0; i < NM; i++) if (batch >> i & 1 && (i >= from || m(M_NONE))) apply(n, i);
      u8 to = 0; for (int i = 0; i < NM; i++) if (batch >> i & 1) to = i + 1;
      if (to > n.next || m(M_GUARD)) n.next = to;
      return;
    }
    for (int i = 0; i < COPIES; i++) { if (!(batch >> i & 1)) continue;
      int msg = message_of[i]; bool known = m(M_NONE) ? false : m(M_LOOK) ? seen >> msg & 1 : n.record[msg];
      u8 h = m(M_HORIZON) ? horizon : n.horizon;
      if (msg == 1) { apply(n, msg); continue; }
      if (known) continue;
      if (msg == 0 && h && !m(M_OLD)) { n.reject[msg] = 1; continue; }
      if (!m(M_BEFORE)) apply(n, msg);
      if (!m(M_AFTER)) n.record[msg] = 1;
      if (m(M_LOOK)) seen |= 1 << msg;
    }
  }
  void requeue(S &n, int i) const { for (int k = 0; k < COPIES; k++) if (n.copy[k] == OUT && n.holder[k] == i + 1) { n.copy[k] = IN; n.holder[k] = 0; } }
  void fail(S &n, int i) const { requeue(n, i); u8 cursor = n.c[i].cursor; memset(&n.c[i], 0, sizeof n.c[i]); n.c[i].cursor = m(M_CURSOR) ? cursor : 0xff; }
  void acknowledge(S &n, int i) const { for (int k = 0; k < COPIES; k++) if (n.copy[k] == OUT && n.holder[k] == i + 1) { n.copy[k] = GONE; n.holder[k] = 0; } }
  template <class F> void succ(const S &s, F &&emit) {
    S n;
    for (int i = 0; i < NC; i++) { const Consumer &q = s.c[i];
      if (q.pc && s.fails) { n = s; n.fails--; fail(n, i); lab("C%d fails, and connects again", i); emit(n); }
      switch (q.pc) {
      case 0:
        if (c.log) { // both consumers may have the partition: one of them does not know that it lost it
          u8 from = q.cursor == 0xff || !q.cursor ? s.next : q.cursor; if (from >= NM) break;
          for (int to = from + 1; to <= NM; to++) { n = s; n.c[i].batch = ((1 << to) - 1) & ~((1 << from) - 1); n.c[i].cursor = to; n.c[i].seen = seen_now(s); n.c[i].pc = 1; if (m(M_MOVE) && to > n.next) n.next = to; lab("C%d receives the offsets %d to %d", i, from, to - 1); emit(n); }
          break; }
        for (int mask = 1; mask < 1 << COPIES; mask++) { bool good = true; for (int k = 0; k < COPIES; k++) if (mask >> k & 1 && s.copy[k] != IN) good = false;
          if (!good) continue;
          n = s; for (int k = 0; k < COPIES; k++) if (mask >> k & 1) { n.copy[k] = OUT; n.holder[k] = i + 1; }
          n.c[i].batch = mask; n.c[i].seen = seen_now(s); n.c[i].horizon = s.horizon; n.c[i].pc = 1; lab("C%d receives the copies %x", i, mask);
          if (m(M_ACK)) acknowledge(n, i);
          emit(n); }
        break;
      case 1:
        n = s; commit(n, q.batch, q.seen, q.horizon); n.c[i].pc = m(M_AFTER | M_BEFORE) && !c.log ? 2 : 3; lab("C%d commits", i); emit(n);
        if (s.lates && !s.late) { n = s; n.lates--; n.late = 1; n.lbatch = q.batch; n.lseen = q.seen; n.lhorizon = q.horizon; fail(n, i); lab("C%d commits without an answer", i); emit(n); } break;
      case 2: n = s; for (int k = 0; k < COPIES; k++) if (q.batch >> k & 1) { if (m(M_AFTER)) n.record[message_of[k]] = 1; else if (!(q.seen >> message_of[k] & 1)) { apply(n, message_of[k]); n.c[i].seen |= 1 << message_of[k]; } } n.c[i].pc = 3; lab("C%d does the second part", i); emit(n); break;
      case 3: n = s; acknowledge(n, i); { u8 cursor = q.cursor; memset(&n.c[i], 0, sizeof n.c[i]); n.c[i].cursor = cursor; } lab("C%d acknowledges", i); emit(n); break;
      } }
    if (s.late) { n = s; n.late = 0; commit(n, s.lbatch, s.lseen, s.lhorizon); lab("the late commit lands"); emit(n); }
    if (c.collects && !c.log && s.collector < 2) { n = s; bool raise = m(M_REMOVE) ? s.collector == 1 : s.collector == 0; if (raise) n.horizon = 1; else n.record[0] = 0; n.collector++; lab(raise ? "the horizon is raised" : "old records are removed"); emit(n); }
  }
  bool handled(const S &s, int msg) const { return s.effect[msg] || s.reject[msg]; }
  const char *check(const S &s) {
    bool all = true; for (int i = 0; i < NM; i++) all = all && handled(s, i);
    if (m(V_REACH)) { for (int k = 0; k < COPIES && !c.log; k++) all = all && s.copy[k] == GONE; return all ? "REACHED" : nullptr; }
    for (int i = 0; i < NM; i++) if (s.effect[i] > 1) return "a message has two effects";
    if (s.effect[1]) return "a bad message has an effect";
    for (int k = 0; k < COPIES && !c.log; k++) if (s.copy[k] == GONE && !handled(s, message_of[k])) return "a message is acknowledged and lost";
    for (int i = 0; i < s.next && c.log; i++) if (!handled(s, i)) return "a position passes a message without effect";
    return nullptr;
  }
  const char *terminal(const S &s) { for (int i = 0; i < NM; i++) if (!handled(s, i)) return "a message has no effect at the end"; return nullptr; }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {
    {"a queue, two consumers", false, false, 2, 1, 0},
    {"a queue, records are collected", false, true, 1, 1, 0},
    {"a log, two consumers of one partition", true, false, 3, 1, 0},
  };
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_ACK, "acknowledged before the commit"}, {M_AFTER, "the record is written after the effect"}, {M_BEFORE, "the record is written before the effect"}, {M_LOOK, "records are read before the commit"}, {M_NONE, "no records"}, {M_REJECT, "no reject is stored"}, {M_REMOVE, "records are removed before the horizon is raised"}, {M_HORIZON, "the horizon is read before the commit"}, {M_OLD, "the horizon is not compared"},
      {M_CURSOR, "a log is read on after a failure"}, {M_MOVE, "the position moves at the receipt"}, {M_GUARD, "the position is not compared"}};
    for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M m; m.c = c; MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) continue; dead = true; printf("%-50s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; }
      if (!dead) { printf("%-50s SURVIVES\n", u.name); bad++; } }
    return bad; }
  for (auto c : all) { if (reach) c.mut = V_REACH; M m; m.c = c; MC<M> mc; Res r = mc.run(m); report(c.name, r, !reach); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  return bad;
}
