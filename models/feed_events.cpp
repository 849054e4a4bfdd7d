// A publisher of the feed of changes (invariants BF1 to BF4 of src/broker/feed_events.h). Two publishers with one name read
// the feed, send events, and store the position. The broker takes or refuses each message by itself. Publishers stop
// for ever or fail between two steps, and messages of a dead connection arrive at any later time. See README.md.
#include "mc.hpp"
enum { NP = 2, NE = 4 };
enum { READS = 0, STORES = 1 };
enum Mut : u32 {
  M_EARLY = 1, // the position is stored when the events were sent
  M_KEY = 2,   // events of one key are sent without waiting for confirms
  M_SKIP = 4,  // after a failure, the publisher continues after the events that it sent
  M_GAP = 8,   // the publisher continues at the horizon if its position was removed
  M_PART = 16, // confirms are counted, whichever messages they are for
  V_REACH = 32,
};
// The events 1 to 4 (bits 0 to 3). The events 1, 2, and 4 have one key.
static const u8 key_of[NE] = {0, 0, 1, 0};
struct Pub { u8 pc, cursor, sent, flying, confirmed, failed, ended; };
struct St { u8 stored, seen, horizon, late[NE], lates, fails, refuses, prunes, wrong; Pub p[NP]; };
struct Cfg { const char *name; u8 fails, refuses, prunes; u32 mut; };
struct M {
  typedef St S; Cfg c; S last;
  bool m(u32 x) const { return c.mut & x; }
  void init(S &s) { s.fails = c.fails; s.refuses = c.refuses; s.prunes = c.prunes; }
  // an event reaches the queue; its first copy must not come before the first copy of an earlier event of its key
  void take(S &n, int e) const {
    if (!(n.seen >> e & 1)) for (int i = 0; i < e; i++) if (key_of[i] == key_of[e] && !(n.seen >> i & 1)) n.wrong = 1;
    n.seen |= 1 << e;
  }
  // the connection is gone; messages in flight are late
  void drop(S &n, int i, u8 cursor) const {
    Pub &q = n.p[i];
    for (int e = 0; e < NE; e++) if (q.flying >> e & 1 && n.lates < NE) n.late[n.lates++] = e;
    u8 ended = q.ended; memset(&q, 0, sizeof q); q.cursor = q.sent = cursor; q.ended = ended;
  }
  template <class F> void succ(const S &s, F &&emit) {
    S n;
    for (int i = 0; i < NP; i++) { const Pub &q = s.p[i];
      if (q.ended) continue;
      // the own cursor, at first the stored position; below the horizon, the publisher ends with an error
      u8 from = q.cursor > s.stored || q.sent > q.cursor ? q.cursor : s.stored;
      if (q.sent == q.cursor && from < s.horizon) { n = s; if (m(M_GAP)) n.p[i].cursor = n.p[i].sent = s.horizon; else n.p[i].ended = 1; lab("P%d finds that changes were removed", i); emit(n); continue; }
      u8 next = q.sent > from ? q.sent : from;
      if (q.pc == READS && next < NE && !q.failed) { bool waits = false;
        for (int e = 0; e < NE; e++) waits = waits || (q.flying >> e & 1 && key_of[e] == key_of[next]);
        if (!waits || m(M_KEY)) { n = s; if (q.sent == q.cursor) n.p[i].cursor = from; n.p[i].flying |= 1 << next; n.p[i].sent = next + 1; lab("P%d sends event %d", i, next + 1); emit(n); } }
      // the broker takes the messages of a connection in their order
      for (int e = 0; e < NE; e++) if (q.flying >> e & 1) {
        n = s; take(n, e); n.p[i].flying &= ~(1 << e); n.p[i].confirmed |= 1 << e; lab("the broker confirms event %d of P%d", e + 1, i); emit(n);
        if (s.refuses) { n = s; n.refuses--; n.p[i].flying &= ~(1 << e); n.p[i].failed = !m(M_PART); lab("the broker refuses event %d of P%d", e + 1, i); emit(n); }
        break; }
      if (q.sent > q.cursor && q.pc == READS && (!q.flying || m(M_EARLY)) && !q.failed) { n = s; n.p[i].pc = STORES; lab("P%d has all confirms", i); emit(n); }
      if (q.pc == STORES) { n = s; n.stored = q.sent; n.p[i].cursor = q.sent; n.p[i].confirmed = 0; n.p[i].pc = READS; lab("P%d stores position %d", i, q.sent); emit(n); }
      if (q.failed) { n = s; drop(n, i, m(M_SKIP) ? q.sent : q.cursor); lab("P%d connects again", i); emit(n); }
      if (s.fails) { n = s; n.fails--; drop(n, i, m(M_SKIP) ? q.sent : 0); lab("P%d dies and begins again", i); emit(n); }
    }
    for (int k = 0; k < s.lates; k++) {
      n = s; take(n, s.late[k]); for (int j = k; j + 1 < s.lates; j++) n.late[j] = n.late[j + 1]; n.late[--n.lates] = 0; lab("late event %d arrives", s.late[k] + 1); emit(n);
      n = s; for (int j = k; j + 1 < s.lates; j++) n.late[j] = n.late[j + 1]; n.late[--n.lates] = 0; lab("late event %d is lost", s.late[k] + 1); emit(n); }
    if (s.prunes && s.horizon < NE - 1) { n = s; n.prunes--; n.horizon++; lab("change %d is removed from the feed", n.horizon); emit(n); }
  }
  const char *check(const S &s) {
    if (m(V_REACH)) return s.seen == (1 << NE) - 1 && s.stored == NE ? "REACHED" : nullptr;
    if (s.wrong) return "events of one key come in the wrong order";
    for (int e = 0; e < s.stored; e++) if (!(s.seen >> e & 1)) return "the position passes an event that was not published";
    return nullptr;
  }
  const char *terminal(const S &s) {
    for (int i = 0; i < NP; i++) if (s.p[i].ended) return nullptr; // with an error
    return s.seen == (1 << NE) - 1 ? nullptr : "an event is never published";
  }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {
    {"failures", 2, 0, 0, 0},
    {"a broker that refuses messages", 1, 1, 0, 0},
    {"old changes are removed", 1, 0, 2, 0},
  };
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_EARLY, "the position is stored before the confirms"}, {M_KEY, "two events of one key are in flight"}, {M_SKIP, "after a failure, sent events are skipped"}, {M_GAP, "removed changes are skipped"}, {M_PART, "a refused message is ignored"}};
    for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M m; m.c = c; MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) continue; dead = true; printf("%-50s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; }
      if (!dead) { printf("%-50s SURVIVES\n", u.name); bad++; } }
    return bad; }
  for (auto c : all) { if (reach) c.mut = V_REACH; M m; m.c = c; MC<M> mc; Res r = mc.run(m); report(c.name, r, !reach); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  return bad;
}
