// The job queue (src/patterns/queue): claims, leases, rescue, cancel, and the effects of a job in
// one commit with its acknowledgement, which holds the job under its claim. One call is one step.
// All processes may stop for ever between two; calls without an answer land at any later time; a
// claim may be lost (a power cut, a failover). See README.md.
#include "mc.hpp"
enum { NW = 3, ATTEMPTS = 3 };
enum { READY, RUN, DONE, DEAD, CANCELLED };
enum { NONE, PENDING, ABORTED, COMMITTED };
enum Kind { NOBODY, COMMITS, ENDS, FAILS };
enum Mut : u32 {
  M_REQUIRED = 1,   // the job is read after the effects are prepared, and not held
  M_ACK = 2,        // done and fail do not compare the claim
  M_RESCUE = 4,     // the rescue compares the state only
  M_AT = 8,         // the rescue does not compare the end of the lease
  M_INTENT = 16,    // claims, rescues and cancels take a job that a commit holds
  M_NUMBER = 32,    // the epoch alone is the fence, without the claim's own id
  M_STATE = 64,     // a commit compares the claim and not the state; cancel leaves the claim
  M_STRIP = 128,    // no process resolves the documents that a dead commit holds
  M_LIVE = 256,     // a process that encounters a pending commit strips it without aborting it first
  M_FOREVER = 512,  // the rescue counts no attempts
  M_EXTEND = 1024,  // the heartbeat does not compare the claim: it acquires the lease again
  V_REACH = 2048,
};
struct Job { u8 state, epoch, claim, at, held; };
struct Wk { u8 pc, claim, epoch, commit; };
struct St { Job j, before; u8 count, xheld; Wk w[NW]; u8 rpc, rclaim, rat, late, lclaim, lepoch, claims, extends, rescues, cancels, losses, lates, losable, bad; };
static const char *bm[] = {"", "effects of a worker that does not hold the job", "a live lease was taken away", "ended by one who does not hold the job", "effects of a cancelled job", "effects without the acknowledgement, or twice",
  "a job that no process can bring to its end", "REACHED", "two workers hold the job"};
struct Cfg { const char *name; Kind k[NW]; u8 extends, rescues, cancels, losses, lates; u32 mut; };
struct M {
  typedef St S; Cfg c; S last;
  bool m(u32 x) const { return c.mut & x; }
  void init(S &s) { s.extends = c.extends; s.rescues = c.rescues; s.cancels = c.cancels; s.losses = c.losses; s.lates = c.lates; }
  bool mine(const Job &j, u8 claim, u8 epoch) const { return (m(M_STATE) || j.state == RUN) && (m(M_NUMBER) ? j.epoch == epoch : j.claim == claim); }
  bool free(const Job &j) const { return !j.held || m(M_INTENT); }
  void claim(S &n, u8 id) const { n.before = n.j; n.losable = 1; n.j.state = RUN; n.j.epoch++; n.j.claim = id; n.j.at = 0; }
  void back(S &n) const { n.losable = 0; n.j.state = n.j.epoch >= ATTEMPTS && !m(M_FOREVER) ? DEAD : READY; n.j.claim = 0; }
  // done and fail, one write; true: it found its job
  bool end(S &n, bool good, u8 id, u8 epoch) const {
    Job &j = n.j; if (!free(j) || !(m(M_ACK) ? j.state == RUN : mine(j, id, epoch))) return false;
    if (j.claim != id) n.bad = 3;
    if (good) { n.losable = 0; j.state = DONE; } else back(n);
    return true;
  }
  // any process, about one document: 0 the job, 1 the document that it changes
  bool help(S &n, int doc) const {
    u8 &held = doc ? n.xheld : n.j.held; if (!held || m(M_STRIP)) return false; Wk &w = n.w[held - 1]; int who = held - 1;
    if (w.commit == PENDING && !m(M_LIVE)) { w.commit = ABORTED; lab("commit of W%d is aborted", who); return true; }
    if (w.commit == COMMITTED) { if (doc) n.count++; else { n.losable = 0; n.j.state = DONE; } lab("document %d: W%d's commit is released", doc, who); } else lab("document %d: W%d's intent is stripped", doc, who);
    held = 0; return true;
  }
  template <class F> void succ(const S &s, F &&emit) {
    S n;
    for (int i = 0; i < NW; i++) { const Wk &q = s.w[i]; if (c.k[i] == NOBODY) continue;
      switch (q.pc) {
      case 0: if (s.claims >= 4 || s.j.state != READY || !free(s.j)) break;
        n = s; n.claims++; claim(n, n.claims); n.w[i].claim = n.claims; n.w[i].epoch = n.j.epoch; n.w[i].pc = 1; lab("W%d claims: claim %d, epoch %d", i, n.claims, n.j.epoch); emit(n);
        if (s.lates && !s.late) { n = s; n.lates--; n.claims++; n.late = 1; n.lclaim = n.claims; lab("W%d sends a claim without an answer", i); emit(n); } break;
      case 1:
        if (s.extends) { n = s; n.extends--; if (free(s.j) && (m(M_EXTEND) ? s.j.state == RUN : mine(s.j, q.claim, q.epoch))) { n.losable = 0; n.j.at++; if (m(M_EXTEND)) n.j.claim = q.claim; if (n.j.claim != s.j.claim) n.bad = 8; } lab("W%d extends its lease", i); emit(n); }
        if (c.k[i] == COMMITS) { if (!s.xheld) { n = s; n.xheld = i + 1; n.w[i].commit = PENDING; n.w[i].pc = 2; lab("W%d prepares its effect", i); emit(n); } break; }
        n = s; end(n, c.k[i] == ENDS, q.claim, q.epoch); n.w[i].pc = 9; lab("W%d says %s", i, c.k[i] == ENDS ? "done" : "fail"); emit(n);
        if (s.lates && !s.late) { n = s; n.lates--; n.late = c.k[i] == ENDS ? 2 : 3; n.lclaim = q.claim; n.lepoch = q.epoch; n.w[i].pc = 9; lab("W%d says it without an answer", i); emit(n); } break;
      case 2: if (s.j.held && !m(M_INTENT)) break; // it completes the other commit: below
        n = s; if (mine(s.j, q.claim, q.epoch)) { if (!m(M_REQUIRED)) n.j.held = i + 1; n.w[i].pc = 3; lab("W%d prepares the job", i); } else { if (q.commit == PENDING) n.w[i].commit = ABORTED; n.w[i].pc = 9; lab("W%d: the job is not its own, it aborts", i); } emit(n); break;
      case 3: n = s; if (q.commit == PENDING) { n.w[i].commit = COMMITTED; n.w[i].pc = 4; if (s.j.claim != q.claim) n.bad = 1; if (s.j.state == CANCELLED) n.bad = 4; if (s.j.state != RUN && !n.bad) n.bad = 1; lab("W%d decides", i); } else { n.w[i].pc = 9; lab("W%d was aborted", i); } emit(n); break;
      case 4: n = s; if (s.xheld == i + 1) { n.xheld = 0; n.count++; } n.w[i].pc = 5; lab("W%d releases its effect", i); emit(n); break;
      case 5: n = s; if (m(M_REQUIRED) ? mine(s.j, q.claim, q.epoch) : s.j.held == i + 1) { n.j.held = 0; n.losable = 0; n.j.state = DONE; } n.w[i].pc = 9; lab("W%d releases the job", i); emit(n); break;
      } }
    for (int d = 0; d < 2; d++) { n = s; if (help(n, d)) emit(n); }
    if (s.rpc == 0 && s.rescues && s.j.state == RUN) { n = s; n.rescues--; n.rpc = 1; n.rclaim = s.j.claim; n.rat = s.j.at; lab("a lease is suspected: claim %d, end %d", s.j.claim, s.j.at); emit(n); }
    if (s.rpc == 1) { n = s; n.rpc = 0; bool same = s.j.claim == s.rclaim, still = s.j.at == s.rat;
      if (s.j.state == RUN && free(s.j) && (same || m(M_RESCUE)) && (still || m(M_AT) || m(M_RESCUE))) { if (!same || !still) n.bad = 2; back(n); } lab("the rescue"); emit(n); }
    if (s.cancels && free(s.j) && (s.j.state == READY || s.j.state == RUN)) { n = s; n.cancels--; n.losable = 0; n.j.state = CANCELLED; if (!m(M_STATE)) n.j.claim = 0; lab("cancelled"); emit(n); }
    if (s.late == 1) { n = s; n.late = 0; if (s.j.state == READY && free(s.j)) claim(n, s.lclaim); lab("the late claim lands"); emit(n); }
    if (s.late > 1) { n = s; n.late = 0; end(n, s.late == 2, s.lclaim, s.lepoch); lab("the late end lands"); emit(n); }
    if (s.losses && s.losable && !s.j.held) { n = s; n.losses--; n.losable = 0; n.j = s.before; lab("the claim is lost"); emit(n); }
  }
  const char *check(const S &s) {
    if (m(V_REACH)) return s.j.state == DONE && (s.count || c.k[0] == ENDS) ? bm[7] : nullptr;
    if (s.bad) return bm[s.bad];
    // all processes have stopped; a recovery pass and one new worker continue alone
    S t = s; for (int i = 0; i < 8; i++) if (!help(t, 0)) help(t, 1);
    for (int i = 0; i < 8 && (t.j.state == READY || t.j.state == RUN) && free(t.j); i++) { if (t.j.state == RUN) back(t); else { claim(t, 9); if (t.j.epoch > ATTEMPTS + 2) break; } }
    if (t.j.held || t.xheld || t.j.state == READY || t.j.state == RUN) return bm[6];
    t = s; for (int i = 0; i < 8; i++) if (!help(t, 0)) help(t, 1);
    bool commits = true; for (int i = 0; i < NW; i++) if (c.k[i] == ENDS) commits = false;
    if (t.count > 1 || (t.count && t.j.state != DONE) || (commits && t.j.state == DONE && !t.count)) return bm[5];
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {
    {"two workers commit, leases end, cancel", {COMMITS, COMMITS, NOBODY}, 1, 2, 1, 0, 1, 0},
    {"three workers commit, leases end", {COMMITS, COMMITS, COMMITS}, 1, 3, 0, 0, 0, 0},
    {"one commits, one fails, calls without an answer", {COMMITS, FAILS, COMMITS}, 1, 2, 1, 0, 2, 0},
    {"acknowledged by single writes", {ENDS, FAILS, ENDS}, 2, 2, 1, 0, 2, 0},
    {"claims that are lost", {COMMITS, COMMITS, COMMITS}, 0, 1, 1, 1, 1, 0},
    {"claims that are lost, single writes", {ENDS, FAILS, ENDS}, 1, 1, 0, 1, 1, 0},
  };
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_REQUIRED, "the job is required, not held"}, {M_ACK, "done and fail do not compare the claim"}, {M_RESCUE, "the rescue compares the state only"}, {M_AT, "the rescue does not compare the lease's end"}, {M_INTENT, "a held job is taken"},
      {M_NUMBER, "the epoch alone is the fence"}, {M_STATE, "a commit does not compare the state"}, {M_STRIP, "no process resolves intents of jobs"}, {M_LIVE, "a live commit is stripped"}, {M_FOREVER, "the rescue counts no attempts"}, {M_EXTEND, "the heartbeat does not compare the claim"}};
    for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M m; m.c = c; MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) continue; dead = true; printf("%-50s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; }
      if (!dead) { printf("%-50s SURVIVES\n", u.name); bad++; } }
    return bad; }
  for (auto c : all) { if (reach) c.mut = V_REACH; M m; m.c = c; MC<M> mc; Res r = mc.run(m); report(c.name, r, !reach); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  return bad;
}
