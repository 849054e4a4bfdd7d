// The records of consumers of an ordered set, stored as ranges in blocks of several widths, and its
// archive: the steps of src/patterns/set/set_watermark.c and set_tombstones.c. Two processes use one
// consumer's name by mistake, next to collectors and a reader of the outcome of a number. Calls
// land late; any process stops anywhere. See README.md.
#include "mc.hpp"
#include <algorithm>
enum { N = 3, DOCS = 4 }; // numbers 1..3, bit n - 1; documents: the consumer's wide and narrow block, the archive's wide and narrow one
enum Mut : u32 { M_WRITE_BLIND = 1, M_CUT_BLIND = 2, M_CUT_FIRST = 4, M_ONE_LOOK = 8, M_CUT_ALL = 16, M_ANSWERED = 32, M_ARCHIVE_BLIND = 64, V_REACH = 128 };
struct Doc { u8 ex, bits; };
struct Rec { u8 pc, n, read; Doc seen[2]; };
struct Col { u8 pc, w, got, read; Doc seen[2], there[2]; };
struct Late { u8 on, doc, del; Doc guard, to; };
struct Rd { u8 pc, n, look, read, found; };
struct St { Doc d[DOCS]; u8 acked, begun, lates, crashes; Rec r[2]; Col c[2]; Late l; Rd rd; };
static const char *names[] = {"the wide block", "the narrow block", "the wide archive", "the narrow archive"};
struct M {
  typedef St S; u32 mut; int nr, nc, lates, crashes; bool reader; S last; const char *bad = nullptr;
  bool m(u32 x) const { return mut & x; }
  void init(S &s) { s.lates = lates; s.crashes = crashes; }
  static bool same(const Doc &a, const Doc &b) { return a.ex == b.ex && a.bits == b.bits; }
  static int pop(int b) { return __builtin_popcount(b); }
  static int runs(int b) { return pop(b & ~(b << 1)); }
  // which block takes `add`: the wide one if it has room (one range) or does not grow
  static int place(const Doc *seen, int add) { int all = seen[0].bits | add; return runs(all) <= 1 || runs(all) <= runs(seen[0].bits) ? 0 : 1; }
  static void put(S &n, int doc, Doc to) { n.d[doc] = to.bits ? to : Doc{0, 0}; }
  template <class F> void write(const S &s, int doc, Doc guard, Doc to, bool blind, F &&f) { // f(state, answered, landed)
    S n = s; bool ok = blind || same(s.d[doc], guard); if (ok) put(n, doc, to); f(n, true, ok);
    if (s.lates && !s.l.on) { n = s; n.lates--; n.l = Late{1, (u8)doc, 0, guard, to}; f(n, false, false); }
  }
  int watermark(int bits) const { int w = 0; while (w < N && bits >> w & 1) w++; return w; }
  template <class F> void succ(const S &s, F &&emit0) { S n;
    auto emit = [&](S &x) { std::sort(x.r, x.r + nr, [](const Rec &a, const Rec &b) { return memcmp(&a, &b, sizeof a) < 0; }); std::sort(x.c, x.c + nc, [](const Col &a, const Col &b) { return memcmp(&a, &b, sizeof a) < 0; }); emit0(x); };
    for (int k = 0; k < nr; k++) { const Rec &q = s.r[k];
      if (q.pc == 0) for (int i = 1; i <= N; i++) { n = s; n.r[k] = Rec{1, (u8)i, 0, {}}; n.begun |= 1 << (i - 1); lab("a consumer applied %d", i); emit(n); }
      if (q.pc == 1) { int d = q.read; n = s; n.r[k].seen[d] = s.d[d]; n.r[k].read |= 1 << d; if (n.r[k].read == 3) n.r[k].pc = 2; lab("the consumer of %d looks at %s", q.n, names[d]); emit(n); }
      if (q.pc == 2) { int bit = 1 << (q.n - 1), d = place(q.seen, bit); Doc to{1, (u8)(q.seen[d].bits | bit)};
        write(s, d, q.seen[d], to, m(M_WRITE_BLIND), [&](S x, bool answered, bool landed) { u8 num = q.n; x.r[k] = Rec{1, num, 0, {}}; if (answered && landed) { memset(&x.r[k], 0, sizeof x.r[k]); x.acked |= bit; }
          lab("the consumer records %d in %s: %s", num, names[d], !answered ? "no answer" : landed ? "done" : "it changed"); emit(x); }); }
      if (q.pc && s.crashes) { n = s; n.crashes--; memset(&n.r[k], 0, sizeof n.r[k]); lab("the consumer of %d dies", q.n); emit(n); }
    }
    for (int k = 0; k < nc; k++) { const Col &q = s.c[k];
      // its read may be older
      if (q.pc == 0) { int all = 0; for (auto &d : s.d) all |= d.bits; for (int w = 1; w <= watermark(all); w++) { n = s; n.c[k].pc = 1; n.c[k].w = w; lab("a collector has watermark %d", w); emit(n); } }
      if (q.pc == 1) { int d = q.read; n = s; n.c[k].seen[d] = s.d[d]; n.c[k].got |= s.d[d].bits & ((1 << q.w) - 1); n.c[k].read |= 1 << d; if (n.c[k].read == 3) { n.c[k].pc = n.c[k].got ? (m(M_CUT_FIRST) ? 5 : 2) : 7; n.c[k].read = 0; } lab("the collector looks at %s", names[d]); emit(n); }
      if (q.pc == 2) { int d = q.read; n = s; n.c[k].there[d] = s.d[2 + d]; n.c[k].read |= 1 << d; if (n.c[k].read == 3) { n.c[k].pc = 3; n.c[k].read = 0; } lab("the collector looks at %s", names[2 + d]); emit(n); }
      if (q.pc == 3) { int have = q.there[0].bits | q.there[1].bits, add = q.got & ~have;
        if (!add) { n = s; n.c[k].pc = m(M_CUT_FIRST) ? 7 : 5; lab("the archive has all of it"); emit(n); }
        else { int d = place(q.there, add); Doc to{1, (u8)(q.there[d].bits | add)}; u8 got = q.got;
          write(s, 2 + d, q.there[d], to, m(M_ARCHIVE_BLIND), [&](S x, bool answered, bool landed) { x.c[k].pc = (answered && landed) || m(M_ANSWERED) ? (m(M_CUT_FIRST) ? 7 : 5) : 2; x.c[k].read = 0; memset(x.c[k].there, 0, sizeof x.c[k].there);
            lab("the collector writes %d to %s: %s", got, names[2 + d], !answered ? "no answer" : landed ? "done" : "it changed"); emit(x); }); } }
      if (q.pc == 5 || q.pc == 6) { int d = q.pc - 5, low = (1 << q.w) - 1; const Doc seen = q.seen[d]; Doc to{1, (u8)(seen.bits & ~low)}; if (m(M_CUT_ALL)) to.bits = 0;
        u8 next = q.pc == 6 ? (m(M_CUT_FIRST) ? 2 : 7) : 6;
        if (!seen.ex || !(seen.bits & low)) { n = s; n.c[k].pc = next; lab("nothing to cut off %s", names[d]); emit(n); }
        else write(s, d, seen, to, m(M_CUT_BLIND), [&](S x, bool answered, bool landed) { x.c[k].pc = next; lab("the collector cuts %s: %s", names[d], !answered ? "no answer" : landed ? "done" : "it changed"); emit(x); }); }
      if (q.pc == 7) { n = s; memset(&n.c[k], 0, sizeof n.c[k]); lab("the collector is done"); emit(n); }
      if (q.pc && q.pc != 7 && s.crashes) { n = s; n.crashes--; memset(&n.c[k], 0, sizeof n.c[k]); lab("the collector dies"); emit(n); }
    }
    if (s.l.on) { n = s; bool ok = same(s.d[s.l.doc], s.l.guard) || (s.l.doc < 2 ? (s.l.to.bits & ~s.l.guard.bits ? m(M_WRITE_BLIND) : m(M_CUT_BLIND)) : m(M_ARCHIVE_BLIND)); if (ok) put(n, s.l.doc, s.l.to); memset(&n.l, 0, sizeof n.l); lab("a late write of %s %s", names[s.l.doc], ok ? "lands" : "finds it changed"); emit(n); }
    if (reader) { const Rd &q = s.rd;
      if (q.pc == 0) for (int i = 1; i <= N; i++) if (s.acked >> (i - 1) & 1) { n = s; n.rd = Rd{1, (u8)i, 0, 0, 0}; lab("another process asks for %d, which was recorded", i); emit(n); }
      if (q.pc == 1) for (int d = 0; d < DOCS; d++) if (!(q.read >> d & 1)) { n = s; Rd &x = n.rd; x.read |= 1 << d; x.found |= s.d[d].bits >> (q.n - 1) & 1; if (x.found) memset(&x, 0, sizeof x); else if (x.read == 15) { if (x.look || m(M_ONE_LOOK)) x.pc = 2; else { x.look = 1; x.read = 0; } } lab("look %d at %s", q.look + 1, names[d]); emit(n); } }
  }
  const char *check(const S &s) { int all = 0; for (auto &d : s.d) all |= d.bits; if (m(V_REACH)) return s.acked == 7 && s.d[2].bits == 7 && !s.d[0].ex && !s.d[1].ex ? "REACHED" : nullptr;
    if (s.acked & ~all) return "what was recorded is lost"; if (all & ~s.begun) return "what was not applied is recorded"; if (s.rd.pc == 2) return "what was recorded is reported as unknown"; return nullptr; }
  const char *terminal(const S &) { return nullptr; }
};
struct Case { const char *name; int nr, nc, lates, crashes; bool reader; };
static const Case cases[] = {{"2 of one name, a late call", 2, 0, 1, 1, false}, {"1 consumer, a collector, a late call, a death", 1, 1, 1, 1, false}, {"2 of one name, a collector", 2, 1, 0, 0, false}, {"1 consumer, a collector, a reader, a death", 1, 1, 0, 1, true}, {"1 consumer, 2 collectors", 1, 2, 0, 0, false}};
static Res go(const Case &c, u32 mut) { M m; m.mut = mut; m.nr = c.nr; m.nc = c.nc; m.lates = c.lates; m.crashes = c.crashes; m.reader = c.reader; MC<M> mc; return mc.run(m); }
int main(int argc, char **argv) {
  struct { u32 mut; const char *name; } muts[] = {{M_WRITE_BLIND, "a record is written without comparing"}, {M_CUT_BLIND, "cut without comparing"}, {M_CUT_FIRST, "cut before it is in the archive"}, {M_ONE_LOOK, "a number is looked up once"}, {M_CUT_ALL, "what is above the watermark is cut, too"}, {M_ANSWERED, "the archive's write is not awaited"}, {M_ARCHIVE_BLIND, "the archive is written without comparing"}};
  bool ok = true;
  if (argc > 1 && !strcmp(argv[1], "reach")) { report("all recorded, archived as one range, and nothing else left", go(cases[1], V_REACH), false); return 0; }
  if (argc > 1 && !strcmp(argv[1], "mutants")) { for (auto &u : muts) { bool dead = false; for (auto &c : cases) { Res r = go(c, u.mut); if (!r.viol.empty()) { printf("%-46s KILLED: %s (%zu steps)\n", u.name, r.viol.c_str(), r.trace.size()); dead = true; break; } } if (!dead) printf("%-46s SURVIVES\n", u.name); ok &= dead; fflush(stdout); } return !ok; }
  for (auto &c : cases) { Res r = go(c, 0); report(c.name, r, true); ok &= r.viol.empty() && r.complete; }
  return !ok;
}
