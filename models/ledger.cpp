// The ledger (protocols: log reconciliation) with the writer's own anchor. A writer that has seen
// the last slot of each of its accounts COMMITTED inserts its transaction COMMITTED, with the
// balances after it. See README.md.
#include "mc.hpp"
#include <vector>
enum Mut : u32 { M_NO_UNIQUE = 1, M_CANCEL_ANY = 2, M_REC_NO_STATE = 4, M_NEW_ID = 64, M_COUNTERS = 128, M_CANCEL_FLAG = 256,
  M_POST_ANY = 1 << 13, M_POST_ONE_SIDE = 1 << 14, M_POST_STALE = 1 << 15, M_POST_NEVER = 1 << 16, M_SKIP = 1 << 17, M_NO_LINK = 1 << 18, M_LINK_LOOK = 1 << 19, M_LIMIT_FIRST = 1 << 20, M_REC_OVER = 1 << 21, M_REC_NUMBER = 1 << 22, M_REC_NO_LIMIT = 1 << 23, M_POST_OVER = 1 << 24 };
struct Tx { u8 in, sa, sb, val, com; signed char v, ca, cb; u8 of; };
struct Po { u8 pc, sa, sb, oka, okb, first, looked; signed char pa, pb; };
struct Rc { u8 pc, t, st, na, nb; signed char pa, pb; u8 oka, okb; };
struct Rd { u8 pc, at, n; signed char sum, first; u16 seen; u8 pat, pat1, looks; };
struct S4 { Tx t[5]; Po p[5]; Rc r[2]; Rd d; u8 cancels, zk, zt, bad, cnta, cntb; Po z; u8 copies[5]; };
static const char *bm[] = {"", "one slot taken twice", "a cached balance is wrong", "a reader got a balance that never was", "the account went below its limit", "a transaction was booked twice", "the reconciler can never finish (cycle or gap)", "a transaction was reversed twice"};
enum { TX = 5 };
// Writers 0 to 2 post v[p] to account a and -v[p] to b; 3 and 4 (rev of them) reverse transaction
// 0. Foreign writers (bit p of foreign) insert UNCOMMITTED, as the description has it, and may skip
// a number; all others insert like this program. A document that is adopted gets the next numbers
// of its accounts; one that the limit forbids is refused (committed, not valid, no numbers).
struct P4 { typedef S4 S; u32 mut; int np, nr, rev; u8 foreign; bool limit, cancel, lost; signed char v[3]; S last; bool reader = true, bonly = false;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { for (int p = 0; p < TX; p++) if (p >= np && !(p >= 3 && p < 3 + rev)) s.p[p].pc = 9; }
  int bal(const S &s, int upto = 99) const { int b = 1; for (auto &t : s.t) if (t.in && t.val && t.sa && t.sa <= upto) b += t.v; return b; }
  int balb(const S &s, int upto) const { int b = 1; for (auto &t : s.t) if (t.in && t.val && t.sb <= upto) b -= t.v; return b; }
  int lasta(const S &s) const { int m = 0; for (auto &t : s.t) if (t.in && t.com && t.sa > m) m = t.sa; return m; }
  int lastb(const S &s) const { int m = 0; for (auto &t : s.t) if (t.in && t.com && t.sb > m) m = t.sb; return m; }
  // the committed amount of a
  int kept(const S &s) const { int b = 1; for (auto &t : s.t) if (t.in && t.com && t.val && t.sa) b += t.v; return b; }
  bool behinda(const S &s) const { return topa(s) > lasta(s); }
  bool behindb(const S &s) const { return topb(s) > lastb(s); }
  // another document that is not committed has a smaller number than t there
  bool fronta(const S &s, const Tx &t) const { for (auto &o : s.t) if (o.in && !o.com && o.sa && o.sa < t.sa) return true; return false; }
  bool frontb(const S &s, const Tx &t) const { for (auto &o : s.t) if (o.in && !o.com && o.sb < t.sb) return true; return false; }
  // another one that is not committed follows t: t is not the last of all
  bool beforeany(const S &s, const Tx &t) const { for (auto &o : s.t) if (o.in && !o.com && (o.sa > t.sa || o.sb > t.sb)) return true; return false; }
  int topa(const S &s) const { int m = 0; for (auto &t : s.t) if (t.in && t.sa > m) m = t.sa; return m; }
  int topb(const S &s) const { int m = 0; for (auto &t : s.t) if (t.in && t.sb > m) m = t.sb; return m; }
  int at(const S &s, int q) const { for (int i = 0; i < TX; i++) if (s.t[i].in && s.t[i].sa == q) return i; return -1; }
  int atb(const S &s, int q) const { for (int i = 0; i < TX; i++) if (s.t[i].in && s.t[i].sb == q) return i; return -1; }
  int value(const S &s, int p) const { return p < 3 ? v[p] : -s.t[0].v; }
  bool taken(const S &s, int sa, int sb) const { for (auto &t : s.t) if (t.in && ((sa && t.sa == sa) || t.sb == sb)) return true; return false; }
  bool reversed(const S &s) const { for (auto &t : s.t) if (t.in && t.of) return true; return false; }
  void note(S &s) const { if (s.d.pc) s.d.seen |= 1 << (kept(s) + 5); if (limit && kept(s) < 0) s.bad = 4; }
  // one insert reaches the store; false: refused by an index
  bool land(S &s, int p, const Po &x) const { Tx &t = s.t[p];
    if ((t.in && !M(M_NEW_ID)) || (!M(M_NO_UNIQUE) && taken(s, x.sa, x.sb))) return false;
    if (p >= 3 && !M(M_NO_LINK) && reversed(s)) return false;      // the unique index on what it settles
    if (++s.copies[p] > 1) { s.bad = 5; return true; }
    if (p >= 3 && reversed(s)) s.bad = 7;
    int w = value(s, p); t.in = 1; t.sa = x.sa; t.sb = x.sb; t.v = w; t.val = 1; t.of = p >= 3;
    bool anchor = M(M_POST_ANY) || (M(M_POST_ONE_SIDE) ? x.oka : x.oka && x.okb);
    if (anchor && !M(M_POST_NEVER) && !(foreign >> p & 1)) { t.com = 1; t.ca = x.pa + w; t.cb = x.pb - w; }
    note(s); return true; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int p = 0; p < TX; p++) { const Po &q = s.p[p];
#define B n = s; Po &x = n.p[p]; (void)x
      if (q.pc == 9 || (p >= 3 && !s.t[0].in)) continue;
      switch (q.pc) {
      case 0: { B; int w = value(s, p); if (p >= 3 && M(M_LINK_LOOK) && !x.looked) { x.looked = 1; if (reversed(s)) x.pc = 9; lab("P%d: T0 is reversed %s", p, x.pc ? "already" : "not yet"); emit(n); break; }
        bool other = foreign >> p & 1; if (!other && behinda(s) && !M(M_POST_ANY | M_POST_ONE_SIDE | M_POST_OVER)) continue; if (other && !x.looked) { S k = n; n.p[p].looked = 2; lab("P%d: a skipped number", p); emit(n); n = k; }
        x.sa = M(M_COUNTERS) ? ++n.cnta : bonly && p == 1 ? 0 : (M(M_POST_OVER) ? lasta(s) : topa(s)) + 1 + (M(M_SKIP) && p == 0) + (other && x.looked == 2); int k = x.sa > 1 ? at(s, x.sa - 1) : -1;
        if (!M(M_POST_STALE) || !x.first) { x.oka = x.sa <= 1 || (k >= 0 && s.t[k].com); x.pa = bal(s, x.sa - 1); }
        lab("P%d: next number of account a is %d, %d before it%s", p, x.sa, x.pa, x.oka ? "" : ", not committed");
        if (limit && w < 0 && x.pa + w < 0 && !(M(M_LIMIT_FIRST) && x.first)) { x.pc = 9; lab("P%d: not enough in a (up to %d): refused", p, x.sa - 1); } else x.pc = 1; emit(n); break; }
      case 1: { B; if (!(foreign >> p & 1) && behindb(s) && !M(M_POST_ANY | M_POST_ONE_SIDE | M_POST_OVER)) { memset(&x, 0, sizeof x); lab("P%d: something is not taken up yet on b: again", p); emit(n); break; }
        x.sb = M(M_COUNTERS) ? ++n.cntb : (M(M_POST_OVER) ? lastb(s) : topb(s)) + 1 + ((foreign >> p & 1) && x.looked == 2); int k = x.sb > 1 ? atb(s, x.sb - 1) : -1;
        if (!M(M_POST_STALE) || !x.first) { x.okb = x.sb <= 1 || (k >= 0 && s.t[k].com); x.pb = balb(s, x.sb - 1); }
        x.first = M(M_POST_STALE) || M(M_LIMIT_FIRST); lab("P%d: next number of account b is %d, %d before it%s", p, x.sb, x.pb, x.okb ? "" : ", not committed"); x.pc = 2; emit(n); break; }
      case 2: { B;
        if (s.t[p].in && !M(M_NEW_ID)) { x.pc = 9; lab("P%d: its id exists: done already", p); }
        else if (p >= 3 && !M(M_NO_LINK) && reversed(s)) { x.pc = 9; lab("P%d: T0 is reversed already: refused", p); }
        else if (!land(n, p, q)) { u8 f = x.first; x.pc = 0; if (!f) memset(&x, 0, sizeof x); lab("P%d: slot a%d or b%d taken: again", p, q.sa, q.sb); } else { x.pc = 9; lab("P%d inserts T%d (a%d %+d, b%d %+d) %s", p, p, q.sa, n.t[p].v, q.sb, -n.t[p].v, n.t[p].com ? "COMMITTED" : "UNCOMMITTED"); } emit(n);
        if (lost && !s.zk) { B; n.zk = 1; n.zt = p; n.z = q; u8 f = x.first; if (!f) memset(&x, 0, sizeof x); x.pc = 0; lab("P%d sends insert of T%d (a%d, b%d), no answer", p, p, q.sa, q.sb); emit(n); }
        break; } } }
    if (s.zk == 1) { n = s; n.zk = 2; bool ok = land(n, s.zt, s.z); memset(&n.z, 0, sizeof n.z); lab("the unanswered insert of T%d lands%s", s.zt, ok ? "" : " (refused)"); emit(n); }
    for (int i = 0; i < nr; i++) { const Rc &q = s.r[i];
#define R n = s; Rc &x = n.r[i]; (void)x
      switch (q.pc) {
      case 0: { bool ready = false; int last = -1;
        for (int t = 0; t < TX; t++) if (s.t[t].in && !s.t[t].com) { if (beforeany(s, s.t[t])) last = t; ready = ready || (!fronta(s, s.t[t]) && !frontb(s, s.t[t])); if (fronta(s, s.t[t])) continue;
          R; int k = lasta(s); x.t = t; x.na = !s.t[t].sa ? 0 : M(M_REC_NUMBER) ? s.t[t].sa : k + 1; x.pa = k ? s.t[at(s, k)].ca : 1; x.pc = 1; lab("R%d takes T%d: a before it is %d", i, t, x.pa); emit(n); }
        if (last >= 0 && !ready) { R; if (n.t[last].sa) n.t[last].sa = topa(s) + 1; n.t[last].sb = topb(s) + 1; lab("R%d: a cycle: T%d moves behind all others", i, last); emit(n); } break; }
      case 1: { const Tx &t = s.t[q.t]; R; if (frontb(s, t)) { memset(&x, 0, sizeof x); lab("R%d: b before T%d is not committed yet", i, q.t); emit(n); break; } int k = lastb(s); x.nb = M(M_REC_NUMBER) ? t.sb : k + 1; x.pb = k ? s.t[atb(s, k)].cb : 1; x.st = t.val; x.pc = 2; lab("R%d: b before T%d is %d, T%d is %s", i, q.t, x.pb, q.t, t.val ? "VALID" : "CANCELLED"); emit(n); break; }
      case 2: { R; Tx &t = n.t[q.t]; bool free = true; for (int o = 0; o < TX; o++) if (o != q.t && s.t[o].in && ((q.na && s.t[o].sa == q.na) || s.t[o].sb == q.nb)) free = false;
        if (t.com || (t.val != q.st && !M(M_REC_NO_STATE))) lab("R%d: T%d changed: dropped", i, q.t);
        else if (limit && t.sa && q.st && q.pa + t.v < 0 && t.v < 0 && !M(M_REC_NO_LIMIT)) { t.com = 1; t.val = 0; t.sa = t.sb = 0; t.ca = t.cb = 0; lab("R%d refuses T%d", i, q.t); }
        else if (!free && !M(M_REC_OVER)) lab("R%d: a number of T%d is taken: again", i, q.t);
        else { t.com = 1; t.sa = q.na; t.sb = q.nb; t.ca = q.pa + (q.st ? t.v : 0); t.cb = q.pb - (q.st ? t.v : 0); lab("R%d commits T%d as a%d b%d, cached a=%d b=%d", i, q.t, q.na, q.nb, t.ca, t.cb); note(n); }
        memset(&x, 0, sizeof x); emit(n); break; } } }
    if (cancel && s.t[0].in && s.cancels < 1 && (!s.t[0].com || M(M_CANCEL_ANY)) && s.t[0].val) { n = s; n.cancels++; n.t[0].val = 0; note(n); lab("T0 is set CANCELLED"); emit(n); }
    if (reader) { const Rd &q = s.d;
#define D n = s; Rd &x = n.d; (void)x
      switch (q.pc) {
      case 0: if (q.looks < 2) { D; u8 l = x.looks; memset(&x, 0, sizeof x); x.looks = l + 1; x.pc = 1; n.d.seen = 1 << (kept(s) + 5); lab("reader: begins"); emit(n); } break;
      case 1: { D; int k = lasta(s); x.sum = k ? s.t[at(s, k)].ca : 1; if (!(q.seen >> (x.sum + 5) & 1)) n.bad = 3; lab("reader: a%d = %d", k, x.sum); u8 l = x.looks; memset(&x, 0, sizeof x); x.looks = l; emit(n); break; } } }
  }
  const char *check(const S &s) { if (s.bad) return bm[s.bad];
    for (int i = 0; i < TX; i++) for (int j = 0; j < i; j++) if (s.t[i].in && s.t[j].in && ((s.t[i].sa && s.t[i].sa == s.t[j].sa) || (s.t[i].sb && s.t[i].sb == s.t[j].sb))) return bm[1];
    for (auto &t : s.t) if (t.in && t.com && ((t.sa && t.ca != bal(s, t.sa)) || (t.sb && t.cb != balb(s, t.sb)))) return bm[2];
    for (int i = 0; i < TX; i++) if (s.t[i].in && s.t[i].com && ((s.t[i].sa > 1 && at(s, s.t[i].sa - 1) < 0) || (s.t[i].sb > 1 && atb(s, s.t[i].sb - 1) < 0))) return bm[6];
    return nullptr; }
  const char *terminal(const S &) { return nullptr; } };
static int failures;
static Res go(const char *nm, u32 mut, int np, int nr, int rev, u8 foreign, bool limit, bool lost, std::vector<int> v, bool bonly = false, bool show = false) { P4 m; m.bonly = bonly; m.mut = mut; m.np = np; m.nr = nr; m.rev = rev; m.foreign = foreign; m.limit = limit; m.cancel = mut & M_CANCEL_FLAG; m.lost = lost; for (int i = 0; i < 3; i++) m.v[i] = i < (int)v.size() ? v[i] : 0; MC<P4> mc; Res r = mc.run(m, 60000000); report(nm, r, show); return r; }
static void good(const Res &r) { if (!r.viol.empty() || !r.complete) failures++, puts("!!! FAILED"); }
int main(int argc, char **) { bool show = argc > 1; puts("-- the protocol");
  good(go("2 writers, reversal, 2 reconcilers, reader, lost answer", 0, 2, 2, 1, 2, true, true, {1, -2}, false, show));
  good(go("2 writers, 2 reversals, reader, lost answer", 0, 2, 0, 2, 0, true, true, {1, -1}, false, show));
  good(go("3 writers, reversal, 1 reconciler, one foreign", 0, 3, 1, 1, 1, true, false, {-1, 1, -1}, false, show));
  good(go("3 writers, 2 reconcilers, lost answer, one foreign", 0, 3, 2, 0, 2, true, true, {-1, 1, -1}, false, show));
  good(go("3 writers, one of them on b only, 2 reconcilers, two foreign", 0, 3, 2, 0, 5, false, true, {-1, 1, -1}, true, show));
  good(go("all foreign: the description's own steps", 0, 3, 1, 0, 7, true, false, {-1, 1, -1}, false, show));
  good(go("numbers from counters, and skipped ones", M_COUNTERS | M_SKIP, 2, 2, 0, 1, false, true, {-1, -1}, false, show));
  puts("-- mutants"); struct { u32 f; u8 foreign; const char *n; bool limit; std::vector<int> v; } L[] = {
    {M_NO_UNIQUE, 0, "no unique index on (account, seqId)", false, {-1, -1}},
    {M_CANCEL_FLAG | M_CANCEL_ANY, 0, "a transaction is cancelled by a flag", false, {-1, -1}},
    {M_CANCEL_FLAG | M_REC_NO_STATE, 3, "reconciler does not compare the state it used", false, {-1, -1}},
    {M_REC_OVER, 1, "a document is taken up with a number that is taken", false, {-1, -1}},
    {M_REC_NUMBER, 1, "a document is taken up with the number that it skipped to", false, {-1, -1}},
    {M_REC_NO_LIMIT, 3, "a document is taken up without its account's limit", true, {-1, -1}},
    {M_POST_OVER | M_NO_UNIQUE, 1, "a writer posts over what is not taken up", false, {-1, -1}},
    {M_NEW_ID, 0, "retry under a new id", false, {-1, -1}},
    {M_POST_ANY | M_CANCEL_FLAG, 1, "writer inserts COMMITTED in any case", false, {-1, -1}},
    {M_POST_ONE_SIDE | M_CANCEL_FLAG, 1, "writer looks at one account only", false, {-1, -1}},
    {M_POST_STALE, 0, "fresh numbers with the balances of the first look", false, {-1, -1}},
    {M_NO_LINK, 0, "no unique index on what is settled", false, {1, -1}},
    {M_NO_LINK | M_LINK_LOOK, 0, "settled: only looked for", false, {1, -1}},
    {M_LIMIT_FIRST, 0, "limit not looked at again with fresh numbers", true, {-1, -1}}};
  int alive = 0; for (auto &l : L) { Res r = go(l.n, l.f, 2, 2, (l.f & M_NO_LINK) ? 2 : 0, l.foreign, l.limit, true, l.v, (l.f & M_POST_ONE_SIDE) != 0, show); if (r.viol.empty()) alive++, puts("!!! SURVIVOR"); }
  printf("%zu mutants, %d survivors\n", sizeof L / sizeof *L, alive); return alive || failures; }
