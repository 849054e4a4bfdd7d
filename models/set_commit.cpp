// Ordered sets next to commits (protocols.md sections 1 and 3): plain set operations, a journal
// commit and a native commit, each with a set operation on document d and a change of document e.
// One name in one set: the value of d is the rank that is stored.
#include "mc.hpp"
#include <algorithm>
enum Mut : u32 { M_NO_INTENT = 1, M_NO_REV = 2, M_NO_VALUE = 4, M_REV_ALWAYS = 8, M_JVALUE = 16, M_SAME_REV = 32 };
enum { NONE, PENDING, COMMITTED, ABORTED, DONE };
enum { R0 = 0, GONE = 20 };
static const int JR = 2, NR = 4; // the ranks that the commits bring
struct T { u8 d, drev, dint, e, erev, eint, c, post, postw, best, fresh; // revisions: 0 none, 1 the journal's, then fresh ones
  u8 spc[2], late[2], jpc, jd, jdrev, jerev, jlate, npc, nd, ndrev, nerev, crashes, lates, jdone, ndone; };
struct P { typedef T S; u32 mut; u8 ranks[2], d0, rev0; int crashes, lates; bool jn, nn; S last; const char *bad = nullptr;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.d = s.best = d0; s.drev = rev0; s.erev = 0; s.fresh = 2; s.crashes = crashes; s.lates = lates; s.jpc = jn ? 0 : GONE; s.npc = nn ? 0 : GONE; }
  u8 next(S &n) const { return ++n.fresh; }
  void raise(S &n, int rank) { if (rank > n.best) n.best = rank; }
  // one guarded update: the set operation of client i
  bool land(S &n, int i) { int r = ranks[i]; if (n.dint && !M(M_NO_INTENT)) return false; if (n.d >= r) return false; n.d = r; raise(n, r); if ((n.drev && !M(M_NO_REV)) || M(M_REV_ALWAYS)) n.drev = next(n); return true; }
  void release_d(S &n) { if (!n.dint) return; if (n.postw) n.d = n.post; n.drev = 1; n.dint = 0; }
  void release_e(S &n) { if (!n.eint) return; n.e |= 1; n.erev = 1; n.eint = 0; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int i = 0; i < 2; i++) { // a plain set operation, sent until it is answered and settled
      if (s.spc[i] == 0) { n = s; if (s.dint && !M(M_NO_INTENT)) { lab("set %d waits for the commit", ranks[i]); } else { bool took = land(n, i); n.spc[i] = 1; lab("set %d %s", ranks[i], took ? "lands" : "is stale"); emit(n); }
        if (s.lates) { n = s; n.lates--; n.late[i] = 1; lab("set %d is not answered, may land late", ranks[i]); emit(n); }
        if (s.crashes) { n = s; n.crashes--; n.spc[i] = 1; lab("the client of set %d dies", ranks[i]); emit(n); } }
      if (s.late[i]) { n = s; n.late[i] = 0; bool took = land(n, i); lab("the late set %d %s", ranks[i], took ? "lands" : "finds nothing to do"); emit(n); } }
    switch (s.jpc) { // the owner of the journal's commit
    case 0: if (!s.dint) { n = s; n.jd = s.d; n.jdrev = s.drev; n.jpc = 1; lab("journal reads d (rank %d)", s.d); emit(n); } break;
    case 1: if (!s.eint) { n = s; n.jerev = s.erev; n.c = PENDING; n.jpc = 2; lab("journal reads e, inserts its commit"); emit(n); } break;
    case 2: { n = s; bool ok = !s.dint && s.drev == s.jdrev; if (ok) n.dint = 1; bool same = s.d == s.jd || M(M_JVALUE); n.jpc = ok && same ? 3 : 9; lab("journal prepares d: %s", n.jpc == 3 ? "held" : "conflict"); emit(n);
      if (s.lates) { n = s; n.lates--; n.jlate = 1; n.jpc = 9; lab("journal's prepare of d is not answered and not there: abandoned"); emit(n); } break; }
    case 3: { n = s; bool ok = !s.eint && s.erev == s.jerev; if (ok) n.eint = 1; n.jpc = ok ? 4 : 9; lab("journal prepares e: %s", ok ? "held" : "conflict"); emit(n); break; }
    case 4: { n = s; if (s.c == PENDING) { n.c = COMMITTED; n.postw = s.jd < JR; n.post = n.postw ? JR : s.jd; if (s.d != s.jd) bad = "decided on a set that had changed"; raise(n, n.post); n.jdone = 1; n.jpc = 5; lab("journal decides"); } else { n.jpc = 9; lab("journal finds itself aborted"); } emit(n); break; }
    case 5: n = s; release_d(n); n.jpc = 6; lab("journal releases d"); emit(n); break;
    case 6: n = s; release_e(n); n.jpc = 7; lab("journal releases e"); emit(n); break;
    case 7: n = s; n.c = DONE; n.jpc = GONE; lab("journal is done"); emit(n); break;
    case 9: n = s; if (s.c == PENDING) n.c = ABORTED; if (n.c == ABORTED || n.c == NONE) n.dint = n.eint = 0; n.jpc = GONE; lab("journal gives up"); emit(n); break; }
    if (s.jlate) { n = s; n.jlate = 0; if (!s.dint && s.drev == s.jdrev) n.dint = 1; lab("the late prepare of d lands"); emit(n); }
    if (s.jpc >= 2 && s.jpc < 9 && s.crashes) { n = s; n.crashes--; n.jpc = GONE; lab("the journal's owner dies"); emit(n); }
    // any process: suspect, strip, release, purge
    if (s.c == PENDING) { n = s; n.c = ABORTED; lab("another process aborts the commit"); emit(n); }
    if ((s.c == ABORTED || s.c == NONE) && (s.dint || s.eint)) { n = s; n.dint = n.eint = 0; lab("another process strips"); emit(n); }
    if ((s.c == COMMITTED || s.c == DONE) && s.dint) { n = s; release_d(n); lab("another process releases d"); emit(n); }
    if ((s.c == COMMITTED || s.c == DONE) && s.eint) { n = s; release_e(n); lab("another process releases e"); emit(n); }
    if (s.c == COMMITTED && s.jpc == GONE && !s.dint && !s.eint) { n = s; n.c = DONE; lab("the sweeper marks it done"); emit(n); }
    if ((s.c == ABORTED || s.c == DONE) && s.jpc == GONE && !s.dint && !s.eint && s.c != NONE) { n = s; n.c = NONE; lab("the commit is purged"); emit(n); }
    switch (s.npc) { // the native commit: two reads, then one atomic step
    case 0: if (!s.dint) { n = s; n.nd = s.d; n.ndrev = s.drev; n.npc = 1; lab("native reads d (rank %d)", s.d); emit(n); } break;
    case 1: if (!s.eint) { n = s; n.nerev = s.erev; n.npc = 2; lab("native reads e"); emit(n); } break;
    case 2: { n = s; bool ok = !s.dint && !s.eint && s.drev == s.ndrev && s.erev == s.nerev && (s.drev || M(M_NO_VALUE) || s.d == s.nd);
      if (ok) { if (s.d != s.nd) bad = "a native commit on a set that had changed"; if (s.nd < NR) n.d = NR; raise(n, n.d); n.drev = M(M_SAME_REV) ? n.drev : next(n); n.erev = next(n); n.e |= 2; n.ndone = 1; }
      n.npc = GONE; lab("native: %s", ok ? "took effect" : "conflict"); emit(n); break; } }
  }
  const char *check(const S &s) { if (bad) return bad; int seen = s.d; if (s.c == COMMITTED && s.dint && s.postw) seen = std::max<int>(seen, s.post);
    if (seen != s.best) return "an operation that took effect is gone, or one that did not is there"; if ((s.e & 1) && !s.jdone) return "half of an undone commit"; return nullptr; }
  const char *terminal(const S &s) { if (s.dint || s.eint) return "held for ever"; if (s.jdone != (s.e & 1)) return "half of a commit"; return nullptr; }
};
static bool go(const char *nm, u8 a, u8 b, u8 d0, u8 rev0, u32 mut, bool j, bool n, bool quiet) { P m; m.mut = mut; m.ranks[0] = a; m.ranks[1] = b; m.d0 = d0; m.rev0 = rev0; m.crashes = 2; m.lates = 2; m.jn = j; m.nn = n; MC<P> mc; Res r = mc.run(m, 80000000); if (!quiet || !r.viol.empty()) report(nm, r, !quiet); return r.viol.empty() && r.complete; }
int main() {
  bool ok = true; for (u8 a = 1; a <= 5; a++) for (u8 b = 1; b <= 5; b++) for (u8 d0 = 0; d0 <= 2; d0++) for (u8 rev0 = 0; rev0 <= 2; rev0 += 2) ok &= go("next to", a, b, d0, rev0, 0, true, true, true);
  printf("two set operations next to a journal and a native commit, 150 cases: %s\n", ok ? "OK (complete)" : "FAILED");
  go("set operations 1 and 3", 1, 3, 0, 0, 0, true, true, false);
  go("mutant: set operations pass intents", 1, 3, 0, 0, M_NO_INTENT, true, false, false);
  go("mutant: they leave a revision as it is", 1, 3, 0, 2, M_NO_REV, false, true, false);
  go("mutant: no revision is not compared by value", 1, 3, 0, 0, M_NO_VALUE, false, true, false);
  go("mutant: the journal compares revisions only", 1, 3, 0, 0, M_JVALUE, true, false, false);
  go("variant: always a revision, no value compared", 1, 3, 0, 0, M_REV_ALWAYS | M_NO_VALUE, true, true, false);
  return !ok;
}
