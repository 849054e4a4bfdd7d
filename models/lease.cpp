// Leases of commits (src/commit/complete_commit.c H3, metadata_cache.c, journal.c `renew`). A live
// owner is not taken for dead. A dead owner blocks no client for longer than a lease from the first
// encounter, whatever the clocks say. Time is ticks. See README.md.
#include "mc.hpp"
#include <algorithm>
// a lease, the owner's steps, the longest step of a live owner
enum { L = 6, STEPS = 5, LONG = 2, TMAX = 26 };
enum Mut : u32 { M_NO_RENEW = 1, M_FORGETS = 2, M_NO_RESTART = 4, M_CLOCK_ONLY = 8, M_AT_ONCE = 16, M_RENEW_ANY = 32, M_COUNTS = 64, V_REACH = 128 };
struct St { u8 t, step, since_step, renewed, st, dead, died, decided, bad; signed char until; u8 watching, since, looked, first, round, zrenew, judged; signed char seen, zuntil; };  // st: 1 pending 2 committed 3 aborted
static const char *bm[] = {"", "a commit that is at work was undone", "a dead commit was met, and not undone within a lease", "decided after it was undone", "REACHED"};
struct M {
  typedef St S; int off; bool dies, late; u32 mut; S last;
  bool m(u32 x) const { return mut & x; }
  void init(S &s) { s.st = 1; s.until = (signed char)(off + L); }
  template <class F> void succ(const S &s, F &&emit) { S n;
    bool working = !s.dead && s.st == 1 && s.step < STEPS;
    if (s.t < TMAX && s.looked && !(working && s.since_step >= LONG)) { n = s; n.t++; n.since_step += working; n.looked = 0; lab("a tick"); emit(n); }
    if (working) { n = s; // the next step, with a renewal before it if a third of the lease is over
      if (!m(M_NO_RENEW) && s.t - s.renewed >= L / 3) { n.renewed = s.t; n.until = (signed char)(s.t + off + L); }
      n.step++; n.since_step = 0; if (n.step == STEPS) { n.decided = 1; n.st = 2; } lab("the owner's step %d (its lease ends at %d)", n.step, n.until); emit(n);
      if (late && !s.zrenew && s.t - s.renewed >= L / 3) { n.zrenew = 1; n.zuntil = n.until; n.until = s.until; if (!m(M_COUNTS)) n.renewed = s.renewed; // tries again at the next step
         lab("the owner's step %d, its renewal comes late", n.step); emit(n); } }
    if (s.zrenew == 1) { n = s; n.zrenew = 2; if (s.st == 1 || m(M_RENEW_ANY)) { n.until = s.zuntil; if (s.dead) n.died = s.t; if (m(M_RENEW_ANY)) n.st = 1; } lab("the late renewal lands"); emit(n); }
    if (dies && working) { n = s; n.dead = 1; n.died = s.t; lab("the owner dies"); emit(n); }
    // a process that encountered it checks at each tick
    if (s.st == 1 && !s.looked) { n = s; n.looked = 1;
      if (!s.first) n.first = s.t + 1;
      if (m(M_FORGETS) && s.t % 4 == 0) n.watching = 0; // another round of the recovery pass
      if (!n.watching || (n.seen != s.until && !m(M_NO_RESTART))) { n.watching = 1; n.seen = s.until; n.since = s.t; }
      bool over = s.until + (m(M_AT_ONCE) ? 0 : L) <= s.t || (!m(M_CLOCK_ONLY) && s.t - n.since >= L);
      if (over) { n.judged = 1; } lab("another process looks%s", over ? ": its lease is over" : ""); emit(n); }
    if (s.st == 1 && s.first == 0) { n = s; n.looked = 1; if (!s.looked) { lab("no process looks"); emit(n); } }
    if (s.judged && s.st == 1) { n = s; n.st = 3; if (!s.dead) n.bad = 1; lab("it is undone"); emit(n); }
    if (s.st != 1 && !s.looked) { n = s; n.looked = 1; lab("it has ended"); emit(n); }
  }
  const char *check(const S &s) { if (m(V_REACH)) return s.st == (dies ? 3 : 2) ? bm[4] : nullptr; if (s.bad) return bm[s.bad]; if (s.decided && s.st != 2) return bm[3];
    if (s.st == 1 && s.dead && !s.judged && s.looked && s.first && s.t >= std::max<int>(s.died, s.first - 1) + L + 1) return bm[2]; return nullptr; }
  static int max(int a, int b) { return a > b ? a : b; }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  u32 muts[] = {M_NO_RENEW, M_FORGETS, M_NO_RESTART, M_CLOCK_ONLY, M_AT_ONCE, M_RENEW_ANY, M_COUNTS}; const char *names[] = {"the lease is not renewed", "the watch is forgotten from one round to the next", "a renewal does not begin the watch again", "only the clocks count", "over as soon as it ends by our clock", "a renewal does not compare the state", "a renewal without an answer counts"};
  auto all = [&](u32 mut, bool quiet) { bool ok = true; Res best; bool bad = false; for (int off : {-4, -2, 0, 3, 20}) for (int dies = 0; dies < 2; dies++) for (int late = 0; late < 2 && (!late || off >= 0); late++) { M md; md.off = off; md.dies = dies; md.late = late; md.mut = mut; MC<M> mc; Res r = mc.run(md); char name[80]; snprintf(name, sizeof name, "owner's clock %+d%s%s", off, dies ? ", may die" : "", late ? ", a late renewal" : ""); if (!quiet) report(name, r, true); ok &= r.viol.empty() && r.complete; if (!r.viol.empty() && !bad) { bad = true; best = r; } }
    if (quiet) { for (int i = 0; i < 7; i++) if (muts[i] == mut) printf("%-52s %s%s (%zu steps)\n", names[i], bad ? "KILLED: " : "SURVIVES", best.viol.c_str(), best.trace.size()); return bad; } return ok; };
  if (argc > 1 && !strcmp(argv[1], "mutants")) { bool ok = true; for (u32 u : muts) ok &= all(u, true); return !ok; }
  if (argc > 1 && !strcmp(argv[1], "reach")) { for (int d = 0; d < 2; d++) { M md; md.off = 0; md.dies = d; md.late = true; md.mut = V_REACH; MC<M> mc; report(d ? "dead and undone" : "at work and through", mc.run(md), false); } return 0; }
  if (argc > 1 && !strcmp(argv[1], "hole")) { M md; md.off = -9; md.dies = md.late = false; md.mut = 0; MC<M> mc; report("hole: the owner's clock is more than a lease behind", mc.run(md), true); return 0; }
  return !all(0, false);
}
