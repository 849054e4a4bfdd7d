// Denormalized copies (src/patterns/sync/sync.c): one source under rule, a second one for moves,
// two copies that exist and one that is inserted. A copy carries a stamp: the source, its
// incarnation (a token), and its revision. Revisions are compared within one incarnation only. Over
// any other stamp a copy is written only if the stamp is the one that was read before the source. A
// source that truce has not numbered is copied only if there is no stamp; otherwise it is numbered
// first. The flag of a source is a token of its own next to the revision. A plain writer may set
// any flag, which is adopted; the flag of a copy is a token, too. A plain writer may also replace
// the source by a new document, and move a copy. See README.md.
#include "mc.hpp"
#include <cstddef>
enum Mut : u32 { M_CLEAR_NO_TOKEN = 1, M_COPY_NO_REV = 2, M_FLAG_LATER = 4, M_NO_RECHECK = 8, M_NO_DEPFLAG = 16, M_CHECK_FIRST = 32, M_CLEAR_EARLY = 64, M_TOKEN_AT = 128,
  M_ONE_COUNT = 256, M_UNFLAG_NO_TOKEN = 512, M_NO_INCARNATION = 1024, M_ADOPT_NO_REV = 2048, M_FOREIGN_AS_OURS = 4096, M_COPY_NO_REF = 8192, M_ADOPT_LATE_READ = 16384, V_REACH = 32768,
  M_BATCH_OVER_OTHERS = 65536, M_SEEN_NOT_COMPARED = 131072, M_SOURCE_FIRST = 262144, M_UNNUMBERED = 524288 };
// the flag of a plain writer; the source of a copy without a stamp
enum { FOREIGN = 200, NONE = 9 };
struct Stamp { u8 m, inc, rev; };
struct Ma { u8 rev, inc, sync, val; };                          // rev 0, inc 0: truce has not numbered it
struct De { u8 ex, ref, name, flag; Stamp at; };
struct Up { u8 pc, d, m, inc, rev, val; Stamp seen; }; // one copy updated to its source
struct Wr { u8 pc, rev, inc, val, i, m, tok; Up up; };          // renames and copies
struct In { u8 pc, rev, inc, val, tok, d; Up up; }; // inserts, moves, or checks a copy
struct S6 { Ma m[2]; De d[3]; Wr w[2], sw; In in, mv, ck; u8 bad, sweeps, plain, replaced, moved, toks, vals; };
static const char *bm[] = {"", "a copy went back to an older value", "a copy that no sweep will repair", "REACHED"};
struct P6 { typedef S6 S; u32 mut; bool ins, move, sweeper, plain, checker, replace, unnumbered, bare; int writers; bool plain_move; S last; bool M(u32 m) const { return mut & m; }
  void init(S &s) { u8 n = unnumbered ? 0 : 1; s.toks = 2; s.vals = 2;
    s.m[0] = Ma{n, n, 0, 1}; s.m[1] = Ma{n, (u8)(n ? 2 : 0), 0, 2};
    for (int i = 0; i < 2; i++) s.d[i] = De{1, 0, 1, 0, Stamp{0, n, n}};
    if (move && checker) s.d[1].flag = ++s.toks; }
  Stamp stamp(int m, const In &q) const { return q.rev || M(M_UNNUMBERED) ? Stamp{(u8)m, q.inc, q.rev} : Stamp{NONE, 0, 0}; } // a source without a number: none
  bool same(const Stamp &a, int m, int inc) const { return M(M_ONE_COUNT) ? a.m != NONE : a.m == m && (a.inc == inc || M(M_NO_INCARNATION)); }
  bool is_up(const De &d, int m, int inc, int rev, int val) const { return d.ref != m || (same(d.at, m, inc) && (d.at.rev > rev || (d.at.rev == rev && (rev || d.name == val || M(M_ONE_COUNT))))); }
  // a value is a number that rises with each write of any source, so "older" is "lower" for one
  // source
  void write(S &s, int i, int m, int inc, int rev, int val) const { De &d = s.d[i]; if (d.ref == m && d.at.m == m && d.at.inc == inc && d.name > val) s.bad = 1; d.name = val; d.at = Stamp{(u8)m, (u8)inc, (u8)rev}; }
  void batch(S &s, int i, int m, int inc, int rev, int val) const { De &d = s.d[i];
    if (!d.ex || (d.ref != m && !M(M_COPY_NO_REF))) return;
    if (M(M_COPY_NO_REV) || d.at.m == NONE || (same(d.at, m, inc) ? d.at.rev < rev : M(M_BATCH_OVER_OTHERS))) write(s, i, m, inc, rev, val); }
  bool exact(S &s, const Up &u) const { De &d = s.d[u.d]; // true: written
    if (!d.ex || (d.ref != u.m && !M(M_COPY_NO_REF))) return false;
    if (!M(M_COPY_NO_REV) && memcmp(&d.at, &u.seen, sizeof u.seen) && !M(M_SEEN_NOT_COMPARED) && !(same(d.at, u.m, u.inc) && d.at.rev < u.rev)) return false;
    write(s, u.d, u.m, u.inc, u.rev, u.val); return true; }
  void number(S &s, int m, bool flag) const { if (!s.m[m].rev) s.m[m].inc = ++s.toks; s.m[m].rev++; if (flag) s.m[m].sync = ++s.toks; }
  // the copy, then its source, then the write; `done` when nothing is left to do
  bool step_up(S &n, Up &u, const char *who) const { // one step of an update; true: over
    const De &d = n.d[u.d];
    switch (u.pc) {
    case 0: u.m = d.ref; u.seen = d.at; u.pc = 1; if (M(M_SOURCE_FIRST) && u.val) u.pc = 2; lab("%s reads d%d, under source %d", who, u.d, u.m); return !d.ex;
    case 1: { Ma &m = n.m[u.m]; if (m.sync == FOREIGN && !M(M_FOREIGN_AS_OURS)) number(n, u.m, true);
        u.inc = m.inc; u.rev = m.rev; u.val = m.val; lab("%s reads source %d (incarnation %d, rev %d, value %d)", who, u.m, u.inc, u.rev, u.val);
        De seen = d; seen.at = u.seen; seen.ref = u.m; if (is_up(seen, u.m, u.inc, u.rev, u.val)) return true;
        u.pc = !u.rev && u.seen.m != NONE && !M(M_UNNUMBERED) ? 3 : 2; return false; }
    case 2: { bool ok = exact(n, u); lab("%s brings d%d to rev %d (value %d)%s", who, u.d, u.rev, u.val, ok ? "" : ": not as it was"); u8 dd = u.d; if (ok) return true; memset(&u, 0, sizeof u); u.d = dd; return false; }
    default: { u8 dd = u.d; if (!n.m[u.m].rev) number(n, u.m, false); lab("%s numbers source %d", who, u.m); memset(&u, 0, sizeof u); u.d = dd; return false; } } }
  template <class F> void succ(const S &s, F &&emit) { S n;
    auto prop = [&](int k, bool isw) { const Wr &q = isw ? s.sw : s.w[k];
      auto X = [&](S &t) -> Wr & { return isw ? t.sw : t.w[k]; }; const char *who = isw ? "sweeper" : k ? "R1" : "R0";
      auto next = [&](Wr &x) { memset(&x.up, 0, sizeof x.up); x.i++; x.pc = 2; if (x.i == 3) { x.pc = M(M_CLEAR_EARLY) ? 9 : 3; if (isw && x.pc == 9) memset(&x, 0, sizeof x); } };
      switch (q.pc) {
      case 0: if (isw) { if (s.sweeps < 2) for (int m = 0; m < 2; m++) if (s.m[m].sync) { n = s; Wr &x = X(n); x.m = m; x.i = 0; x.rev = s.m[m].rev; x.inc = s.m[m].inc; x.val = s.m[m].val; x.tok = s.m[m].sync; n.sweeps++;
            x.pc = s.m[m].sync == FOREIGN && !M(M_FOREIGN_AS_OURS) ? 4 : 2; lab("sweeper reads source %d (rev %d, flag %d)", m, x.rev, x.tok); emit(n); } break; }
        if (k >= writers) break;
        n = s; { Wr &x = X(n); number(n, 0, false); n.m[0].val = ++n.vals; x.rev = n.m[0].rev; x.inc = n.m[0].inc; x.val = n.m[0].val; x.tok = M(M_TOKEN_AT) ? 1 : ++n.toks; if (!M(M_FLAG_LATER)) n.m[0].sync = x.tok; x.i = 0; x.pc = M(M_FLAG_LATER) ? 1 : M(M_CLEAR_EARLY) ? 3 : 2; lab("%s renames source 0: rev %d, value %d, flag %d", who, x.rev, x.val, x.tok); emit(n); } break;
      case 1: n = s; { Wr &x = X(n); n.m[0].sync = x.tok; x.pc = 2; lab("%s sets the flag", who); emit(n); } break;
      case 2: n = s; { Wr &x = X(n); batch(n, q.i, q.m, q.inc, q.rev, q.val); const De &d = n.d[q.i];
          lab("%s copies rev %d (value %d) to d%d%s", who, q.rev, q.val, q.i, memcmp(&n.d[q.i], &s.d[q.i], sizeof(De)) ? "" : " (no match)");
          if (d.ex && !is_up(d, q.m, q.inc, q.rev, q.val) && !M(M_COPY_NO_REV) && !M(M_BATCH_OVER_OTHERS)) { x.pc = 5; x.up.d = q.i; if (M(M_SOURCE_FIRST)) { x.up.inc = q.inc; x.up.rev = q.rev; x.up.val = q.val; } } else next(x);
          emit(n); } break;
      case 3: n = s; { Wr &x = X(n); bool ok = s.m[q.m].sync && (M(M_CLEAR_NO_TOKEN) || s.m[q.m].sync == q.tok); if (ok) n.m[q.m].sync = 0; lab("%s clears the flag%s", who, ok ? "" : " (not ours)"); x.pc = M(M_CLEAR_EARLY) && !isw ? 2 : 9; x.i = 0; if (isw) memset(&x, 0, sizeof x); emit(n); } break;
      // the flag of a writer that came between is removed, too: all is copied again
      case 4: n = s; { Wr &x = X(n); bool ok = s.m[q.m].rev == q.rev && s.m[q.m].inc == q.inc;
          if (ok) { if (M(M_ADOPT_NO_REV)) n.m[q.m].sync = ++n.toks; else number(n, q.m, true); x.rev = n.m[q.m].rev; x.inc = n.m[q.m].inc; if (!M(M_ADOPT_LATE_READ)) x.val = n.m[q.m].val; x.tok = n.m[q.m].sync; x.pc = 2; } else memset(&x, 0, sizeof x);
          lab("%s adopts the flag%s (value %d)", who, ok ? "" : ": another by now", x.val); emit(n); } break;
      case 5: n = s; { Wr &x = X(n); if (step_up(n, x.up, who)) next(x); emit(n); } break; } };
    prop(0, false); prop(1, false); if (sweeper) prop(0, true);
    if (plain && s.plain < 2) { n = s; n.plain++; n.m[0].val = ++n.vals; n.m[0].sync = FOREIGN; lab("a plain writer renames source 0: value %d, a flag of its own", n.vals); emit(n); }
    if (replace && !s.replaced) { n = s; n.replaced = 1; n.m[0] = Ma{0, 0, FOREIGN, ++n.vals}; lab("a plain writer removes source 0 and creates it again: value %d", n.vals); emit(n);
      n = s; n.replaced = 1; n.m[0] = Ma{0, 0, 0, ++n.vals}; number(n, 0, true); lab("source 0 is removed, and created again by truce: value %d", n.vals); emit(n); }
    if (plain_move && s.moved < 2) { n = s; n.moved++; n.d[1].ref = !s.d[1].ref; n.d[1].flag = FOREIGN; lab("a plain writer moves d1 to source %d", n.d[1].ref); emit(n); }
    if (ins) { const In &q = s.in; switch (q.pc) {
      case 0: n = s; n.in.rev = s.m[0].rev; n.in.inc = s.m[0].inc; n.in.val = s.m[0].val; n.in.pc = M(M_CHECK_FIRST) ? 4 : 1; lab("inserter reads source 0 (rev %d)", s.m[0].rev); emit(n); break;
      case 4: if (s.m[0].rev == q.rev) { n = s; n.in.pc = 1; lab("inserter checks the revision before inserting"); emit(n); } else { n = s; n.in.pc = 0; emit(n); } break;
      case 1: n = s; { bool flag = !M(M_NO_DEPFLAG) && !M(M_CHECK_FIRST) && !M(M_NO_RECHECK); n.in.tok = flag ? ++n.toks : 0; n.d[2] = De{1, 0, q.val, n.in.tok, stamp(0, q)}; n.in.d = 2; n.in.up.d = 2; n.in.pc = M(M_CHECK_FIRST) || M(M_NO_RECHECK) ? 9 : 2; lab("inserter inserts d2 (rev %d)", q.rev); emit(n); } break;
      default: break; }
      look(s, s.in, offsetof(S, in), "inserter", emit); }
    if (move) { const In &q = s.mv; switch (q.pc) { // d1 moves to source 1, and (round 2) back
      case 0: n = s; n.mv.rev = s.m[1].rev; n.mv.inc = s.m[1].inc; n.mv.val = s.m[1].val; n.mv.pc = 1; lab("mover reads source 1"); emit(n); break;
      case 1: n = s; n.mv.tok = ++n.toks; n.mv.pc = 2; n.mv.d = 1; n.mv.up.d = 1; n.d[1].ref = 1; n.d[1].flag = n.toks; n.d[1].at = stamp(1, q); n.d[1].name = q.val; lab("mover hangs d1 under source 1"); emit(n); break;
      case 9: n = s; n.mv.rev = s.m[0].rev; n.mv.inc = s.m[0].inc; n.mv.val = s.m[0].val; n.mv.pc = 5; lab("mover reads source 0"); emit(n); break;
      case 5: n = s; n.mv.tok = ++n.toks; n.mv.pc = 6; n.d[1].ref = 0; n.d[1].flag = n.toks; n.d[1].at = stamp(0, q); n.d[1].name = q.val; lab("mover hangs d1 back under source 0, and dies"); emit(n); break;
      default: break; }
      look(s, s.mv, offsetof(S, mv), "mover", emit); }
    auto check_by = [&](In S::*which, const char *who) { const In &q = s.*which; if (q.pc == 0) for (int d = 1; d < 3; d++) if (s.d[d].ex && s.d[d].flag) { n = s; In &x = n.*which; if (n.d[d].flag == FOREIGN) n.d[d].flag = ++n.toks; x.pc = 2; x.d = d; x.up.d = d; x.tok = n.d[d].flag; lab("%s finds d%d flagged (%d)", who, d, x.tok); emit(n); }
      look(s, q, (const char *)&q - (const char *)&s, who, emit); };
    if (checker) check_by(&S::ck, "checker");
    if (bare) { check_by(&S::mv, "second checker");
      if (s.replaced < 2) { n = s; n.replaced++; n.m[0] = Ma{0, 0, 0, ++n.vals}; for (auto &d : n.d) if (d.ex && d.ref == 0) d.flag = FOREIGN; lab("a plain writer creates source 0 again without a flag, and flags its dependents: value %d", n.vals); emit(n); } }
  }
  // update the copy, remove its flag
  template <class F> void look(const S &s, const In &q, size_t at, const char *who, F &&emit) { S n = s; In &x = *(In *)((char *)&n + at);
    switch (q.pc) {
    case 2: if (step_up(n, x.up, who)) { memset(&x.up, 0, sizeof x.up); x.pc = 7; } emit(n); break;
    case 7: if (s.d[q.d].flag == q.tok || M(M_UNFLAG_NO_TOKEN)) n.d[q.d].flag = 0; x.pc = (&q == &s.ck && plain_move) || bare ? 0 : 9; x.tok = x.d = 0; lab("%s takes the flag of d%d off", who, q.d); emit(n); break; } }
  const char *check(const S &s) { if (s.bad) return bm[s.bad];
    S x = s; // all processes dead, one recovery pass: sources with a flag, copies with a flag
    auto all = [&](int i) { De &d = x.d[i]; Ma &m = x.m[d.ref]; if (m.sync == FOREIGN) number(x, d.ref, true); if (is_up(d, d.ref, m.inc, m.rev, m.val)) return; if (!m.rev && d.at.m != NONE && !M(M_UNNUMBERED)) number(x, d.ref, false); write(x, i, d.ref, m.inc, m.rev, m.val); };
    for (int m = 0; m < 2; m++) if (x.m[m].sync) { if (x.m[m].sync == FOREIGN) number(x, m, true); for (int i = 0; i < 3; i++) if (x.d[i].ex && x.d[i].ref == m) all(i); x.m[m].sync = 0; }
    for (auto &d : x.d) if (d.ex && d.flag) { all(int(&d - x.d)); d.flag = 0; }
    if (x.bad) return bm[x.bad];
    for (auto &d : x.d) if (d.ex && d.name != x.m[d.ref].val) return bm[2];
    if (M(V_REACH)) { for (auto &d : s.d) if (!d.ex || d.flag || d.name != s.m[d.ref].val) return nullptr; if (s.m[0].sync || s.w[0].pc != 9 || s.plain < 1) return nullptr; return bm[3]; }
    return nullptr; }
  const char *terminal(const S &) { return nullptr; } };
struct Case { const char *name; int writers; bool ins, move, sweeper, plain, checker, replace, plain_move, unnumbered, bare; };
static const Case cases[] = {
  {"2 renames, insert, sweeper", 2, true, false, true, false, false, false, false, false},
  {"2 renames, insert, move, sweeper", 2, true, true, true, false, false, false, false, false},
  {"1 rename, 2 plain ones, insert, sweeper", 1, true, false, true, true, false, false, false, false},
  {"1 rename, moves there and back, checker, sweeper", 1, false, true, true, false, true, false, false, false},
  {"1 rename, 2 plain ones, moves, checker, sweeper", 1, false, true, true, true, true, false, false, false},
  {"1 rename, plain moves, checker", 1, false, false, false, false, true, false, true, false},
  {"1 rename, a source that comes again, sweeper", 1, true, false, true, false, false, true, false, false},
  {"1 rename, a source that comes again, plain moves, checker, sweeper", 1, false, false, true, false, true, true, true, false},
  {"the same, no source numbered", 1, false, false, true, false, true, true, true, true},
  {"2 renames, a source that comes again, insert, sweeper", 2, true, false, true, false, false, true, false, false},
  {"an insert under a source that comes again, none numbered", 0, true, false, true, false, true, true, false, true},
  {"unnumbered sources come again without a flag, two checkers", 0, false, false, false, false, true, false, false, true, true},
};
static Res go(const char *nm, u32 mut, const Case &c) { P6 m; m.mut = mut; m.writers = c.writers; m.ins = c.ins; m.move = c.move; m.sweeper = c.sweeper; m.plain = c.plain; m.checker = c.checker; m.replace = c.replace; m.plain_move = c.plain_move; m.unnumbered = c.unnumbered; m.bare = c.bare; MC<P6> mc; Res r = mc.run(m); report(nm, r, true); return r; }
int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  struct { u32 f; const char *n; } L[] = {{M_CLEAR_NO_TOKEN, "the clear does not compare the flag"}, {M_COPY_NO_REV, "the copy does not compare the revision"}, {M_COPY_NO_REF, "the copy does not compare the reference"}, {M_FLAG_LATER, "the flag is set in a second write"},
    {M_NO_RECHECK, "the inserter does not look again"}, {M_NO_DEPFLAG, "an inserted dependent carries no flag"}, {M_CHECK_FIRST, "the inserter checks before it inserts"}, {M_CLEAR_EARLY, "the flag is cleared before the copies"}, {M_TOKEN_AT, "the token is not unique (a coarse time)"},
    {M_ONE_COUNT, "revisions of different sources are compared"}, {M_NO_INCARNATION, "revisions of different incarnations are compared"}, {M_UNFLAG_NO_TOKEN, "a dependent's flag goes without a look at its token"}, {M_ADOPT_NO_REV, "an adopted flag leaves the revision"},
    {M_FOREIGN_AS_OURS, "a plain writer's flag is taken for a token"}, {M_ADOPT_LATE_READ, "the value is read before the adoption"}, {M_BATCH_OVER_OTHERS, "a batch writes over stamps of other sources"}, {M_SEEN_NOT_COMPARED, "the stamp that was seen is not compared"},
    {M_SOURCE_FIRST, "the source is read before the stamp"}, {M_UNNUMBERED, "a source without a number is copied over a stamp"}};
  if (!strcmp(what, "mutants")) { int alive = 0;
    for (auto &l : L) { bool dead = false; for (auto &c : cases) if (!dead) dead = !go(l.n, l.f, c).viol.empty();
      if (!dead) alive++, puts("!!! SURVIVOR"); }
    printf("%zu mutants, %d survivors\n", sizeof L / sizeof *L, alive); return alive; }
  if (!strcmp(what, "reach")) { go("a plain rename and one of ours, all copied", V_REACH, cases[2]); return 0; }
  bool ok = true;
  for (auto &c : cases) ok &= go(c.name, 0, c).complete;
  return !ok; }
