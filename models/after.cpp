// Jobs that wait for others (src/patterns/queue/workflow.c): the numbers QW1 to QW5 of its essay,
// with ends of all kinds, ends by hand, retries, joins at any time, batches, and more successors
// than one commit notifies. A commit is one step here: the models of commits show that it is one
// step even if processes die. Mutants cut it in two, and die between. See README.md.
#include "mc.hpp"
enum { N = 4, TOLD_MAX = 1 };
enum State { NONE, BLOCKED, READY, RUNNING, DONE, DEAD, CANCELLED };
enum Failure { CANCEL, GO_ON, WAIT };
enum Mut : u32 {
  M_TOLD_APART = 1,     // the jobs that are notified are counted down in another commit
  M_END_APART = 2,      // the end notifies in another commit
  M_NO_STALL = 4,       // a job that one commit could not notify is not marked
  M_CANCELLED_COUNTS = 8, // the remains of a cancelled job stay
  M_ALONE = 16,         // a cancelled job notifies no job
  M_JOIN_APART = 32,    // a joining job reads first, and is stored later
  M_AGAIN_ANY = 64,     // a retry of one is enough for a job that failed because of two
  M_AGAIN_FREE = 128,   // a retried job does not count
  M_AGAIN_ALL = 256,    // a job that was cancelled by hand is retried, too
  M_HAND_MARKED = 512,  // a job that was retried by hand keeps its marks
  M_HAND_AT_ONCE = 1024, // a job that is retried by hand waits for no job
  M_SECOND_MUTE = 2048, // the second failure does not mark
  M_AGAIN_ALONE = 4096, // the successors of a retried job stay
  M_OPEN_FREE = 8192,   // an open batch does not count
  M_BATCH_LATE = 16384, // a batch is joined although its closing job went
  M_AGAIN_TOLD = 32768, // a retried job stays among the notified ones
  V_REACH = 1u << 30,
};
struct Cfg { std::string name; u8 after[N]; u8 failure[N]; u8 late, open; int fails, hands, again; u32 mut; };  // after[x]: bits of those that x waits for; late: added at any time; open: closing job + 1, which all of `late` join
struct Job { u8 st, left, then, notified, failed, stalled, runs, free, hand; };  // free: retried by hand, without these; hand: ended by hand
// owes + 1 notifies `owed` later; joiner + 1 read `joins`
struct St { Job j[N]; u8 fails, hands, again, closed, bad, owes, owed, joins, joiner, end; };
static const char *bm[] = {"", "a job goes before those that it waits for", "a job runs twice in one life", "what is left is not how many name it", "one is named twice, or nowhere", "no process waits for anything, and a job is blocked", "a job waits for ever", "marked by one that has not failed", "what was ended by hand lives again", "REACHED"};
struct M {
  typedef St S; Cfg cfg; St last; M(const Cfg &c) : cfg(c) {}
  bool m(u32 x) const { return cfg.mut & x; }
  static bool live(const Job &j) { return j.st == BLOCKED || j.st == READY || j.st == RUNNING; }
  bool open(const S &s, int x) const { return cfg.open == x + 1 && !s.closed; }
  u8 waits(int x) const { u8 w = cfg.after[x]; if (cfg.open == x + 1) for (int i = 0; i < N; i++) if (cfg.late >> i & 1) w |= 1 << i; return w; }
  void init(S &s) { s.fails = cfg.fails; s.hands = cfg.hands; s.again = cfg.again;
    for (int x = 0; x < N; x++) if (!(cfg.late >> x & 1)) add(s, x); if (!cfg.open) s.closed = 1; }
  // outcome of the end `e` of one for x
  int outcome(u8 e, int x) const { return e == DONE || cfg.failure[x] == GO_ON ? 0 : e == DEAD && cfg.failure[x] == WAIT ? 1 : 2; }
  bool add(S &s, int x) const { Job &j = s.j[x]; j.st = READY; u8 left = open(s, x) && !m(M_OPEN_FREE);
    for (int p = 0; p < N; p++) if (cfg.after[x] >> p & 1) { Job &q = s.j[p]; if (q.st == NONE) return false;
      int o = live(q) ? 1 : outcome(q.st, x); if (o == 2) return false; if (o == 1) { q.then |= 1 << x; left++; } else q.notified |= 1 << x; }
    if (cfg.open && (cfg.late >> x & 1)) { Job &c = s.j[cfg.open - 1]; if (c.st != BLOCKED && !m(M_BATCH_LATE)) return false; c.left++; j.then |= 1 << (cfg.open - 1); }
    j.left = left; if (left || open(s, x)) j.st = BLOCKED; if (m(M_OPEN_FREE) && !left) j.st = READY; go_check(s, x); return true; }
  void go_check(S &s, int x) const { const Job &j = s.j[x]; if (j.st != READY) return; if (open(s, x)) s.bad = 1;
    for (int p = 0; p < N; p++) if (((waits(x) & ~j.free) >> p & 1) && s.j[p].st != NONE && (live(s.j[p]) ? cfg.failure[x] != GO_ON || (s.j[p].then >> x & 1) : outcome(s.j[p].st, x) != 0)) s.bad = 1; }
  void down(S &s, int x) const { Job &j = s.j[x]; if (j.left) j.left--; if (j.st == BLOCKED && !j.left) { j.st = READY; go_check(s, x); } }
  // p, which has ended, notifies up to TOLD_MAX
  void tell(S &s, int p0) const { int list[N], count = 1, notified = 0; list[0] = p0;
    for (int i = 0; i < count; i++) { Job &p = s.j[list[i]]; p.stalled = 0; if (i && m(M_ALONE)) continue;
      for (int x = 0; x < N; x++) { if (!(p.then >> x & 1)) continue; if (notified >= TOLD_MAX) { if (!m(M_NO_STALL)) p.stalled = 1; continue; }
        notified++; int o = outcome(p.st, x); if (o == 1) continue; p.then &= ~(1 << x); p.notified |= 1 << x; Job &j = s.j[x];
        if (m(M_TOLD_APART) && !s.owes && o == 0) { s.owes = 1; s.owed = x; continue; }
        if (o == 0) { down(s, x); continue; }
        if (j.left && !(m(M_CANCELLED_COUNTS) && j.st != BLOCKED)) j.left--;
        if (j.st == BLOCKED || (j.st == CANCELLED && j.failed && !m(M_SECOND_MUTE))) j.failed |= 1 << list[i];
        if (j.st == BLOCKED) { j.st = CANCELLED; list[count++] = x; } } } }
  void end(S &s, int x, u8 st) const { s.j[x].st = st; s.j[x].failed = 0; if (m(M_END_APART) && !s.end) s.end = x + 1; else tell(s, x); }
  void again(S &s, int p0) const { int list[N], count = 1; list[0] = p0;
    for (int i = 0; i < count; i++) { int p = list[i]; if (i && m(M_AGAIN_ALONE)) continue;
      for (int x = 0; x < N; x++) { Job &j = s.j[x]; if (!(s.j[p].notified >> x & 1) || j.st != CANCELLED) continue;
        if (!(j.failed >> p & 1) && !(m(M_AGAIN_ALL) && !j.failed)) continue;
        if (!m(M_AGAIN_TOLD)) s.j[p].notified &= ~(1 << x);
        s.j[p].then |= 1 << x; if (!m(M_AGAIN_FREE)) j.left++; j.failed &= ~(1 << p); j.free &= ~(1 << p); if (m(M_AGAIN_ANY)) j.failed = 0;
        if (!j.failed) { if (j.hand) s.bad = 8; j.st = BLOCKED; j.stalled = 0; list[count++] = x; } } } }
  template <class F> void succ(const S &s, F &&emit) { S n; if (s.bad) return;
    if (s.owes == 1) { n = s; n.owes = 0; n.owed = 0; down(n, s.owed); lab("%c is counted down", 'a' + s.owed); emit(n); n = s; n.owes = 2; lab("its worker dies"); emit(n); }
    if (s.end && s.end < 100) { n = s; n.end = 0; tell(n, s.end - 1); lab("%c tells", 'a' + s.end - 1); emit(n); n = s; n.end = 100; lab("its worker dies"); emit(n); }
    if (s.joiner) { n = s; int x = s.joiner - 1; n.joiner = n.joins = 0; Job &j = n.j[x]; j.st = READY; for (int p = 0; p < N; p++) if (s.joins >> p & 1) { n.j[p].then |= 1 << x; j.left++; j.st = BLOCKED; } else if (cfg.after[x] >> p & 1) n.j[p].notified |= 1 << x; lab("%c is written down", 'a' + x); emit(n); }
    for (int x = 0; x < N; x++) { const Job &q = s.j[x];
      if (q.st == NONE && (cfg.late >> x & 1)) {
        if (m(M_JOIN_APART) && !s.joiner) { n = s; n.joiner = x + 1; bool good = true; for (int p = 0; p < N; p++) if (cfg.after[x] >> p & 1) { int o = live(s.j[p]) ? 1 : outcome(s.j[p].st, x); good &= o != 2; if (o == 1) n.joins |= 1 << p; } lab("%c looks whom it waits for", 'a' + x); if (good) emit(n); }
        else if (!m(M_JOIN_APART)) { n = s; lab("%c is added", 'a' + x); if (add(n, x)) emit(n); } }
      if (q.st == READY) { n = s; n.j[x].st = RUNNING; n.j[x].runs += q.runs < 3; lab("%c is claimed", 'a' + x); emit(n); }
      if (q.st == RUNNING) { n = s; end(n, x, DONE); lab("%c is done", 'a' + x); emit(n);
        if (s.fails) { n = s; n.fails--; end(n, x, DEAD); lab("%c is dead", 'a' + x); emit(n); } }
      if (live(q) && s.hands) { n = s; n.hands--; n.j[x].hand = 1; end(n, x, CANCELLED); lab("%c is cancelled by hand", 'a' + x); emit(n); }
      if ((q.st == DEAD || q.st == CANCELLED) && s.again) { n = s; n.again--; Job &j = n.j[x]; again(n, x); j.stalled = 0; j.runs = 0; if (!m(M_HAND_MARKED)) j.failed = 0;
        bool waits = j.left > 0 && !m(M_HAND_AT_ONCE); j.hand = 0; for (int p = 0; p < N; p++) if (n.j[p].notified >> x & 1) j.free |= 1 << p; for (int p = 0; p < N; p++) if ((s.j[p].then >> x & 1) && live(s.j[p]) && !waits) n.bad = 1;
        j.st = waits ? BLOCKED : READY; lab("%c is retried", 'a' + x); emit(n); }
      if (q.stalled && !live(q)) { n = s; tell(n, x); lab("another process goes on with %c", 'a' + x); emit(n); } }
    if (!s.closed) { n = s; n.closed = 1; int x = cfg.open - 1; if (s.j[x].left) { if (!m(M_OPEN_FREE)) down(n, x); } lab("the batch is closed"); emit(n); }
  }
  const char *check(const S &s) { if (s.bad) return m(V_REACH) ? nullptr : bm[s.bad]; bool all = true;
    for (int x = 0; x < N; x++) { const Job &j = s.j[x]; if (j.st == NONE) continue; int named = 0; all &= j.st == DONE;
      for (int p = 0; p < N; p++) { bool then = s.j[p].then >> x & 1, notified = s.j[p].notified >> x & 1; named += then; if (m(V_REACH)) continue;
        if (s.j[p].st != NONE && (waits(x) >> p & 1) && then == notified && !s.joiner) return bm[4];
        if ((j.failed >> p & 1) && (live(s.j[p]) || s.j[p].st == DONE || j.st != CANCELLED)) return bm[7]; }
      if (m(V_REACH)) continue;
      if (j.runs > 1) return bm[2];
      for (int p = 0; p < N; p++) if ((s.j[p].then >> x & 1) && live(s.j[p]) && (j.st == READY || j.st == RUNNING || j.st == DONE) && !s.owes && !s.end && !s.joiner) return bm[1];
      if (s.owes || s.end || s.joiner) continue;
      if (j.left != named + (open(s, x) && !m(M_OPEN_FREE)) ) return bm[3];
      if (j.st == BLOCKED && !j.left) return bm[5]; }
    return m(V_REACH) && all && s.again < cfg.again ? bm[9] : nullptr; }
  const char *terminal(const S &s) { if (m(V_REACH)) return nullptr; if (s.bad) return nullptr;
    for (int x = 0; x < N; x++) if (s.j[x].st == BLOCKED) { bool waits = false;
      for (int p = 0; p < N; p++) waits |= (s.j[p].then >> x & 1) && (s.j[p].st == DEAD && cfg.failure[x] == WAIT); 
      for (int p = 0; p < N; p++) waits |= (s.j[p].then >> x & 1) && s.j[p].st == BLOCKED; 
      if (!waits) return bm[6]; }
    return nullptr; }
};
int main(int argc, char **argv) { std::vector<Cfg> all; const char *fn[] = {"cancel", "go on", "wait"};
  struct { const char *name; u8 after[N], late, open; } dags[] = {
    {"a -> b -> c -> d", {0, 1, 2, 4}, 0, 0}, {"a -> b, c -> d", {0, 1, 1, 6}, 0, 0}, {"a, b -> c -> d", {0, 0, 3, 4}, 0, 0},
    {"a -> b, c, d", {0, 1, 1, 1}, 0, 0}, {"a, b, c -> d", {0, 0, 0, 7}, 0, 0}, {"a; b, c and d come later", {0, 1, 3, 4}, 14, 0}, {"a batch of b and c, closed by a; a -> d", {0, 0, 0, 1}, 6, 1}};
  for (auto &d : dags) for (int f = 0; f < 4; f++) { Cfg k = {}; k.name = std::string(d.name) + ": " + (f < 3 ? fn[f] : "each its own"); memcpy(k.after, d.after, N); k.late = d.late; k.open = d.open;
    for (int x = 0; x < N; x++) k.failure[x] = f < 3 ? f : x % 3; k.fails = 4; k.hands = 3; k.again = 4; all.push_back(k); }
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_TOLD_APART, "counted down in another commit"}, {M_END_APART, "notified in another commit"}, {M_NO_STALL, "a job that could not be notified is not marked"}, {M_CANCELLED_COUNTS, "the remains of a cancelled job stay"}, {M_ALONE, "a cancelled job notifies no job"}, {M_JOIN_APART, "a joining job reads before its commit"}, {M_AGAIN_ANY, "a retry of one job is enough for two"}, {M_AGAIN_FREE, "a retried job does not count"}, {M_AGAIN_ALL, "a job that was cancelled by hand is retried"}, {M_HAND_MARKED, "a job that was retried by hand stays marked"}, {M_HAND_AT_ONCE, "a job that is retried by hand waits for no job"}, {M_SECOND_MUTE, "the second that fails does not mark"}, {M_AGAIN_ALONE, "the successors of a retried job stay"}, {M_OPEN_FREE, "an open batch does not count"}, {M_BATCH_LATE, "a batch is joined when its closing job went"}, {M_AGAIN_TOLD, "a retried job stays among the notified ones"}};
    int alive = 0; for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M md(c); MC<M> mc; Res r = mc.run(md, 20000000); if (!r.viol.empty()) { dead = true; printf("%-48s [%s] KILLED: %s (%zu steps)\n", u.name, c.name.c_str(), r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; } } if (!dead) { printf("%-48s SURVIVES\n", u.name); alive++; } fflush(stdout); }
    printf("%d survivors\n", alive); return alive != 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"), ok = true; u64 states = 0;
  for (auto c : all) { if (reach) c.mut = V_REACH; M md(c); MC<M> mc; Res r = mc.run(md, 60000000); states += r.n; report(c.name.c_str(), r, !reach); ok &= reach ? !r.viol.empty() : r.complete && r.viol.empty(); if (!ok && !reach) return 1; }
  printf("%llu states in all\n", (unsigned long long)states); return !ok;
}
