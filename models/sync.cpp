// Copies kept in step (src/patterns/sync/sync.c): one master under rule (and a second one for moves), two standing dependents, one inserted on
// the way. The flag of a master is a token of its own beside the revision; a plain writer may set any flag, which is
// adopted; the flag of a dependent is a token, too. See README.md.
#include "mc.hpp"
#include <cstddef>
enum Mut : u32 { M_CLEAR_NO_TOKEN = 1, M_COPY_NO_REV = 2, M_FLAG_LATER = 4, M_NO_RECHECK = 8, M_NO_DEPFLAG = 16, M_CHECK_FIRST = 32, M_CLEAR_EARLY = 64, M_TOKEN_AT = 128,
  M_MOVE_KEEPS_REV = 256, M_UNFLAG_NO_TOKEN = 512, M_ADOPT_NO_REV = 2048, M_FOREIGN_AS_OURS = 4096, M_COPY_NO_REF = 8192, M_ADOPT_LATE_READ = 16384, V_REACH = 32768 };
enum { FOREIGN = 200 }; // what a plain writer puts into the flag
struct Ma { u8 rev, sync, val; };
struct De { u8 ex, ref, name, srev, flag; };
struct Wr { u8 pc, rev, val, i, m, tok; };            // who renames and copies
struct In { u8 pc, rev, val, tok, m, d; };            // who inserts, moves or checks a dependent
struct S6 { Ma m[2]; De d[3]; Wr w[2], sw; In in, mv, ck; u8 bad, sweeps, plain, toks, vals; };
static const char *bm[] = {"", "a copy went back to an older value", "a copy that no sweep will mend", "REACHED"};
struct P6 { typedef S6 S; u32 mut; bool ins, move, sweeper, plain, checker; int writers; S last; bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.m[0] = Ma{1, 0, 1}; s.m[1] = Ma{1, 0, 2}; s.vals = 2; for (int i = 0; i < 2; i++) s.d[i] = De{1, 0, 1, 1, 0}; if (move && checker) s.d[1].flag = ++s.toks; }
  // a value is a number that rises with each write of any master, so "older" is "lower" for one master
  void copy(S &s, int i, int m, int rev, int val) const { De &d = s.d[i]; if (!d.ex || (d.ref != m && !M(M_COPY_NO_REF))) return; if (M(M_COPY_NO_REV) || d.srev < rev) { if (d.ref == m && d.name > val && d.srev) s.bad = 1; d.name = val; d.srev = rev; } }
  template <class F> void succ(const S &s, F &&emit) { S n;
    auto prop = [&](int k, bool isw) { const Wr &q = isw ? s.sw : s.w[k];
      auto X = [&](S &t) -> Wr & { return isw ? t.sw : t.w[k]; }; const char *who = isw ? "sweeper" : k ? "R1" : "R0";
      switch (q.pc) {
      case 0: if (isw) { if (s.sweeps < 2) for (int m = 0; m < 2; m++) if (s.m[m].sync) { n = s; Wr &x = X(n); x.m = m; x.i = 0; x.rev = s.m[m].rev; x.val = s.m[m].val; x.tok = s.m[m].sync; n.sweeps++;
            x.pc = s.m[m].sync == FOREIGN && !M(M_FOREIGN_AS_OURS) ? 4 : 2; lab("sweeper reads master %d (rev %d, flag %d)", m, x.rev, x.tok); emit(n); } break; }
        if (k >= writers) break;
        n = s; { Wr &x = X(n); n.m[0].rev++; n.m[0].val = ++n.vals; x.rev = n.m[0].rev; x.val = n.m[0].val; x.tok = M(M_TOKEN_AT) ? 1 : ++n.toks; if (!M(M_FLAG_LATER)) n.m[0].sync = x.tok; x.i = 0; x.pc = M(M_FLAG_LATER) ? 1 : M(M_CLEAR_EARLY) ? 3 : 2; lab("%s renames master 0: rev %d, value %d, flag %d", who, x.rev, x.val, x.tok); emit(n); } break;
      case 1: n = s; { Wr &x = X(n); n.m[0].sync = x.tok; x.pc = 2; lab("%s sets the flag", who); emit(n); } break;
      case 2: n = s; { Wr &x = X(n); copy(n, q.i, q.m, q.rev, q.val); lab("%s copies rev %d (value %d) to d%d%s", who, q.rev, q.val, q.i, memcmp(&n.d[q.i], &s.d[q.i], sizeof(De)) ? "" : " (no match)"); x.i++; if (x.i == 3) { x.pc = M(M_CLEAR_EARLY) ? 9 : 3; if (isw && x.pc == 9) memset(&x, 0, sizeof x); } emit(n); } break;
      case 3: n = s; { Wr &x = X(n); bool ok = s.m[q.m].sync && (M(M_CLEAR_NO_TOKEN) || s.m[q.m].sync == q.tok); if (ok) n.m[q.m].sync = 0; lab("%s clears the flag%s", who, ok ? "" : " (not ours)"); x.pc = M(M_CLEAR_EARLY) && !isw ? 2 : 9; x.i = 0; if (isw) memset(&x, 0, sizeof x); emit(n); } break;
      case 4: n = s; { Wr &x = X(n); bool ok = s.m[q.m].rev == q.rev; // the flag of whoever came between goes, too: all is copied again
          if (ok) { if (!M(M_ADOPT_NO_REV)) n.m[q.m].rev++; n.m[q.m].sync = ++n.toks; x.rev = n.m[q.m].rev; if (!M(M_ADOPT_LATE_READ)) x.val = n.m[q.m].val; x.tok = n.toks; x.pc = 2; } else memset(&x, 0, sizeof x);
          lab("%s adopts the flag%s (value %d)", who, ok ? "" : ": another by now", x.val); emit(n); } break; } };
    prop(0, false); prop(1, false); if (sweeper) prop(0, true);
    if (plain && s.plain < 2) { n = s; n.plain++; n.m[0].val = ++n.vals; n.m[0].sync = FOREIGN; lab("a plain writer renames master 0: value %d, a flag of its own", n.vals); emit(n); }
    if (ins) { const In &q = s.in; switch (q.pc) {
      case 0: n = s; n.in.rev = s.m[0].rev; n.in.val = s.m[0].val; n.in.pc = M(M_CHECK_FIRST) ? 4 : 1; lab("inserter reads master 0 (rev %d)", s.m[0].rev); emit(n); break;
      case 4: if (s.m[0].rev == q.rev) { n = s; n.in.pc = 1; lab("inserter checks the revision before inserting"); emit(n); } else { n = s; n.in.pc = 0; emit(n); } break;
      case 1: n = s; { bool flag = !M(M_NO_DEPFLAG) && !M(M_CHECK_FIRST) && !M(M_NO_RECHECK); n.in.tok = flag ? ++n.toks : 0; n.d[2] = De{1, 0, q.val, q.rev, n.in.tok}; n.in.d = 2; n.in.m = 0; n.in.pc = M(M_CHECK_FIRST) || M(M_NO_RECHECK) ? 9 : 2; lab("inserter inserts d2 (rev %d)", q.rev); emit(n); } break;
      default: break; }
      look(s, s.in, offsetof(S, in), "inserter", emit); }
    if (move) { const In &q = s.mv; switch (q.pc) { // d1 moves to master 1, and (round 2) back
      case 0: n = s; n.mv.rev = s.m[1].rev; n.mv.val = s.m[1].val; n.mv.pc = 1; lab("mover reads master 1"); emit(n); break;
      case 1: n = s; n.mv.tok = ++n.toks; n.mv.pc = 2; n.mv.d = 1; n.mv.m = 1; n.d[1].ref = 1; n.d[1].flag = n.toks; if (!M(M_MOVE_KEEPS_REV)) { n.d[1].srev = q.rev; n.d[1].name = q.val; } lab("mover hangs d1 under master 1"); emit(n); break;
      case 9: n = s; n.mv.rev = s.m[0].rev; n.mv.val = s.m[0].val; n.mv.pc = 5; lab("mover reads master 0"); emit(n); break;
      case 5: n = s; n.mv.tok = ++n.toks; n.mv.pc = 6; n.d[1].ref = 0; n.d[1].flag = n.toks; n.d[1].srev = q.rev; n.d[1].name = q.val; lab("mover hangs d1 back under master 0, and dies"); emit(n); break;
      default: break; }
      look(s, s.mv, offsetof(S, mv), "mover", emit); }
    if (checker) { const In &q = s.ck; if (q.pc == 0) for (int d = 1; d < 3; d++) if (s.d[d].ex && s.d[d].flag) { n = s; n.ck.pc = 2; n.ck.d = d; n.ck.m = s.d[d].ref; n.ck.tok = s.d[d].flag; lab("checker finds d%d flagged, under master %d", d, n.ck.m); emit(n); }
      look(s, s.ck, offsetof(S, ck), "checker", emit); }
  }
  // read the master, copy, take the dependent's flag off
  template <class F> void look(const S &s, const In &q, size_t at, const char *who, F &&emit) { S n = s; In &x = *(In *)((char *)&n + at);
    switch (q.pc) {
    case 2: if (s.m[q.m].sync == FOREIGN && !M(M_FOREIGN_AS_OURS)) { n.m[q.m].rev++; n.m[q.m].sync = ++n.toks; } x.rev = n.m[q.m].rev; x.val = n.m[q.m].val; x.pc = 3; lab("%s looks at master %d (rev %d)", who, q.m, x.rev); emit(n); break;
    case 3: copy(n, q.d, q.m, q.rev, q.val); x.pc = 4 + 3; lab("%s brings d%d to rev %d", who, q.d, q.rev); emit(n); break;
    case 7: if (s.d[q.d].flag == q.tok || (M(M_UNFLAG_NO_TOKEN) && s.d[q.d].ref == q.m)) n.d[q.d].flag = 0; x.pc = 9; lab("%s takes the flag of d%d off", who, q.d); emit(n); break; } }
  const char *check(const S &s) { if (s.bad) return bm[s.bad];
    S x = s; // everybody dead, one sweep: masters with a flag, dependents with a flag
    for (int m = 0; m < 2; m++) if (x.m[m].sync) { if (x.m[m].sync == FOREIGN) x.m[m].rev++; for (int i = 0; i < 3; i++) copy(x, i, m, x.m[m].rev, x.m[m].val); x.m[m].sync = 0; }
    for (auto &d : x.d) if (d.ex && d.flag) { copy(x, int(&d - x.d), d.ref, x.m[d.ref].rev, x.m[d.ref].val); d.flag = 0; }
    if (x.bad) return bm[x.bad];
    for (auto &d : x.d) if (d.ex && d.name != x.m[d.ref].val) return bm[2];
    if (M(V_REACH)) { for (auto &d : s.d) if (!d.ex || d.flag || d.name != s.m[d.ref].val) return nullptr; if (s.m[0].sync || s.w[0].pc != 9 || s.plain < 1) return nullptr; return bm[3]; }
    return nullptr; }
  const char *terminal(const S &) { return nullptr; } };
static Res go(const char *nm, u32 mut, int writers, bool ins, bool move, bool sw, bool plain, bool checker) { P6 m; m.mut = mut; m.writers = writers; m.ins = ins; m.move = move; m.sweeper = sw; m.plain = plain; m.checker = checker; MC<P6> mc; Res r = mc.run(m); report(nm, r, true); return r; }
int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  struct { u32 f; const char *n; } L[] = {{M_CLEAR_NO_TOKEN, "the clear does not compare the flag"}, {M_COPY_NO_REV, "the copy does not compare the revision"}, {M_COPY_NO_REF, "the copy does not compare the reference"}, {M_FLAG_LATER, "the flag is set in a second write"},
    {M_NO_RECHECK, "the inserter does not look again"}, {M_NO_DEPFLAG, "an inserted dependent carries no flag"}, {M_CHECK_FIRST, "the inserter checks before it inserts"}, {M_CLEAR_EARLY, "the flag is cleared before the copies"}, {M_TOKEN_AT, "the token is not unique (a coarse time)"},
    {M_MOVE_KEEPS_REV, "a moved dependent keeps the old master's revision"}, {M_UNFLAG_NO_TOKEN, "a dependent's flag goes without a look at its token"}, {M_ADOPT_NO_REV, "an adopted flag leaves the revision"},
    {M_FOREIGN_AS_OURS, "a plain writer's flag is taken for a token"}, {M_ADOPT_LATE_READ, "the value is read before the adoption"}};
  if (!strcmp(what, "mutants")) { int alive = 0;
    for (auto &l : L) { Res r = go(l.n, l.f, 2, true, l.f & (M_MOVE_KEEPS_REV | M_COPY_NO_REF), true, false, false);
      if (r.viol.empty()) r = go(l.n, l.f, 1, true, true, true, true, true);
      if (r.viol.empty()) alive++, puts("!!! SURVIVOR"); }
    printf("%zu mutants, %d survivors\n", sizeof L / sizeof *L, alive); return alive; }
  if (!strcmp(what, "reach")) { go("a plain rename and one of ours, all copied", V_REACH, 1, true, false, true, true, false); return 0; }
  bool ok = true;
  ok &= go("2 renames, insert, sweeper", 0, 2, true, false, true, false, false).complete;
  ok &= go("2 renames, insert, move, sweeper", 0, 2, true, true, true, false, false).complete;
  ok &= go("1 rename, 2 plain ones, insert, sweeper", 0, 1, true, false, true, true, false).complete;
  ok &= go("1 rename, moves there and back, checker, sweeper", 0, 1, false, true, true, false, true).complete;
  ok &= go("1 rename, 2 plain ones, insert, moves, checker, sweeper", 0, 1, true, true, true, true, true).complete;
  return !ok; }
