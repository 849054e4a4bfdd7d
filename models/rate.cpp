// Rates (src/patterns/queue/rate_limit.h): jobs begin in a sliding window of a time that the
// document holds, which two processes with different clocks advance. Time is ticks. See README.md.
#include "mc.hpp"
enum { P = 2, RATE = 2, PER = 3, TMAX = 8, NEVER = 120, MOST = P * RATE };
enum Mut : u32 {
  M_BACK = 1,       // the time is the claimer's clock, and may go back
  M_CLOCKS = 2,     // only wall clocks advance the time
  M_STALE = 4,      // a new time does not restart the watch
  M_FULL = 8,       // a time that is far from the clock counts as an empty window
  M_GUARD = 16,     // a write does not compare what was read
  // a read that finds no room sets the time to the reader's clock, and writes no begin
  M_LOOKS = 32,
  V_REACH = 64,
};
// v: when the last jobs began, by the document's time
struct Doc { signed char at, v[RATE]; };
// r: when they began in real time; rd: what each process has read
struct St { Doc d, rd[P]; signed char t, r[MOST]; u8 begun, reading[P], bad; signed char seen[P], since[P]; };
static const char *bm[] = {"", "too many begin in a window", "it stops for one that looks at each tick", "REACHED"};
struct M {
  typedef St S; int off[P]; u32 mut; S last;
  bool m(u32 x) const { return mut & x; }
  void init(S &s) { s.d.at = -NEVER; for (int i = 0; i < RATE; i++) s.d.v[i] = -NEVER; for (int i = 0; i < MOST; i++) s.r[i] = -NEVER; for (int i = 0; i < P; i++) s.seen[i] = -NEVER - 1; }
  int wall(const S &s, int i) const { return s.t + off[i]; }
  // the time by process i
  int now(S &s, int i, const Doc &d) const {
    if (s.seen[i] != d.at) { if (!m(M_STALE) || s.seen[i] == -NEVER - 1) s.since[i] = s.t; s.seen[i] = d.at; }
    int w = wall(s, i), seen = m(M_CLOCKS) ? d.at : d.at + s.t - s.since[i];
    return m(M_BACK) || w > seen ? w : seen;
  }
  bool room(const S &s, const Doc &d, int now, int i) const {
    if (m(M_FULL) && (d.at - wall(s, i) > PER || wall(s, i) - d.at > PER)) return true;
    return now - d.v[0] >= PER;
  }
  // at most the rate in a window; if clocks differ, at most that for each of them
  void begin(S &n, int i, Doc &d, int now) const {
    if (n.t - n.r[off[0] == off[1] ? MOST - RATE : 0] < PER) n.bad = 1;
    for (int k = 0; k + 1 < RATE; k++) d.v[k] = d.v[k + 1];
    for (int k = 0; k + 1 < MOST; k++) n.r[k] = n.r[k + 1];
    d.v[RATE - 1] = d.at = (signed char)now; n.r[MOST - 1] = n.t; n.d = d; n.begun += n.begun < 200;
  }
  template <class F> void succ(const S &s, F &&emit) { S n;
    if (s.t < TMAX) { n = s; n.t++; lab("a tick"); emit(n); }
    for (int i = 0; i < P; i++) {
      if (!s.reading[i]) { n = s; n.reading[i] = 1; n.rd[i] = s.d; lab("P%d reads: the time is %d", i, s.d.at); emit(n); }
      else { n = s; n.reading[i] = 0; Doc d = s.rd[i]; n.rd[i] = Doc();
        if (!memcmp(&d, &s.d, sizeof d) || m(M_GUARD)) { int w = now(n, i, d); bool fits = room(n, d, w, i);
          if (fits) begin(n, i, d, w); else if (m(M_LOOKS)) n.d.at = (signed char)wall(n, i);
          lab("P%d (its clock is %d) %s at %d", i, wall(s, i), fits ? "begins a job" : "finds no room", w); }
        else lab("P%d read what has changed", i);
        emit(n); }
      if (s.seen[i] != -NEVER - 1 && !s.reading[i]) { n = s; n.seen[i] = -NEVER - 1; n.since[i] = 0; lab("P%d is started again", i); emit(n); }
    } }
  const char *check(const S &s) {
    if (m(V_REACH)) return s.begun >= 6 ? bm[3] : nullptr;
    if (s.bad) return bm[s.bad];
    for (int i = 0; i < P; i++) { S t = s; bool got = false; // it continues alone
      for (int k = 0; k <= PER + 1 && !got; k++, t.t++) { Doc d = t.d; int w = now(t, i, d); got = room(t, d, w, i); }
      if (!got) return bm[2]; }
    return nullptr; }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  static const int offs[][P] = {{0, 0}, {0, 1}, {0, 3}, {0, 20}, {0, -1}, {0, -20}, {3, -3}};
  static const struct { u32 m; const char *name; } mu[] = {{M_BACK, "the time goes back"}, {M_CLOCKS, "only wall clocks advance the time"}, {M_STALE, "a new time does not begin the watch again"}, {M_FULL, "a time that is far away is an empty window"}, {M_GUARD, "what was read is not compared"}, {M_LOOKS, "a look without room sets the time"}};
  bool mutants = argc > 1 && !strcmp(argv[1], "mutants"), reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  for (auto &o : offs) { if (mutants) break; M md; memcpy(md.off, o, sizeof o); md.mut = reach ? V_REACH : 0; MC<M> mc; Res r = mc.run(md); char name[60]; snprintf(name, sizeof name, "clocks %+d and %+d", o[0], o[1]); report(name, r, !reach); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  for (auto &u : mu) { if (!mutants) break; bool dead = false; for (auto &o : offs) { M md; memcpy(md.off, o, sizeof o); md.mut = u.m; MC<M> mc; Res r = mc.run(md); if (r.viol.empty()) continue; dead = true; printf("%-50s KILLED: %s (%zu steps)\n", u.name, r.viol.c_str(), r.trace.size()); break; } if (!dead) { printf("%-50s SURVIVES\n", u.name); bad++; } }
  return bad;
}
