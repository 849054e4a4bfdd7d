// Leases of commits (src/commit/complete_commit.c CH3, lease_watch.h CW4, journal.c), and those of
// jobs, holds, and edits (job_lease.c, tree_collect.c), which have the same steps. A live
// owner is not taken for dead. A dead owner blocks no client for longer than a lease from the first
// encounter, whatever the clocks say. Time is ticks. See README.md.
#include "mc.hpp"
#include <algorithm>
// a lease, the owner's steps, the longest step of a live owner
enum { L = 6, STEPS = 5, LONG = 2, TMAX = 26, TMAX_STALLS = 14 };
enum Mut : u32 { M_NO_RENEW = 1, M_FORGETS = 2, M_NO_RESTART = 4, M_CLOCKS = 8, M_AT_ONCE = 16, M_RENEW_ANY = 32, M_COUNTS = 64, V_REACH = 128, M_SAME_END = 256, M_STALE = 512, M_NO_STORE = 1024, M_ABORT_ANY = 2048 };
// st: 1 pending 2 committed 3 aborted; end: the last end of the lease that the owner made; until: the stored one
struct St { u8 t, step, since_step, renewed, st, dead, died, decided, bad; signed char until, end; u8 watching, since, looked, first, zrenew, judged, stored, stored_at; signed char seen, zuntil, judged_end, stored_end; };
static const char *bm[] = {"", "a commit that is at work was undone", "a dead commit was met, and not undone in time", "decided after it was undone", "REACHED", "a commit was undone after its lease was renewed"};
struct M {
  typedef St S; int off; bool dies, late, frozen, brief, stalls; u32 mut; S last;
  bool m(u32 x) const { return mut & x; }
  int wall(const S &s) const { return (frozen ? 0 : s.t) + off; } // the owner's; the other processes' is t
  void lease(S &n) const { int e = wall(n) + L; if (!m(M_SAME_END) && n.st && e <= n.end) e = n.end + 1; n.end = (signed char)e; }
  void init(S &s) { lease(s); s.until = s.end; s.st = 1; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    bool working = !s.dead && s.st == 1 && s.step < STEPS;
    if (s.t < (stalls ? TMAX_STALLS : TMAX) && s.looked && !(working && !stalls && s.since_step >= LONG)) { n = s; n.t++; if (!stalls) n.since_step += working; n.looked = 0; lab("a tick"); emit(n); }
    if (working) { n = s; // the next step, with a renewal before it if a third of the lease is over
      bool renews = !m(M_NO_RENEW) && s.t - s.renewed >= L / 3;
      if (renews) { lease(n); n.renewed = s.t; n.until = n.end; }
      n.step++; n.since_step = 0; if (n.step == STEPS) { n.decided = 1; n.st = 2; } lab("the owner's step %d (its lease ends at %d)", n.step, n.until); emit(n);
      if (late && !s.zrenew && renews) { n.zrenew = 1; n.zuntil = n.until; n.until = s.until; if (!m(M_COUNTS)) n.renewed = s.renewed; // tries again at the next step
         lab("the owner's step %d, its renewal comes late", n.step); emit(n); } }
    if (s.zrenew == 1) { n = s; n.zrenew = 2; if (s.st == 1 || m(M_RENEW_ANY)) { n.until = s.zuntil; if (s.dead) n.died = s.t; if (m(M_RENEW_ANY)) n.st = 1; } lab("the late renewal lands"); emit(n); }
    if (dies && working) { n = s; n.dead = 1; n.died = s.t; lab("the owner dies"); emit(n); }
    // a process that encountered it checks at each tick
    if (s.st == 1 && !s.looked) { n = s; n.looked = 1;
      if (!s.first) n.first = s.t + 1;
      if ((brief || m(M_FORGETS)) && s.t % 4 == 0) n.watching = 0; // another process; or another round of the recovery pass
      if (!n.watching || (n.seen != s.until && !m(M_NO_RESTART))) { n.watching = 1; n.seen = s.until; n.since = s.t; }
      int since = n.since; bool mine = s.stored && (s.stored_end == s.until || m(M_STALE));
      if (mine) since = std::min<int>(since, s.stored_at);
      bool over = s.t - since >= L || (m(M_CLOCKS) && s.until + L <= s.t) || (m(M_AT_ONCE) && s.until <= s.t);
      if (over) { n.judged = 1; n.judged_end = s.until; }
      else if (brief && !m(M_NO_STORE) && !mine && (s.until <= s.t || s.until > s.t + L)) { n.stored = 1; n.stored_end = s.until; n.stored_at = s.t; }
      lab("another process looks%s", over ? ": its lease is over" : ""); emit(n); }
    if (s.st == 1 && s.first == 0) { n = s; n.looked = 1; if (!s.looked) { lab("no process looks"); emit(n); } }
    if (s.judged && s.st == 1) { n = s; n.judged = 0; // the abort compares the end
      if (s.until == s.judged_end || m(M_ABORT_ANY)) { n.st = 3; if (!s.dead && !stalls) n.bad = 1; if (s.until != s.judged_end) n.bad = 5; } lab(n.st == 3 ? "it is undone" : "the abort matches nothing"); emit(n); }
    if (s.st != 1 && !s.looked) { n = s; n.looked = 1; lab("it has ended"); emit(n); }
  }
  const char *check(const S &s) { if (m(V_REACH)) return s.st == (dies ? 3 : 2) ? bm[4] : nullptr; if (s.bad) return bm[s.bad]; if (s.decided && s.st != 2) return bm[3];
    // a process that lives watches for a lease; others first store what they see once the lease ended by their clock
    if (s.st == 1 && s.dead && !s.judged && s.looked && s.first && s.t >= std::max<int>(s.died, s.first - 1) + (brief ? 2 * L + 1 : L) + 1) return bm[2]; return nullptr; }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  struct { u32 mut; const char *name; } muts[] = {{M_NO_RENEW, "the lease is not renewed"}, {M_FORGETS, "the watch is forgotten from one round to the next"}, {M_NO_RESTART, "a renewal does not begin the watch again"}, {M_CLOCKS, "a lease is over, too, if it ended a lease ago by our clock"}, {M_AT_ONCE, "a lease is over, too, if it ended by our clock"}, {M_RENEW_ANY, "a renewal does not compare the state"}, {M_COUNTS, "a renewal without an answer counts"},
    {M_SAME_END, "a renewal by a frozen clock does not change the end"}, {M_STALE, "a stored observation of an earlier end counts"}, {M_NO_STORE, "a process that ends stores nothing"}, {M_ABORT_ANY, "the abort does not compare the end"}};
  auto one = [&](M md, const char *what, u32 mut, bool quiet, bool &ok, Res &bad) { if (quiet && !bad.viol.empty()) return; md.mut = mut; MC<M> mc; Res r = mc.run(md); char name[120]; snprintf(name, sizeof name, "owner's clock %+d%s%s%s", md.off, what, md.dies ? ", may die" : "", md.late ? ", a late renewal" : ""); if (!quiet) report(name, r, true); ok &= r.viol.empty() && r.complete; if (!r.viol.empty() && bad.viol.empty()) bad = r; };
  auto all = [&](u32 mut, bool quiet, const char *name) { bool ok = true; Res bad; M md{};
    for (int off : {-20, -4, 0, 3, 20}) for (int dies = 0; dies < 2; dies++) for (int late = 0; late < 2 && (!late || off >= 0); late++) { md = M{}; md.off = off; md.dies = dies; md.late = late; one(md, "", mut, quiet, ok, bad); }
    for (int dies = 0; dies < 2; dies++) { md = M{}; md.frozen = true; md.dies = dies; one(md, ", frozen", mut, quiet, ok, bad); }
    for (int off : {-20, 0, 20}) for (int dies = 0; dies < 2; dies++) { md = M{}; md.off = off; md.brief = true; md.dies = dies; one(md, ", others end early", mut, quiet, ok, bad); }
    md = M{}; md.stalls = true; md.late = true; one(md, ", stalls", mut, quiet, ok, bad);
    if (quiet) { printf("%-52s %s%s (%zu steps)\n", name, bad.viol.empty() ? "SURVIVES" : "KILLED: ", bad.viol.c_str(), bad.trace.size()); return !bad.viol.empty(); } return ok; };
  if (argc > 1 && !strcmp(argv[1], "mutants")) { bool ok = true; for (auto &u : muts) ok &= all(u.mut, true, u.name); return !ok; }
  if (argc > 1 && !strcmp(argv[1], "reach")) { for (int d = 0; d < 2; d++) { M md{}; md.dies = d; md.late = true; md.mut = V_REACH; MC<M> mc; report(d ? "dead and undone" : "at work and through", mc.run(md), false); } return 0; }
  return !all(0, false, "");
}
